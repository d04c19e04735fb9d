"""The paper's Section 3.2 and appendix B: ProjNorm under other settings, on the network and targets of one run.

A setting is a run of its own that shares networks, outputs and pseudo-labels with the one it varies. What cannot be
shared is the training on pseudo-labels: the learning rate falls to zero over all T steps, so the first steps of a long
training are not a short one, and fewer samples make other batches.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from deep.config import RunConfig, TextConfig
from deep.domain import domain_of, image_config
from deep.estimators.projnorm import ProjNorm
from deep.experiments.comparison import open_run, run_comparison
from deep.ledger import Scores
from deep.stages import Workplace
from deep.training import Hardware
from projnorm.device import choose_device
from projnorm.runs import ONE_PROCESS, Backend, Record, find, new_record, record_id, save

SWEEP_KIND = "deep-sweep"
_SETTING_KIND = "deep-setting"
AS_RUN = "as in the run"
_PAPER_SHARES = {"steps": (1.0, 0.5, 0.2), "samples": (0.5, 0.2, 0.1, 0.05, 0.01), "rates": (0.5, 0.1)}
# No setting trains on fewer.
_FEWEST_SAMPLES = 20
_MEANINGS = {
    "settings": "what was varied and to what; the first as in the run",
    "varied": "which number was varied: T, m, lr, reference, labels, batch norm or layers",
    "values": "to what, as text",
    "runs": "name of the run of each setting",
    "targets": "name of each target set",
    "families": "shift that made it",
    "severities": "1 to 5; 0 where there is none",
    "origins": "'generated' here, 'official' files of CIFAR-C, 'clean', 'given', 'part' of a set, 'made' of templates",
    "sizes": "samples in it",
    "errors": "true error of the evaluated network on it",
    "scores": "ProjNorm on each target, a column a setting",
}


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """What to vary, one thing at a time.

    Attributes:
        run: Name of the comparison that is varied.
        steps: T.
        samples: Images of each target that ProjNorm sees; T is scaled with them, as in the paper, so that every image
            is seen equally often.
        rates: Learning rates.
        references: "trained" or "fine-tuned".
        labels: "pseudo" or "true".
        batch_norms: "batch" or "frozen".
        layers: Layers that are trained, joined by ``+``: the cheaper forms of ProjNorm.
    """

    run: str
    steps: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    references: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    batch_norms: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()

    @classmethod
    def like_the_paper(cls, run: str, base: RunConfig) -> SweepConfig:
        """The paper's settings, scaled to the sizes of the run, and its ablations."""
        steps = {max(1, round(share * base.steps)) for share in _PAPER_SHARES["steps"]}
        seen = base.projnorm_samples or base.m
        samples = {max(_FEWEST_SAMPLES, round(share * seen)) for share in _PAPER_SHARES["samples"]}
        return cls(
            run,
            steps=tuple(sorted(steps - {base.steps}, reverse=True)),
            samples=tuple(sorted((count for count in samples if count < seen), reverse=True)),
            rates=tuple(share * base.projnorm_lr for share in _PAPER_SHARES["rates"]),
            references=("fine-tuned",) if base.reference == "trained" else ("trained",),
            labels=_other_labels(base),
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """One column of the table.

    Attributes:
        varied: Which number.
        value: Its value, as text.
        config: The run.
    """

    varied: str
    value: str
    config: RunConfig

    def __str__(self) -> str:
        return f"{self.varied} = {self.value}" if self.varied else AS_RUN


def settings_of(sweep: SweepConfig, base: RunConfig) -> list[Setting]:
    """Every setting, the run's own first.

    Raises:
        ValueError: If a value is none.
    """
    if ProjNorm.name not in base.methods:
        raise ValueError(f"{sweep.run} did not compute ProjNorm; there is nothing to vary.")
    alone = replace(base, methods=(ProjNorm.name,))
    seen = base.projnorm_samples or base.m
    found = [Setting("", "", base)]
    found += [Setting("T", str(steps), _with_steps(alone, steps)) for steps in sweep.steps]
    for samples in sweep.samples:
        fewer = replace(alone, projnorm_samples=samples)
        found.append(Setting("m", str(samples), _with_steps(fewer, max(1, round(base.steps * samples / seen)))))
    found += [Setting("lr", f"{rate:g}", replace(alone, projnorm_lr=rate)) for rate in sweep.rates]
    found += [Setting("reference", which, replace(alone, reference=which)) for which in sweep.references]
    found += [Setting("labels", which, replace(alone, labels=which)) for which in sweep.labels]
    found += [
        Setting("batch norm", which, replace(image_config(alone), projnorm_batch_norm=which))
        for which in sweep.batch_norms
    ]
    found += [
        Setting("layers", which, replace(alone, projnorm_layers=tuple(which.split("+")))) for which in sweep.layers
    ]
    if len(found) == 1:
        raise ValueError("a sweep must vary something: T, m, learning rate, reference, labels, batch norm or layers.")
    if len({str(setting) for setting in found}) < len(found):
        raise ValueError(f"a sweep must name each setting once; got {', '.join(map(str, found))}.")
    return found


def run_sweep(
    sweep: SweepConfig,
    *,
    root: Path,
    backend: Backend = ONE_PROCESS,
    device: str = "auto",
    fresh: bool = False,
    announce: Callable[[str], None] = lambda _: None,
) -> Record:
    """Run every setting that was not run before, and put them side by side.

    Args:
        sweep: What to vary.
        root: Folder of the records.
        backend: Where stages and targets are computed.
        device: "auto", or a device that torch knows.
        fresh: Compute the settings again even where they are there; networks and the run itself stay.
        announce: Called with a line before each setting.

    Raises:
        ValueError: If there is no such run, a setting is none, or the run's inputs are not there or have changed.
        OSError: If something cannot be read or written.
    """
    start = time.perf_counter()
    choose_device(device)  # before anything is announced
    base, _ = open_run(root / sweep.run)
    settings = settings_of(sweep, base)
    for setting in settings:  # before any is computed
        if setting.config.labels == "true":
            domain_of(setting.config).load_data(cache=Workplace(base, root / sweep.run, Hardware()).cache)
    records = []
    for number, setting in enumerate(settings, start=1):
        announce(f"setting {number} of {len(settings)}: {setting}")
        kind = _SETTING_KIND if setting.varied else None
        if fresh and setting.varied:
            _forget(setting.config, root, device)
        records.append(run_comparison(setting.config, root=root, backend=backend, device=device, kind=kind))
        if not np.array_equal(records[-1].arrays["errors"], records[0].arrays["errors"]):
            raise ValueError(f"{records[-1].id} evaluates another network than {sweep.run}; run both with --fresh.")
    first = records[0].arrays
    arrays = {key: first[key] for key in ("targets", "families", "severities", "origins", "sizes", "errors")} | {
        "settings": np.array([str(setting) for setting in settings]),
        "varied": np.array([setting.varied for setting in settings]),
        "values": np.array([setting.value for setting in settings]),
        "runs": np.array([record.id for record in records]),
        "scores": np.column_stack([_projnorm(record) for record in records]),
    }
    asked: dict[str, Any] = {"sweep": asdict(sweep), "base": asdict(base)}
    known = None if fresh else find(root, SWEEP_KIND, asked)
    if known is not None and np.array_equal(known.arrays["scores"], arrays["scores"]):
        return known
    facts = {"inputs": records[0].facts["inputs"], "validation_error": records[0].facts["validation_error"]}
    record = new_record(SWEEP_KIND, asked, arrays, _MEANINGS, time.perf_counter() - start, facts)
    save(record, root)
    return record


def sweep_scores(record: Record) -> Scores:
    """The settings as if each were a method."""
    return Scores.of_arrays(record.arrays, methods="settings")


def _other_labels(base: RunConfig) -> tuple[str, ...]:
    """The ablation with true labels; of text only if asked for, as sets with two labels have none to train on."""
    if base.labels == "true":
        return ("pseudo",)
    return () if isinstance(base, TextConfig) else ("true",)


def _forget(config: RunConfig, root: Path, device: str) -> None:
    """The values of a setting, not the networks it shares."""
    folder = root / record_id(_SETTING_KIND, asdict(config))
    work = Workplace(config, folder, Hardware(str(choose_device(device))))
    for stale in (folder, work.projnorms):
        shutil.rmtree(stale, ignore_errors=True)


def _with_steps(base: RunConfig, steps: int) -> RunConfig:
    return replace(base, steps=steps, trajectory=tuple(step for step in base.trajectory if step <= steps))


def _projnorm(record: Record) -> np.ndarray:
    return record.arrays["scores"][:, record.arrays["methods"].tolist().index(ProjNorm.name)]
