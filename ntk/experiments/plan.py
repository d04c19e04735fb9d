r"""The plan of an experiment's kernels: panels, passes, bytes and multiply-adds, before anything is computed.

With :math:`c_\ell` multiply-adds of layer :math:`\ell` for a pair of samples, `N` networks whose kernels are averaged
and :math:`p_t` pairs of samples in tile `t`, the products of all tiles take

.. math:: N \sum_t p_t \sum_\ell c_\ell

multiply-adds. A sample that passes a network takes a forward pass, and a backward pass to the inputs with as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ntk.experiments.config import GramConfig, NtkConfig
from ntk.experiments.experiment import KernelExperiment
from ntk.experiments.samples import DrawnSamples, Reader
from ntk.tiles.gram import GramTask
from ntk.tiles.plan import FITS, ON_DISK, TRAIN, Plan
from ntk.trace.inputs import Values
from projnorm.core.experiments import RunPlan
from projnorm.core.records import RunContext
from projnorm.data.image_settings import RANDOM
from projnorm.data.tables import stem
from projnorm.data.targets import GIVEN, Target

# Columns of the table of layers, and the attribute of `LayerCost` that each shows.
_COLUMNS = {
    "layer": "name",
    "parameters": "parameters",
    "route": "route",
    "multiply-adds a pair": "multiply_adds",
    "numbers kept a sample": "kept",
    "formed": "formed",
}
_SUMMED = ("parameters", "multiply-adds a pair", "numbers kept a sample")
# Numbers of a plan that a program reads.
_VALUES = ("pairs", "multiply_adds", "fill_multiply_adds", "passes", "samples", "sample_bytes", "tile_bytes")


def plan_kernels(config: GramConfig, context: RunContext) -> RunPlan:
    """The plan of `ntk.run_gram` or `ntk.run_analysis`, made with one sample of each set and no weights read.

    Args:
        config: The kernels; `n` and `m` may be more than there are samples.
        context: Memory and device.

    Raises:
        InputError: If data, weights and settings do not fit together.
        OSError: If a file cannot be read.

    Example:
        >>> from ntk import GramConfig, plan_kernels
        >>> from ntk.experiments.config import NtkImages, NtkNetwork
        >>> from projnorm.core.records import RunContext
        >>> config = GramConfig(NtkImages(n=5_000, m=100, families=()), NtkNetwork("small-cnn", size=8))
        >>> plan = plan_kernels(config, RunContext(".", device="cpu"))
        >>> plan.values["sets"], plan.values["passes"]
        ({'train': 5000, 'clean': 100}, 5100)
    """
    if isinstance(config, NtkConfig):
        config.require_one_row()
    task = _task(config, context)
    folder = next(folder for folder in (context.root, *context.root.absolute().parents) if folder.is_dir())
    plan = task.planned(folder)
    return RunPlan(_rows(plan), _layers(plan), _notes(task), _values(plan))


def _task(config: GramConfig, context: RunContext) -> GramTask:
    """The kernels to be planned, with the first sample of each set in the place of all its samples."""
    data, first = config.data, np.arange(1)
    read = Reader.from_network(config.network)
    train, test = (part.take(first) for part in read.splits(data.data))
    further = [Target(stem(path), GIVEN, 0, GIVEN, read.single(path)) for path in map(Path, data.targets)]
    config = replace(config, network=replace(config.network, weights=RANDOM))
    experiment = KernelExperiment.from_config(
        config, DrawnSamples(config, train, test, first, tuple(further), classes=2)
    )
    sizes = {target.name: min(data.m, len(target.samples)) for target in further}
    sets = {TRAIN: (train, data.n), **{t.name: (t.samples, sizes.get(t.name, data.m)) for t in experiment.targets}}
    as_inputs = experiment.networks.as_inputs
    inputs = {name: _repeated(as_inputs(part.inputs[:1].copy()), count) for name, (part, count) in sets.items()}
    return experiment.task(context, inputs)


def _repeated(inputs: Values, count: int) -> Values:
    """`count` samples that are all the first, which is in memory once."""
    if isinstance(inputs, Mapping):
        return {name: x.expand(count, *x.shape[1:]) for name, x in inputs.items()}
    return inputs.expand(count, *inputs.shape[1:])


def _layers(plan: Plan) -> tuple[dict[str, str | int], ...]:
    rows = [{column: getattr(layer, name) for column, name in _COLUMNS.items()} for layer in plan.layers]
    sums = {column: sum(row[column] for row in rows) for column in _SUMMED}
    return (*rows, {"layer": "total", **sums})


def _rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    held, batch_sizes = plan.panels_in_memory, plan.batch_sizes
    overflow = {FITS: "all panels fit into memory", ON_DISK: "panels are written to disk and read again"}
    passing = plan.passes * plan.fill_multiply_adds
    forming = sum(map(plan.tile_multiply_adds, plan.tiles)) - plan.multiply_adds
    return (
        ("samples", f"{plan.samples:,}"),
        (
            "panels",
            f"{len(plan.panels):,} of {batch_sizes.panel:,} samples, {held:,} of them in memory",
        ),
        ("tiles", f"{len(plan.tiles):,}, for {plan.pairs:,} pairs of samples"),
        ("memory", f"at most about {plan.peak_bytes / 1e9:.2f} GB, of {plan.memory / 1e9:.3g} GB allowed"),
        ("overflow", overflow.get(plan.overflow, "samples of dropped panels pass the network again")),
        ("disk", f"{plan.tile_bytes / 1e9:.3g} GB of tiles, {plan.disk_bytes() / 1e9:.3g} GB of panels"),
        ("samples through the network", f"{plan.passes:,}, in batches of {batch_sizes.batch:,}"),
        ("multiply-adds of these passes", f"{passing:.3g}, {plan.fill_multiply_adds:.3g} for each sample"),
        ("multiply-adds of products", f"{plan.multiply_adds:.3g}"),
        ("multiply-adds of gradients formed for tiles", f"{forming:.3g}"),
    )


def _notes(task: GramTask) -> tuple[str, ...]:
    """Which parameters take plain autograd, and why."""
    if not (reasons := task.engine.by_autograd):
        return ()
    listed = "; ".join(f"{name} ({call})" for name, call in reasons.items())
    return (f"gradients of single samples by plain autograd, which take a pass of their own: {listed}",)


def _values(plan: Plan) -> dict[str, object]:
    return {
        "sets": dict(plan.sets),
        "batch_sizes": plan.batch_sizes.to_json(),
        "tiles": len(plan.tiles),
        "panels": len(plan.panels),
        "panels_kept": plan.panels_in_memory,
        "overflow": plan.overflow,
        **{name: getattr(plan, name) for name in (*_VALUES, "peak_bytes", "memory")},
    }
