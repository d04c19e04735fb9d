"""The paper's Section 4.3: ProjNormLinear on tangent kernels against the error of the fine-tuned network.

The kernels are those of the network before fine-tuning, as in the paper, or after it. Besides ProjNormLinear as it is
defined, every variant of `ntk.variants` is computed; one is chosen by its R^2 on the probe families alone and reported
on the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from deep.config import image_config
from deep.domain import domain_of
from deep.experiments.comparison import finished_run
from deep.experiments.config import NtkPredictConfig
from deep.runs import KERNELS, Run
from deep.samples import Samples, few_indices
from deep.scores import Row
from deep.stages import data_of, network_hash, network_of, outputs_of
from ntk.config import NtkConfig, NtkImages, NtkNetwork
from ntk.experiment import MEANINGS, Experiment, analyse, analysis_arrays, facts
from ntk.kernels import Kernels
from ntk.networks import Networks
from ntk.samples import Target as KernelTarget
from ntk.variants import PLAIN, VARIANTS, Blocks, variant_values
from projnorm.arrays import Arrays
from projnorm.errors import InputError
from projnorm.fit_quality import FitQuality, fit_quality
from projnorm.progress import tracked
from projnorm.records import Record, RunContext, begin_run, existing_record, finish_record, record_id
from projnorm.vision import PROBE_FAMILIES, ImageSet, LoadedNetwork, load_network
from projnorm.vision.settings import RANDOM
from projnorm.vision.targets import CLEAN

PREDICT_KIND = "deep-ntk"
METHOD, TUNED = "ProjNormLinear-NTK", "ProjNormLinear-NTK (tuned)"
_N = 1000
_MEANINGS = MEANINGS | {
    "network_error": "true error of the fine-tuned network on all images of each target",
    "variants": "ways to compute ProjNormLinear on the kernels",
    "variant_values": "its value, a row for each variant and a column for each target",
}


@dataclass(frozen=True, slots=True)
class VariantQuality:
    """How well the error of the network follows a variant of ProjNormLinear.

    The probes are the clean set and the families that the choice is made on; `others` are the other families.
    """

    variant: str
    probes: FitQuality
    others: FitQuality
    all: FitQuality


def run_ntk_predict(config: NtkPredictConfig, context: RunContext) -> Record:
    """Kernels, analysis and variants on the targets of a comparison, whose table gets two more methods.

    Raises:
        InputError: If the comparison is not finished, its images or weights have changed, or something does not fit.
        OSError: If something cannot be read or written.
    """
    run, config = finished_run(config, context)
    context, inputs = run.context, {"network_sha256": network_hash(run)}
    with context.store("").lock(record_id(PREDICT_KIND, config)):  # while tiles are read, nobody begins afresh
        record = existing_record(PREDICT_KIND, config, context, inputs)
        if record is None:
            started, experiment = time.perf_counter(), _experiment(config, run)
            task = experiment.task(context)
            folder = begin_run(PREDICT_KIND, config, context)
            kernels = task.run(folder / "tiles", fresh=context.fresh, backend=context.backend)
            arrays, warnings = _arrays(run, experiment, kernels)
            said = {**facts(experiment, kernels), "warnings": warnings, "inputs": inputs}
            said["run_config"] = run.config.to_json()
            record = finish_record(PREDICT_KIND, config, context, arrays, _MEANINGS, started=started, facts=said)
    run.put_rows(KERNELS, _rows(run, record))
    return record


def variant_qualities(record: Record) -> list[VariantQuality]:
    """Every variant on the probe families, on the others and on all; the best on the probes first."""
    arrays = record.arrays
    probes = np.isin(arrays["families"], (CLEAN, *PROBE_FAMILIES))
    truth = arrays["network_error"]
    rows = [
        VariantQuality(
            str(name),
            fit_quality(v[probes], truth[probes]),
            fit_quality(v[~probes], truth[~probes]),
            fit_quality(v, truth),
        )
        for name, v in zip(arrays["variants"], arrays["variant_values"], strict=True)
    ]
    return sorted(rows, key=lambda row: -np.nan_to_num(row.probes.r_squared) * (row.probes.spearman > 0))


def chosen_variant(record: Record) -> str | None:
    """The variant with the largest R^2 on the probes among those that rise with the error; None without probes."""
    best = variant_qualities(record)[0]
    return best.variant if best.probes.r_squared > 0 and best.probes.spearman > 0 else None


def _arrays(run: Run, experiment: Experiment, kernels: Kernels) -> tuple[Arrays, list[str]]:
    """The results, and warnings of the analysis."""
    train, analysed = analyse(experiment, kernels)
    responses, values, errors = train.responses, [], []
    both = list(zip(experiment.targets, data_of(run).targets, strict=True))
    for target, whole in tracked(both, description="variants of ProjNormLinear", total=len(both)):
        predicted = outputs_of(run, whole.samples).predicted
        errors.append(whole.error(predicted))
        labels = predicted[few_indices(len(predicted), len(target.samples), run.config.seed)]
        blocks = Blocks(kernels.train, kernels.ood_train(target.name), kernels.ood(target.name))
        by_variant = variant_values(blocks, responses.train, responses.ood(labels), accumulate=train.accumulate)
        values.append([by_variant[variant] for variant in VARIANTS])
    arrays = analysis_arrays(experiment, train, analysed) | {
        "network_error": np.array(errors),
        "variants": np.array([str(variant) for variant in VARIANTS]),
        "variant_values": np.array(values).T,
    }
    return arrays, [f"{name}: {warning}" for name, target in analysed.items() for warning in target.warnings]


def _experiment(config: NtkPredictConfig, run: Run) -> Experiment:
    """The comparison's images under kernels: the first `n`, which are in a drawn order, and `m` of each target."""
    c, data = image_config(run.config), data_of(run)
    n, m = config.n or min(_N, len(data.train)), config.m or c.data.m
    if not 2 <= n <= len(data.train) or m > c.data.m:
        raise InputError(
            f"`n` must be from 2 to {len(data.train):,} and `m` at most {c.data.m:,}, as in {config.run}; got {n:,} "
            f"and {m:,}."
        )
    targets = [
        KernelTarget(t.name, t.family, t.severity, _images(t.samples, few_indices(len(t.samples), m, c.seed)))
        for t in data.targets
    ]
    size = config.size or c.network.size
    network = NtkNetwork(c.network.architecture, c.network.weights, size, heads=config.heads, layers=config.layers)
    images = NtkImages(c.data.data, c.data.targets, c.data.families, c.data.severities, n, m)
    networks = Networks.on_images([_scalar_network(config, run, c.seed + head) for head in range(config.heads)], size)
    ntk_config = NtkConfig(images, network, kernel=config.kernel, seed=c.seed, top=config.top)
    return Experiment(ntk_config, networks, _images(data.train, np.arange(n)), tuple(targets), data.classes)


def _scalar_network(config: NtkPredictConfig, run: Run, seed: int) -> LoadedNetwork:
    """The body under a drawn head with one output."""
    network = image_config(run.config).network
    if config.body == "initial":
        return load_network(network.architecture, network.weights, num_outputs=1, seed=seed, drop_head=True)
    drawn = load_network(network.architecture, RANDOM, num_outputs=1, seed=seed)
    last = domain_of(run.config).last
    body = {k: value for k, value in network_of(run).state_dict().items() if not k.startswith(f"{last}.")}
    with torch.no_grad():
        drawn.model.load_state_dict(body, strict=False)
    return replace(drawn, weights=f"{network.weights}, fine-tuned", sha256=network_hash(run))


def _images(samples: Samples, indices: NDArray[np.intp]) -> ImageSet:
    assert isinstance(samples, ImageSet)
    return samples.take(indices)


def _rows(run: Run, record: Record) -> list[Row]:
    """Two rows for each target: ProjNormLinear as defined, and the variant chosen on the probes, if there are any."""
    arrays = record.arrays
    names = arrays["variants"].tolist()
    chosen = {METHOD: str(PLAIN), TUNED: chosen_variant(record)}
    return [
        replace(Row.of(target, float(error), method, float(value)), m=int(size))
        for method, variant in chosen.items()
        if variant is not None
        for target, error, value, size in zip(
            data_of(run).targets,
            arrays["network_error"],
            arrays["variant_values"][names.index(variant)],
            arrays["sizes"],
            strict=True,
        )
    ]
