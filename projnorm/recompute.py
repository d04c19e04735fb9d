"""Records made again: for every kind, how to run from a record's configuration alone what it is the record of.

Heavy libraries are imported where they are needed, so that records of the theory do not need torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm import __version__
from projnorm.runs import ONE_PROCESS, Backend, Record, load, record_id
from projnorm.runs.configuration import configuration
from projnorm.verification import changed_inputs, flat_facts

if TYPE_CHECKING:
    from deep.config import RunConfig


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a record is made again.

    Attributes:
        root: Folder for everything that is computed; the record's own is not written to.
        beside: Folder of the records among which it stands: the run that it is about is described there.
        backend: Where tasks run.
        device: "auto", or a device that torch knows; None for that of the record.
        announce: Told in a line what comes next, where a record needs more than one step.
    """

    root: Path
    beside: Path
    backend: Backend = ONE_PROCESS
    device: str | None = None
    announce: Callable[[str], None] = lambda _: None


def recompute(record: Record, bench: Bench) -> Record:
    """The same record made again.

    Raises:
        ValueError: If it was made by another version or is of a kind that is not known here, or if data or weights are
            not there or have changed.
        OSError: If something cannot be read or written.
    """
    if (version := record.environment.get("projnorm")) != __version__:
        raise ValueError(
            f"{record.id} was made by projnorm {version}; this is {__version__}, whose numbers may differ."
        )
    if record.kind not in KINDS:
        raise ValueError(f"{record.id} is of the kind {record.kind!r}; this version knows {', '.join(KINDS)}.")
    made = KINDS[record.kind](record, bench)
    _require_unchanged(record.id, record.facts, made.facts)
    return made


def _toy(record: Record, bench: Bench) -> Record:
    from simulations.toy import ToyConfig, run_toy

    return run_toy(configuration(ToyConfig, record.config), root=bench.root, backend=bench.backend)


def _bound(record: Record, bench: Bench) -> Record:
    from simulations.bound_check import BoundConfig, run_bound_check

    return run_bound_check(configuration(BoundConfig, record.config), root=bench.root, backend=bench.backend)


def _counterexample(record: Record, bench: Bench) -> Record:
    from simulations.counterexample import CounterexampleConfig, run_counterexample

    config = configuration(CounterexampleConfig, record.config)
    return run_counterexample(config, root=bench.root, backend=bench.backend)


def _tail_angle(record: Record, bench: Bench) -> Record:
    from simulations.tail_angle import TailAngleConfig, run_tail_angle

    return run_tail_angle(configuration(TailAngleConfig, record.config), root=bench.root, backend=bench.backend)


def _spectra(record: Record, bench: Bench) -> Record:
    from simulations.spectra_example import SpectraConfig, run_spectra_example

    return run_spectra_example(configuration(SpectraConfig, record.config), root=bench.root, backend=bench.backend)


def _ntk_gram(record: Record, bench: Bench) -> Record:
    from ntk.experiment import NtkConfig, run_kernels

    config = configuration(NtkConfig, record.config)
    return run_kernels(config, root=bench.root, backend=bench.backend, device=_device(bench, record.facts))[2]


def _ntk(record: Record, bench: Bench) -> Record:
    from ntk.experiment import NtkConfig, run_analysis

    config = configuration(NtkConfig, record.config)
    return run_analysis(config, root=bench.root, backend=bench.backend, device=_device(bench, record.facts))


def _ntk_subsample(record: Record, bench: Bench) -> Record:
    from ntk.subsample import SubsampleConfig, run_subsample

    # What the configuration names besides, the exact kernel and its inputs, follows from the rest.
    config = configuration(SubsampleConfig, _without(record.config, "exact", "inputs"))
    return run_subsample(config, root=bench.root, backend=bench.backend, device=_device(bench, record.facts))


def _deep(record: Record, bench: Bench) -> Record:
    return _comparison(record.kind, record.config, record.facts, bench)


def _deep_sweep(record: Record, bench: Bench) -> Record:
    from deep.experiments.sweep import SweepConfig, run_sweep

    sweep = configuration(SweepConfig, _part(record, "sweep"))
    facts = _run_beneath(sweep.run, _part(record, "base"), bench)
    return run_sweep(
        sweep, root=bench.root, backend=bench.backend, device=_device(bench, facts), announce=bench.announce
    )


def _deep_ntk(record: Record, bench: Bench) -> Record:
    from deep.experiments.ntk_predict import NtkPredictConfig, run_ntk_predict

    names = ("run", "n", "m", "body", "heads", "layers", "size", "top")
    config = configuration(NtkPredictConfig, {name: record.config[name] for name in names if name in record.config})
    known = _beside(config.run, bench)
    if known is None:
        raise ValueError(f"the record is about {config.run}, which is not in {bench.beside}.")
    facts = _run_beneath(config.run, known.config, bench)
    return run_ntk_predict(config, root=bench.root, backend=bench.backend, device=_device(bench, facts))


def _deep_adversarial(record: Record, bench: Bench) -> Record:
    from deep.experiments.adversarial import AdversarialConfig, run_adversarial

    config = configuration(AdversarialConfig, _without(record.config, "network_sha256", "run_config"))
    facts = _run_beneath(config.run, _part(record, "run_config"), bench)
    return run_adversarial(config, root=bench.root, backend=bench.backend, device=_device(bench, facts))


def _deep_label_shift(record: Record, bench: Bench) -> Record:
    from deep.experiments.label_shift import LabelShiftConfig, run_label_shift

    config = configuration(LabelShiftConfig, _without(record.config, "network_sha256", "run_config"))
    facts = _run_beneath(config.run, _part(record, "run_config"), bench)
    return run_label_shift(config, root=bench.root, backend=bench.backend, device=_device(bench, facts))


def _deep_small_samples(record: Record, bench: Bench) -> Record:
    from deep.experiments.small_samples import SmallSamplesConfig, run_small_samples

    config = configuration(SmallSamplesConfig, _part(record, "small_samples"))
    facts = _run_beneath(config.run, _part(record, "run_config"), bench)
    return run_small_samples(config, root=bench.root, backend=bench.backend, device=_device(bench, facts))


KINDS: Mapping[str, Callable[[Record, Bench], Record]] = {
    "toy": _toy,
    "bound": _bound,
    "counterexample": _counterexample,
    "tail-angle": _tail_angle,
    "spectra": _spectra,
    "ntk-gram": _ntk_gram,
    "ntk": _ntk,
    "ntk-subsample": _ntk_subsample,
    "deep": _deep,
    "deep-text": _deep,
    "deep-setting": _deep,
    "deep-sweep": _deep_sweep,
    "deep-ntk": _deep_ntk,
    "deep-adversarial": _deep_adversarial,
    "deep-label-shift": _deep_label_shift,
    "deep-small-samples": _deep_small_samples,
}


def _run_beneath(run: str, config: Mapping[str, Any], bench: Bench) -> Mapping[str, Any]:
    """Make the run that a record is about; returns the facts of the first, as far as they stand beside the record.

    Raises:
        ValueError: If this is not the configuration of that run, or its inputs have changed.
    """
    kind = run.rpartition("-")[0]
    if record_id(kind, config) != run:
        raise ValueError(f"this is not the configuration of {run}; the record cannot be made again from it.")
    bench.announce(f"{run}, which the record is about, is computed again first")
    known = _beside(run, bench)
    facts = {} if known is None else known.facts
    _comparison(kind, config, facts, bench)
    return facts


def _beside(run: str, bench: Bench) -> Record | None:
    try:
        return load(bench.beside / run)
    except FileNotFoundError:
        return None


def _comparison(kind: str, document: Mapping[str, Any], facts: Mapping[str, Any], bench: Bench) -> Record:
    """A comparison made again, its data and weights looked at before anything is trained."""
    from deep.config import DeepConfig, TextConfig
    from deep.experiments.comparison import run_comparison

    # The settings of a sweep are one or the other; only one has an architecture.
    config = configuration(DeepConfig if "architecture" in document else TextConfig, document)
    device = _device(bench, facts)
    _require_unchanged(record_id(kind, document), facts, {"inputs": _inputs(config, kind, bench, device)})
    return run_comparison(
        config,
        root=bench.root,
        backend=bench.backend,
        device=device,
        compiled=bool(facts.get("compiled", False)),
        kind=kind,
    )


def _inputs(config: RunConfig, kind: str, bench: Bench, device: str) -> dict[str, str]:
    from deep.stages import Workplace
    from deep.training import Hardware
    from projnorm.device import choose_device

    work = Workplace(config, bench.root / record_id(kind, asdict(config)), Hardware(str(choose_device(device))))
    return {"data_sha256": work.data.sha256, "weights_sha256": work.initial().sha256}


def _require_unchanged(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if changed := changed_inputs(before, now):
        said = f"{', '.join(changed)} of {name} are not what they were: their hashes differ"
        raise ValueError(f"{said}; the record cannot be made again from these.")


def _device(bench: Bench, facts: Mapping[str, Any]) -> str:
    return bench.device or str(flat_facts(facts).get("device", "auto"))


def _part(record: Record, name: str) -> Mapping[str, Any]:
    part = record.config.get(name)
    if not isinstance(part, Mapping):
        raise ValueError(f"the configuration of {record.id} has no {name!r}.")
    return part


def _without(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in names}
