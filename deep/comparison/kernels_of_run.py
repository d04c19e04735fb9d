"""The paper's Section 4.3: ProjNormLinear on tangent kernels against the error of the fine-tuned network.

The kernels are those of the network before fine-tuning, as in the paper, or after it. Besides ProjNormLinear as it is
defined, every variant of `ntk.experiments.variants` is computed; one is chosen by its R^2 on the probe families
alone and reported on the others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from deep.comparison.analysis_config import NtkPredictConfig
from deep.comparison.comparison import finished_run
from deep.comparison.config import image_config
from deep.comparison.run_data import Samples
from deep.comparison.runs import KERNELS, Run
from deep.comparison.score_quality import Quality, quality
from deep.comparison.scores import Scores, TargetScores
from deep.comparison.trained_networks import networks_of
from ntk.experiments.analysis import Responses
from ntk.experiments.config import NtkConfig, NtkImages, NtkNetwork
from ntk.experiments.experiment import MEANINGS, KernelExperiment, analyse, analysis_arrays, facts
from ntk.experiments.networks import Networks
from ntk.experiments.variants import PLAIN, VARIANTS, KernelBlocks, variant_values
from ntk.tiles.kernels import Kernels
from projnorm.core.arrays import Arrays
from projnorm.core.errors import InputError
from projnorm.core.progress import tracked
from projnorm.core.records import Record, RunContext, begin_run, existing_record, finish_record, record_id
from projnorm.core.statistics import FitQuality, fit_quality, subsample_indices
from projnorm.data.image_settings import PROBE_FAMILIES, RANDOM
from projnorm.data.images import ImageSet
from projnorm.data.targets import CLEAN, Target
from projnorm.models.weights import LoadedNetwork, load_network

PREDICT_KIND = "deep-ntk"
METHOD, TUNED = "ProjNormLinear-NTK", "ProjNormLinear-NTK (tuned)"
_N = 1000
_MEANINGS = MEANINGS | {
    "network_error": "true error of the fine-tuned network on all images of each target",
    "variants": "ways to compute ProjNormLinear on the kernels",
    "variant_values": "its value, a row for each variant and a column for each target",
    "subsets": "smaller numbers of samples of the training set and of each target",
    "subset_values": "value of each variant on each target from each number of samples, (subset, variant, target)",
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


@dataclass(frozen=True, slots=True)
class SubsetQuality:
    """How well ProjNormLinear follows the error from fewer samples.

    Attributes:
        n: Number of training samples.
        m: Number of samples of each target.
        plain: ProjNormLinear as it is defined, with bootstrap intervals over families.
        chosen: The variant that is best on the probes at this size; None where none rises with the error there.
    """

    n: int
    m: int
    plain: Quality
    chosen: VariantQuality | None


def run_ntk_predict(config: NtkPredictConfig, context: RunContext) -> Record:
    """Kernels, analysis and variants on the targets of a comparison, whose table gets two more methods.

    Raises:
        InputError: If the comparison is not finished, its images or weights have changed, or something does not fit.
        OSError: If something cannot be read or written.
    """
    run, config = finished_run(config, context)
    context, inputs = run.context, {"network_sha256": networks_of(run).network_hash()}
    with context.store("").lock(record_id(PREDICT_KIND, config)):  # while tiles are read, nobody begins afresh
        record = existing_record(PREDICT_KIND, config, context, inputs)
        if record is None:
            started, experiment = time.perf_counter(), _experiment(config, run)
            task = experiment.task(context)
            folder = begin_run(PREDICT_KIND, config, context)
            kernels = task.run(folder / "tiles", fresh=context.fresh, backend=context.backend)
            arrays, warnings = _arrays(config, run, experiment, kernels)
            details = {**facts(experiment, kernels), "warnings": warnings, "inputs": inputs}
            details["run_config"] = run.config.to_json()
            record = finish_record(PREDICT_KIND, config, context, arrays, _MEANINGS, started=started, facts=details)
    run.put_scores(KERNELS, _target_scores(run, record))
    return record


def variant_qualities(record: Record, subset: int | None = None) -> list[VariantQuality]:
    """Every variant on the probe families, on the others and on all; the best on the probes first.

    `subset` is the position of one of the smaller numbers of samples, for values that were computed from these.
    """
    arrays = record.arrays
    values = arrays["variant_values"] if subset is None else arrays["subset_values"][subset]
    probes = np.isin(arrays["families"], (CLEAN, *PROBE_FAMILIES))
    truth = arrays["network_error"]
    rows = [
        VariantQuality(
            str(name),
            fit_quality(v[probes], truth[probes]),
            fit_quality(v[~probes], truth[~probes]),
            fit_quality(v, truth),
        )
        for name, v in zip(arrays["variants"], values, strict=True)
    ]
    return sorted(rows, key=lambda row: -np.nan_to_num(row.probes.r_squared) * (row.probes.spearman > 0))


def chosen_variant(record: Record, subset: int | None = None) -> VariantQuality | None:
    """The variant with the largest R^2 on the probes among those that rise with the error; None without probes."""
    best = variant_qualities(record, subset)[0]
    return best if best.probes.r_squared > 0 and best.probes.spearman > 0 else None


def subset_qualities(record: Record) -> list[SubsetQuality]:
    """The quality with each smaller number of samples and with all; empty if no smaller number was chosen."""
    arrays, rows = record.arrays, []
    plain = arrays["variants"].tolist().index(str(PLAIN))
    for subset, samples in enumerate(arrays["subsets"].tolist()):
        quality_of_plain = _quality(arrays, arrays["subset_values"][subset, plain])
        rows.append(SubsetQuality(samples, samples, quality_of_plain, chosen_variant(record, subset)))
    if rows:
        n, m = record.facts["settings"]["data"]["n"], int(arrays["sizes"].max())
        rows.append(SubsetQuality(n, m, _quality(arrays, arrays["variant_values"][plain]), chosen_variant(record)))
    return rows


def _quality(arrays: Arrays, values: NDArray[np.float64]) -> Quality:
    targets = {name: arrays[name] for name in ("targets", "families", "severities", "sizes")}
    scores = Scores(
        **targets,
        origins=arrays["families"],
        errors=arrays["network_error"],
        methods=(METHOD,),
        values=values[:, None],
    )
    return quality(scores, METHOD, rng=np.random.default_rng(0))


def _arrays(
    config: NtkPredictConfig, run: Run, experiment: KernelExperiment, kernels: Kernels
) -> tuple[Arrays, list[str]]:
    """The results, and warnings of the analysis."""
    train, analysed = analyse(experiment, kernels, top=config.top)
    values, errors, seed = [], [], run.config.seed
    networks = networks_of(run)
    both = list(zip(experiment.targets, networks.data.targets, strict=True))
    for target, whole in tracked(both, description="variants of ProjNormLinear", total=len(both)):
        predicted = networks.outputs(whole.samples).predicted
        errors.append(whole.error(predicted))
        blocks = KernelBlocks(kernels.train, kernels.ood_train(target.name), kernels.ood(target.name))
        chosen = subsample_indices(len(predicted), len(target.samples), seed)
        rows = []
        for size in config.subsets:
            first, few = np.arange(size), subsample_indices(len(predicted), size, seed)
            responses = Responses.from_labels(experiment.train.labels[first], experiment.classes)
            part = blocks.part(first, np.flatnonzero(np.isin(chosen, few)))
            rows.append(_variants(part, responses, predicted[few], train.accumulate))
        values.append([*rows, _variants(blocks, train.responses, predicted[chosen], train.accumulate)])
    by_target = np.moveaxis(np.array(values), 0, -1)
    arrays = analysis_arrays(experiment, train, analysed) | {
        "network_error": np.array(errors),
        "variants": np.array([str(variant) for variant in VARIANTS]),
        "variant_values": by_target[-1],
        "subsets": np.array(config.subsets, dtype=int),
        "subset_values": by_target[:-1],
    }
    return arrays, [f"{name}: {warning}" for name, target in analysed.items() for warning in target.warnings]


def _variants(blocks: KernelBlocks, responses: Responses, labels: NDArray[np.int64], accumulate: str) -> list[float]:
    """The value of each variant, with the labels that the network predicts on the target."""
    by_variant = variant_values(blocks, responses.train, responses.ood(labels), accumulate=accumulate)
    return [by_variant[variant] for variant in VARIANTS]


def _experiment(config: NtkPredictConfig, run: Run) -> KernelExperiment:
    """The comparison's images under kernels: the first `n`, which are in a drawn order, and `m` of each target."""
    c, data = image_config(run.config), networks_of(run).data
    n, m = config.n or min(_N, len(data.train)), config.m or c.data.m
    if not 2 <= n <= len(data.train) or m > c.data.m:
        raise InputError(
            f"`n` must be from 2 to {len(data.train):,} and `m` at most {c.data.m:,}, as in {config.run}; got {n:,} "
            f"and {m:,}."
        )
    if max(config.subsets, default=0) > min(n, m):
        raise InputError(f"`subsets` must be at most {min(n, m):,}; got {max(config.subsets):,}.")
    targets = [
        Target(t.name, t.family, t.severity, t.origin, _images(t.samples, subsample_indices(len(t.samples), m, c.seed)))
        for t in data.targets
    ]
    size = config.size or c.network.size
    network = NtkNetwork(c.network.architecture, c.network.weights, size, heads=config.heads, layers=config.layers)
    images = NtkImages(c.data.data, c.data.targets, c.data.families, c.data.severities, n, m)
    networks = Networks.on_images([_scalar_network(config, run, c.seed + head) for head in range(config.heads)], size)
    ntk_config = NtkConfig(images, network, kernel=config.kernel, seed=c.seed, top=config.top)
    return KernelExperiment(ntk_config, networks, _images(data.train, np.arange(n)), tuple(targets), data.classes)


def _scalar_network(config: NtkPredictConfig, run: Run, seed: int) -> LoadedNetwork:
    """The network with a random last layer of one output in place of its own."""
    network = image_config(run.config).network
    if config.body == "initial":
        return load_network(network.architecture, network.weights, num_outputs=1, seed=seed, drop_head=True)
    drawn = load_network(network.architecture, RANDOM, num_outputs=1, seed=seed)
    tuned = networks_of(run)
    last = tuned.modality.last
    body = {k: value for k, value in tuned.network().state_dict().items() if not k.startswith(f"{last}.")}
    with torch.no_grad():
        drawn.model.load_state_dict(body, strict=False)
    return replace(drawn, weights=f"{network.weights}, fine-tuned", sha256=tuned.network_hash())


def _images(samples: Samples, indices: NDArray[np.intp]) -> ImageSet:
    assert isinstance(samples, ImageSet)
    return samples.take(indices)


def _target_scores(run: Run, record: Record) -> list[TargetScores]:
    """Scores of each target: ProjNormLinear as defined, and the variant chosen on the probes, if there are any."""
    arrays, tuned = record.arrays, chosen_variant(record)
    variants = {METHOD: str(PLAIN)} | ({} if tuned is None else {TUNED: tuned.variant})
    position = {method: arrays["variants"].tolist().index(variant) for method, variant in variants.items()}
    parts = []
    for index, target in enumerate(networks_of(run).data.targets):
        scores = {method: float(arrays["variant_values"][row, index]) for method, row in position.items()}
        part = TargetScores.from_target(target, float(arrays["network_error"][index]), scores)
        parts.append(replace(part, m=int(arrays["sizes"][index])))
    return parts
