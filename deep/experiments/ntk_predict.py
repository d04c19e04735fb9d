"""The paper's Section 4.3: ProjNormLinear on tangent kernels against the error of the fine-tuned network.

The kernels are those of the network before fine-tuning, as in the paper, or after it. Besides ProjNormLinear as it is
defined, every variant of `ntk.variants` is computed; one is chosen by its R^2 on the probe families alone and reported
on the others.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deep.checkpoints import checkpoint_hash
from deep.domain import image_config
from deep.experiments.comparison import finished_run
from deep.ledger import Ledger, Row, write_rows
from deep.samples import Samples, few_indices
from deep.stages import NETWORK, Workplace, network_of, outputs_of
from ntk.analysis import Responses
from ntk.experiment import MEANINGS, Experiment, NtkConfig, analyse, analysis_arrays, facts
from ntk.variants import PLAIN, VARIANTS, Blocks, variant_values
from projnorm.fit_quality import FitQuality, fit_quality
from projnorm.progress import tracked
from projnorm.runs import ONE_PROCESS, Backend, Record, find, new_record, record_id, save, sole_writer
from projnorm.vision import PROBE_FAMILIES, ImageSet, LoadedNetwork, load_network
from projnorm.vision.targets import CLEAN, Target as ImageTarget
from projnorm.vision.weights import RANDOM

PREDICT_KIND = "deep-ntk"
KERNEL_ROWS = "ntk.jsonl"
METHOD, TUNED = "ProjNormLinear-NTK", "ProjNormLinear-NTK (tuned)"
BODIES = ("initial", "fine-tuned")
_N = 1000


@dataclass(frozen=True, slots=True)
class NtkPredictConfig:
    """Which kernels.

    Attributes:
        run: Name of the comparison whose network and targets are used.
        n: Training images; 0 for 1000, or all there are.
        m: Images of each target; 0 for all.
        body: Weights under the drawn scalar head: "initial" as in the paper, or "fine-tuned".
        heads: Last layers drawn, over which the kernel is averaged.
        layers: Gradients by the parameters of these modules only; by all where there is none.
        size: Pixels that the kernel's network sees; 0 for those of the comparison.
        top: Eigenvectors in the alignment.
    """

    run: str
    n: int = 0
    m: int = 0
    body: str = "initial"
    heads: int = 1
    layers: tuple[str, ...] = ()
    size: int = 0
    top: int = 300

    def __post_init__(self) -> None:
        """Refuse what no kernel can be made of."""
        if self.body not in BODIES:
            raise ValueError(f"`body` must be one of {', '.join(BODIES)}; got {self.body!r}.")
        for name, least in (("n", 0), ("m", 0), ("size", 0), ("heads", 1), ("top", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}; got {getattr(self, name)}.")


@dataclass(frozen=True, slots=True)
class VariantQuality:
    """How well a variant follows the error of the network.

    Attributes:
        variant: As text.
        probes: On the families the choice is made on, and the clean set.
        others: On the other families.
        all: On all targets.
    """

    variant: str
    probes: FitQuality
    others: FitQuality
    all: FitQuality


def run_ntk_predict(
    config: NtkPredictConfig,
    *,
    root: Path,
    backend: Backend = ONE_PROCESS,
    device: str = "auto",
    memory: float = 4e9,
    fresh: bool = False,
) -> Record:
    """Kernels, analysis and variants on the targets of a comparison, whose table gets two more methods.

    Raises:
        ValueError: If the comparison is not finished, its images or weights have changed, or something does not fit.
        OSError: If something cannot be read or written.
    """
    folder = root / config.run
    work, _ = finished_run(folder, device)
    experiment = _experiment(config, work)
    asked = asdict(experiment.config) | {"run": config.run, "body": config.body}
    network = checkpoint_hash(work.stage(NETWORK))
    found = None if fresh else find(root, PREDICT_KIND, asked)
    if found is None or found.facts["network_sha256"] != network:
        again = fresh or found is not None
        with sole_writer(root / record_id(PREDICT_KIND, asked)):  # while tiles are read, nobody begins afresh
            found = _computed(experiment, work, root, asked, backend=backend, memory=memory, fresh=again)
    write_rows(folder / KERNEL_ROWS, _rows(work, found))
    return found


def kernel_rows(folder: Path) -> list[Row]:
    """What `run_ntk_predict` last found for the table of a run; nothing if it was never called."""
    return Ledger(folder / KERNEL_ROWS).rows


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


def _computed(
    experiment: Experiment,
    work: Workplace,
    root: Path,
    asked: dict[str, Any],
    *,
    backend: Backend,
    memory: float,
    fresh: bool,
) -> Record:
    start = time.perf_counter()
    kernel = experiment.kernel_config(memory=memory, device=work.hardware.device)
    tiles = root / record_id(PREDICT_KIND, asked) / "tiles"
    kernels = experiment.kernels(kernel, folder=tiles, fresh=fresh, backend=backend)
    train, analysed = analyse(experiment, kernels)
    responses = Responses.of(experiment.train.labels, experiment.classes)
    accumulate = experiment.config.accumulate
    values = []
    for target in tracked(experiment.targets, description="variants", total=len(experiment.targets)):
        labels = _predicted(work, target)
        labels = labels[few_indices(len(labels), len(target.images), work.config.seed)]
        blocks = Blocks(kernels.train, kernels.ood_train(target.name), kernels.ood(target.name))
        found = variant_values(blocks, responses.train, responses.ood(labels), accumulate=accumulate)
        values.append([found[variant] for variant in VARIANTS])
    errors = [target.error(outputs_of(work, target.samples).predicted) for target in work.data.targets]
    arrays = analysis_arrays(experiment, train, analysed) | {
        "network_error": np.array(errors),
        "variants": np.array([str(variant) for variant in VARIANTS]),
        "variant_values": np.array(values).T,
    }
    meanings = MEANINGS | {
        "network_error": "true error of the fine-tuned network on all images of each target",
        "variants": "ways to compute ProjNormLinear on the kernels",
        "variant_values": "its value, a row a variant and a column a target",
    }
    warnings = [f"{name}: {warning}" for name, target in analysed.items() for warning in target.warnings]
    said = {**facts(experiment, kernels), "warnings": warnings, "network_sha256": checkpoint_hash(work.stage(NETWORK))}
    record = new_record(PREDICT_KIND, asked, arrays, meanings, time.perf_counter() - start, said)
    save(record, root)
    return record


def _experiment(config: NtkPredictConfig, work: Workplace) -> Experiment:
    """The comparison's images under kernels: the first `n`, which are in a drawn order, and `m` of each target."""
    c, data = image_config(work.config), work.data
    n, m = config.n or min(_N, len(data.train)), config.m or c.m
    if not 2 <= n <= len(data.train) or m > c.m:
        raise ValueError(
            f"`n` must be from 2 to {len(data.train):,} and `m` at most {c.m:,}, as in {config.run}; got {n:,} and "
            f"{m:,}."
        )
    targets = [
        ImageTarget(t.name, t.family, t.severity, t.origin, _images(t.samples, few_indices(len(t.samples), m, c.seed)))
        for t in data.targets
    ]
    ntk_config = NtkConfig(
        data=c.data,
        targets=c.targets,
        n=n,
        m=m,
        families=c.families,
        severities=c.severities,
        architecture=c.architecture,
        weights=c.weights,
        size=config.size or c.size,
        heads=config.heads,
        layers=config.layers,
        top=config.top,
        seed=c.seed,
    )
    networks = tuple(_scalar_network(config, work, c.seed + head) for head in range(config.heads))
    return Experiment(ntk_config, networks, _images(data.train, np.arange(n)), tuple(targets), data.classes)


def _scalar_network(config: NtkPredictConfig, work: Workplace, seed: int) -> LoadedNetwork:
    """The body under a drawn head with one output."""
    c = image_config(work.config)
    if config.body == "initial":
        return load_network(c.architecture, c.weights, num_outputs=1, seed=seed, drop_head=True)
    drawn = load_network(c.architecture, RANDOM, num_outputs=1, seed=seed)
    tuned = network_of(work).state_dict()
    body = {name: value for name, value in tuned.items() if not name.startswith(f"{work.last}.")}
    with torch.no_grad():
        drawn.model.load_state_dict(body, strict=False)
    return replace(drawn, weights=f"{c.weights}, fine-tuned", sha256=checkpoint_hash(work.stage(NETWORK)))


def _images(samples: Samples, indices: NDArray[np.intp]) -> ImageSet:
    assert isinstance(samples, ImageSet)
    return samples.take(indices)


def _predicted(work: Workplace, target: ImageTarget) -> NDArray[np.int64]:
    """The evaluated network's labels of all images of a target, from the comparison's outputs."""
    samples = next(t.samples for t in work.data.targets if t.name == target.name)
    return outputs_of(work, samples).predicted


def _rows(work: Workplace, record: Record) -> list[Row]:
    """Two rows a target: ProjNormLinear as defined, and the variant chosen on the probes, if there are any."""
    arrays = record.arrays
    names = arrays["variants"].tolist()
    chosen = {METHOD: str(PLAIN), TUNED: chosen_variant(record)}
    return [
        replace(Row.of(target, float(error), method, float(value)), m=int(size))
        for method, variant in chosen.items()
        if variant is not None
        for target, error, value, size in zip(
            work.data.targets,
            arrays["network_error"],
            arrays["variant_values"][names.index(variant)],
            arrays["sizes"],
            strict=True,
        )
    ]
