"""What the kernels of an experiment will cost, from the number and the shape of its images alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ntk.experiments.config import GramConfig
from ntk.experiments.experiment import Experiment
from ntk.experiments.samples import DrawnSamples, Reader, Target
from ntk.tiles.kernels import GramTask
from ntk.tiles.plan import FITS, ON_DISK, TRAIN, Plan, Tile, chunks, loads
from ntk.trace.inputs import Values
from projnorm.core.costs import CostAssumptions, CostReport, DeviceCost, Job, device_cost
from projnorm.core.records import RunContext
from projnorm.data.image_settings import RANDOM
from projnorm.data.tables import stem
from projnorm.data.targets import GIVEN

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


def kernel_costs(config: GramConfig, context: RunContext, assumptions: CostAssumptions | None = None) -> CostReport:
    """The cost of `ntk.run_gram`, planned with one image of each set in memory and no weights read.

    Args:
        config: The kernels; `n` and `m` may be more than there are images.
        context: Memory and device.
        assumptions: Numbers of devices and their rates.

    Raises:
        InputError: If something asked for does not fit.
        OSError: If a file cannot be read.
    """
    assumptions = assumptions or CostAssumptions()
    task, plan, sample_bytes = _planned(config, context)
    devices = [worker_cost(plan, count, assumptions, sample_bytes=sample_bytes) for count in assumptions.devices]
    return CostReport(
        _layer_rows(plan), (*_summary(plan), *_by_autograd(task)), tuple(devices), assumptions, values=_values(plan)
    )


def worker_cost(plan: Plan, workers: int, assumptions: CostAssumptions, *, sample_bytes: int) -> DeviceCost:
    """The cost of a plan on several workers, with one device for each.

    One worker holds in memory what the plan says. One of several holds the same, but of the samples, which take
    `sample_bytes` each, only those of its task, and the tiles of its task until they are sent.
    """
    tasks = chunks(plan, workers)
    device_bytes = plan.peak_bytes
    if workers > 1:
        held = max(
            plan.samples_in({panel for tile in tiles for panel in tile}) * sample_bytes + sum(map(plan.bytes_of, tiles))
            for tiles in tasks
        )
        device_bytes += held - plan.samples * sample_bytes
    if workers == 1 or plan.overflow != ON_DISK:
        passes = [plan.passes if workers == 1 else plan.samples_in(loads(tiles, plan.room)) for tiles in tasks]
        stages = [[_job(plan, tiles, passed) for tiles, passed in zip(tasks, passes, strict=True)]]
    else:
        stages = [[_job(plan, (), panel.samples) for panel in plan.panels], [_job(plan, tiles, 0) for tiles in tasks]]
    return device_cost(stages, workers, assumptions, device_bytes=device_bytes)


def _job(plan: Plan, tiles: Sequence[Tile], passes: int) -> Job:
    multiply_adds = sum(map(plan.tile_multiply_adds, tiles)) + passes * plan.fill_multiply_adds
    return Job("tiles", 2 * multiply_adds, {"through the network": passes})


def _by_autograd(task: GramTask) -> tuple[str, ...]:
    """Which parameters take plain autograd, and why."""
    reasons = task.engine.by_autograd
    if not reasons:
        return ()
    named = "; ".join(f"{name} ({call})" for name, call in reasons.items())
    return (f"gradients of single samples by plain autograd, which take a pass of their own: {named}",)


def _planned(config: GramConfig, context: RunContext) -> tuple[GramTask, Plan, int]:
    """The task, its plan, and the bytes of a sample before it is prepared for a network."""
    data, first = config.data, np.arange(1)
    read = Reader.of(config.network)
    train, test = (part.take(first) for part in read.splits(data.data))
    given = [(Target(stem(path), GIVEN, 0, read.one(path))) for path in map(Path, data.targets)]
    config = replace(config, network=replace(config.network, weights=RANDOM))
    experiment = Experiment.of(config, DrawnSamples(config, train, test, first, tuple(given), classes=2))
    sizes = {target.name: min(data.m, len(target.samples)) for target in given}
    sets = {TRAIN: (train, data.n), **{t.name: (t.samples, sizes.get(t.name, data.m)) for t in experiment.targets}}
    as_inputs = experiment.networks.as_inputs
    inputs = {name: _repeated(as_inputs(part.inputs[:1].copy()), count) for name, (part, count) in sets.items()}
    folder = next(one for one in (context.root, *context.root.absolute().parents) if one.is_dir())
    task = experiment.task(context, inputs)
    return task, task.planned(folder), train.inputs.nbytes


def _repeated(inputs: Values, count: int) -> Values:
    """So many samples that are all the first, which is in memory once."""
    if isinstance(inputs, Mapping):
        return {name: x.expand(count, *x.shape[1:]) for name, x in inputs.items()}
    return inputs.expand(count, *inputs.shape[1:])


def _layer_rows(plan: Plan) -> tuple[dict[str, str | int], ...]:
    rows = [{column: getattr(layer, name) for column, name in _COLUMNS.items()} for layer in plan.layers]
    sums = {column: sum(row[column] for row in rows) for column in _SUMMED}
    return (*rows, {"layer": "total", **sums})


def _summary(plan: Plan) -> tuple[str, ...]:
    cut = plan.cut
    panels = f"{plan.samples:,} samples in {len(plan.panels)} panels of {cut.panel}, {plan.room} kept at once"
    waiting = {
        FITS: "all panels fit into memory",
        ON_DISK: f"panels wait on disk, {plan.disk_bytes() / 1e9:.3g} GB at a time",
    }.get(plan.overflow, "panels that do not fit into memory are computed again")
    passes = f"{plan.passes:,} samples through the network in batches of {cut.batch}; {waiting}"
    return (
        f"{panels}; {len(plan.tiles)} tiles, {plan.pairs:,} pairs, {plan.tile_bytes / 1e9:.3g} GB on disk",
        f"{2 * plan.multiply_adds / 1e12:.3g} TFLOP in products",
        f"{passes}; {2 * plan.fill_multiply_adds / 1e9:.3g} GFLOP each",
        f"about {plan.peak_bytes / 1e9:.2f} GB at most, of the {plan.memory / 1e9:.3g} GB allowed",
    )


def _values(plan: Plan) -> dict[str, object]:
    names = ("pairs", "multiply_adds", "fill_multiply_adds", "passes", "samples", "sample_bytes", "tile_bytes")
    return {
        "sets": dict(plan.sets),
        "cut": plan.cut.to_json(),
        "tiles": len(plan.tiles),
        "panels": len(plan.panels),
        "panels_kept": plan.room,
        "overflow": plan.overflow,
        **{name: getattr(plan, name) for name in (*names, "peak_bytes", "memory")},
    }
