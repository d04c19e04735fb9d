"""Options of an estimate, declared once for the functions, the fitted estimator, its file and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from projnorm.core.errors import InputError
from projnorm.estimate.settings import ANY, EstimateSettings
from projnorm.estimators.base import has_torch
from projnorm.estimators.registry import ESTIMATORS
from projnorm.models.batches import Collate
from projnorm.models.classifiers import is_network

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

DEFAULT, CHEAP, ALL = "default", "cheap", "all"
# With outputs of another model at hand it is GDE.
_NOT_OFFERED = frozenset({"AgreeScore"})


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimateOptions(EstimateSettings):
    """Options of an estimate, as `estimate_error` describes them.

    Attributes:
        shift: What is known of the shift: "any", "classes" or "inputs".
        level: Level of the intervals.
        seed: Seed of everything that is drawn.
        class_shares: Share of each class in the targets, where it is known.
        methods: "default", "cheap", "all", or names of methods.
        calibration: "auto", "none", or labelled shifted sets by name.
        device: Device that networks of torch run on.
        prepare: Function from a batch of inputs to what a network takes.
        init: The network with its initial weights, for ProjNorm; or a pair of it and a `Recipe`.
        others: More models of the same classes, for GDE and ALine.
        collate: Function from a list of samples to a batch.
    """

    class_shares: Sequence[float] | Mapping[Any, float] | None = None
    methods: str | Sequence[str] = DEFAULT
    calibration: str | Mapping[str, Any] = "auto"
    device: str = "auto"
    prepare: Prepare | None = None
    init: nn.Module | tuple[nn.Module, Recipe] | None = None
    others: Sequence[Any] = ()
    collate: Collate | None = None

    def __post_init__(self) -> None:
        """Refuse options that are wrong by themselves or do not fit together."""
        values = {field.name: getattr(self, field.name) for field in fields(EstimateSettings)}
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
        checked = EstimateSettings(**plain)
        for name in plain:
            object.__setattr__(self, name, getattr(checked, name))
        if not isinstance(self.calibration, Mapping) and str(self.calibration) not in ("auto", "none"):
            is_text = isinstance(self.calibration, str)
            shown = repr(self.calibration) if is_text else type(self.calibration).__name__
            raise InputError(f"`calibration` must be auto, none, or labelled sets by name; got {shown}.")
        if self.based_on is not None and (self.shift != ANY or self.class_shares is not None):
            raise InputError("`shift` and `class_shares` are for the default; leave them out, or `methods`.")

    @property
    def based_on(self) -> tuple[str, ...] | None:
        """Named methods that the estimate is made of; None where none are named and the tests of the shift decide."""
        if isinstance(self.methods, str) and self.methods.lower() in (DEFAULT, CHEAP, ALL):
            return None
        return _named_methods(self.methods)

    @property
    def methods_to_run(self) -> tuple[str, ...]:
        """Methods that are run for comparison, or because they are named; none by default."""
        if not isinstance(self.methods, str) or self.methods.lower() not in (DEFAULT, CHEAP, ALL):
            return _named_methods(self.methods)
        if self.methods.lower() == DEFAULT:
            return ()
        is_all = self.methods.lower() == ALL
        return tuple(name for name in offered_methods() if is_all or not ESTIMATORS[name].costly)


def offered_methods() -> tuple[str, ...]:
    """Names of all methods that an estimate can be asked for; none is imported for the question."""
    return tuple(name for name in ESTIMATORS if name not in _NOT_OFFERED)


def one_thread_for(model: Any, options: EstimateOptions) -> AbstractContextManager[Any]:
    """One thread on the CPU, so that numbers do not depend on the machine; of torch too, where it is used."""
    uses_torch = is_network(model) or any("torch" in ESTIMATORS[name].needs for name in options.methods_to_run)
    if not uses_torch or not has_torch():
        return threadpool_limits(1)
    from projnorm.models.preparation import one_thread

    return one_thread(device_of(model, options.device))


def device_of(model: Any, device: str) -> str:
    """The device of a network of torch; the CPU for any other model."""
    if not is_network(model):
        if device not in ("auto", "cpu"):
            raise InputError(f"`device` {device!r} needs `model` to be a network of torch.")
        return "cpu"
    from projnorm.core.device import choose_device

    return str(choose_device(device))


def _named_methods(methods: str | Sequence[str]) -> tuple[str, ...]:
    """The names of methods as they are registered, for names in upper or lower case."""
    registered = {name.lower(): name for name in offered_methods()}
    named = (methods,) if isinstance(methods, str) else tuple(methods)
    for name in named:
        if name.lower() not in registered:
            offered = ", ".join(registered.values())
            raise InputError(f"`methods` must be default, cheap, all, or of {offered}; got {name!r}.")
    names = tuple(registered[name.lower()] for name in named)
    if not names or len(set(names)) < len(names):
        raise InputError("`methods` must name at least one method, each once.")
    return names
