"""What the workers of a comparison do: train a stage, build a method, score a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from deep.comparison.config import MATCHED, PROJNORM_METHODS, references_of
from deep.comparison.methods import methods_of
from deep.comparison.runs import Run
from deep.comparison.scores import TargetScores
from deep.comparison.stages import projnorm_samples
from deep.comparison.trained_networks import networks_of
from projnorm.models.preparation import one_thread

T = TypeVar("T")
R = TypeVar("R")

# Cost of a forward pass, as a share of a training step, per sample.
_FORWARD = 0.15


@dataclass(frozen=True, slots=True)
class ScoringTask:
    """Methods to run on a target: all that need outputs only, or those that train on it.

    Attributes:
        target: Position of the target.
        methods: Names of the methods.
    """

    target: int
    methods: tuple[str, ...]

    @property
    def group(self) -> str:
        """Name of their entry; groups of outputs come first, so that a table without ProjNorm is there early."""
        return f"{'projnorm' if self.trains else 'outputs'}-{self.target:04d}"

    @property
    def trains(self) -> bool:
        """Whether the methods train on the target."""
        return self.methods[0] in PROJNORM_METHODS

    def units(self, run: Run) -> int:
        """Number of samples that pass through a training, each as often as it is seen, or as many as cost the same."""
        if self.trains:
            projnorm = run.config.projnorm
            trainings = 1 + (MATCHED in references_of(run.config).values())
            return trainings * projnorm.count_steps(projnorm_samples(run.config)) * projnorm.batch
        passes = 1 + ("AgreeScore" in self.methods) + 3 * ("Rotation" in self.methods)
        return int(_FORWARD * passes * run.config.data.m)


def scoring_tasks(run: Run) -> list[ScoringTask]:
    """The tasks of a run: for each target, methods that need only outputs, and methods that train."""
    methods, count = run.config.methods, len(networks_of(run).data.targets)
    groups = [tuple(m for m in methods if (m in PROJNORM_METHODS) == trains) for trains in (False, True)]
    return [ScoringTask(index, group) for group in groups if group for index in range(count)]


def unfinished_tasks(run: Run) -> list[ScoringTask]:
    """The tasks that are not finished, with those whose distances of ProjNorm were lost."""
    methods, targets = methods_of(run), networks_of(run).data.targets
    return [
        task
        for task in scoring_tasks(run)
        if not run.target_scores(task.group) or (task.trains and not methods.has_distances(targets[task.target]))
    ]


def train_stage(run: Run, stage: str) -> None:
    """Train one stage of a run, unless it is there."""
    networks_of(run).train_stage(stage)


def build_method(run: Run, method: str) -> None:
    """Build a method, with the networks that it trains for itself."""
    methods_of(run).estimator(method)


def score_target(run: Run, task: ScoringTask) -> TargetScores:
    """The scores of a target with some methods of a run."""
    networks, methods = networks_of(run), methods_of(run)
    target = networks.data.targets[task.target]
    outputs = networks.outputs(target.samples)
    if task.trains:
        distances = methods.distances(target)
        scores = {method: float(distances[method]["value"]) for method in task.methods}
    else:
        scores = {method: methods.estimator(method).score(outputs) for method in task.methods}
    return TargetScores.from_target(target, target.error(outputs.predicted), scores)


def validation_error(run: Run, _: None) -> float:
    """The error of the evaluated network on the held-out samples."""
    networks = networks_of(run)
    return networks.outputs(networks.data.validation).error


def on_own_threads(function: Callable[[Run, T], R], run: Run, item: T) -> R:
    """What `function` gives for an item, on one thread: processes beside each other share the cores."""
    with one_thread(run.context.device):
        return function(run, item)
