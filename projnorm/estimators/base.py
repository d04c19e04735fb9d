"""What an estimator is, what it may need, and how a class becomes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from projnorm.core.errors import InputError
from projnorm.outputs.outputs import Outputs, require_valid

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

# What a method may need, as a message says it.
NEEDS = {
    "torch": "torch: pip install '.[nn]' in a clone of the project",
    "labels": "labels",
    "features": "features, the inputs of the last layer",
    "second": "outputs of a second model",
    "others": "outputs of two more models",
    "network": "the network",
    "initial": "the network and its initial weights",
    "second network": "a second network",
    "inputs": "inputs of one shape",
    "table": "inputs that are a table of numbers",
}


@dataclass(frozen=True, eq=False)
class Resources:
    """What an estimator may be built from besides outputs; most need nothing of it.

    Attributes:
        seed: Seed of everything that a method draws.
        samples: Number of samples of each set that ProjNorm trains on; 0 for all.
        network: The evaluated network.
        last: Name of its last layer.
        initial: The same network with the weights that fine-tuning began with.
        prepare: Function applied to every batch of inputs before a network.
        device: Device that networks run on.
        recipe: Training of ProjNorm; chosen after the number of samples by default.
        labels: Labels that ProjNorm trains on: "pseudo", or "true" for the ablation.
        trajectory: Steps after which ProjNorm records the distance too.
        trained: Functions that return what was trained elsewhere, called by the method that needs it: "second", a
            second network; "head", a rotation head; "reference", parameters that ProjNorm compares with.
    """

    seed: int = 0
    samples: int = 0
    network: nn.Module | None = None
    last: str | None = None
    initial: nn.Module | None = None
    prepare: Prepare | None = None
    device: str = "cpu"
    recipe: Recipe | None = None
    labels: str = "pseudo"
    trajectory: tuple[int, ...] = ()
    trained: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


class _NotLearnt:
    """The value of a field that `fit` has not filled in."""

    def __repr__(self) -> str:
        return "not learnt yet"


# Default of the fields that `fit` fills in.
LEARNT: Any = _NotLearnt()


@dataclass(frozen=True, eq=False)
class Estimator:
    """A method that predicts the error of a model on unlabelled data.

    >>> from projnorm.estimators import AC
    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(AC().fit(source).score(target), 3)
    0.268

    A subclass is decorated with `register`, which makes it a frozen dataclass; its fields are options and values learnt
    by `fit`. It declares what it needs and what its score means, and writes `_score`, and `_fit` where it learns
    something.

    Attributes:
        name: Name of the method, as in tables.
        direction: "up" if a larger score means more error, "down" if less.
        is_error: Whether the score is itself an error between 0 and 1.
        needs: What it needs besides logits, of the keys of `NEEDS`; labels are those of the source.
        costly: Whether it trains on every set, or passes it through a network again; such methods run when named.
        source_classes: Number of classes of the source, set by `fit`; 0 before.
    """

    name: ClassVar[str]
    direction: ClassVar[str] = "up"
    is_error: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset()
    costly: ClassVar[bool] = False
    source_classes: int = field(default=0, kw_only=True, repr=False)

    @classmethod
    def create(cls, resources: Resources) -> Self:
        """An estimator that has learnt nothing yet; fields that `resources` has too are taken from there."""
        names = {declared.name for declared in fields(cls)}
        shared = names & {declared.name for declared in fields(resources)}
        taken = {name: getattr(resources, name) for name in shared}
        return cls(**taken, **{name: get() for name, get in resources.trained.items() if name in names})

    @classmethod
    def lacking(cls, outputs: Outputs, resources: Resources | None = None) -> str:
        """What the method needs that is not there, in words; empty if it can be run.

        `outputs` are those that it would see, and `resources` what it would be built from; None once it is built.
        """
        return _first_unmet(cls.needs, outputs, resources)

    def fit(self, source: Outputs) -> Self:
        """The estimator with what it learns from labelled in-distribution samples.

        Args:
            source: Outputs of the model on these samples, with their labels.

        Raises:
            InputError: If the source is no valid `Outputs`, or lacks something that the method needs.
        """
        require_valid(source, "source", with_labels=True)
        if lack := self.lacking(source):
            raise InputError(f"{self.name} needs {lack}; {source.name or 'the source'} has none.")
        return replace(self._fit(source), source_classes=source.classes)

    def score(self, target: Outputs) -> float:
        """The score of a target, whose labels are not looked at.

        Args:
            target: Outputs of the model on the target.

        Raises:
            InputError: If it was not fitted, or the target is no valid `Outputs`, has another number of classes than
                the source, or lacks something that the method needs.
        """
        require_valid(target, "target", with_labels=False)
        if not all(self._has_learnt(declared.name) for declared in fields(self)):
            raise InputError(f"{self.name} has learnt nothing yet; call fit(source) first and use what it returns.")
        name = target.name or "the target"
        if self.source_classes not in (0, target.classes):
            raise InputError(
                f"{name}: must have the {self.source_classes} classes of the source; got {target.classes}."
            )
        if lack := self._lacking_in(target):
            raise InputError(f"{self.name} needs {lack}; {name} has none.")
        return self._score(target)

    def score_unchecked(self, target: Outputs) -> float:
        """The score of a `target` whose outputs are known to be valid; `score` checks them."""
        return self._score(target)

    def applies_to(self, target: Outputs) -> bool:
        """Whether the outputs on a `target` include everything that the method needs."""
        return not self._lacking_in(target)

    def _lacking_in(self, target: Outputs) -> str:
        """What a target, whose labels are not looked at, does not have; empty if it lacks nothing."""
        return _first_unmet(self.needs - {"labels"}, target, None)

    def _has_learnt(self, name: str) -> bool:
        """Whether a field has its value."""
        return not isinstance(getattr(self, name), _NotLearnt)

    def _fit(self, source: Outputs) -> Self:  # noqa: ARG002 - nothing is learnt by default
        return self

    def _score(self, target: Outputs) -> float:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class SupervisedEstimator(Estimator):
    """A method that learns from labelled samples and whose score is an error."""

    is_error = True
    needs = frozenset({"labels"})


# Classes of the methods that have been imported, by name; `ESTIMATORS` of the registry has all of them.
REGISTERED: dict[str, type[Estimator]] = {}
T = TypeVar("T", bound=type[Estimator])


@dataclass_transform(frozen_default=True, eq_default=False)
def register(cls: T) -> T:
    """Make a class a frozen dataclass and a method of `ESTIMATORS`, under its `name`."""
    dataclass(frozen=True, eq=False)(cls)
    known = next((method for name, method in REGISTERED.items() if name.lower() == cls.name.lower()), None)
    if known is not None and known.__qualname__ != cls.__qualname__:
        raise InputError(f"there is already an estimator called {cls.name}.")
    REGISTERED[cls.name] = cls
    return cls


def has_torch() -> bool:
    """Whether torch is installed; it is not imported for the question."""
    try:
        return find_spec("torch") is not None
    except ModuleNotFoundError:  # from an import hook
        return False


def _is_table(inputs: Any) -> bool:
    """Whether inputs have one row of numbers for each sample."""
    return isinstance(inputs, np.ndarray) and inputs.ndim == 2 and inputs.dtype.kind in "fiub"


def _first_unmet(needs: frozenset[str], outputs: Outputs, resources: Resources | None) -> str:
    """The first of the needs that is not met, in words; empty if all are."""
    return next((NEEDS[need] for need in NEEDS if need in needs and not _is_met(need, outputs, resources)), "")


def _is_met(need: str, outputs: Outputs, resources: Resources | None) -> bool:
    if need == "torch":
        return has_torch()
    if need in ("network", "initial", "second network"):
        if resources is None:
            return True
        return "second" in resources.trained if need == "second network" else getattr(resources, need) is not None
    if need == "table":
        return _is_table(outputs.inputs)
    if need in ("second", "others"):
        return len(outputs.others) >= (1 if need == "second" else 2)
    return getattr(outputs, need) is not None
