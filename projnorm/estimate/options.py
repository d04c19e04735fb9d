"""Options of an estimate: what they may be, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypedDict

from threadpoolctl import threadpool_limits

from projnorm.core.errors import InputError
from projnorm.estimate.fitted_source import offered_methods
from projnorm.estimators.base import has_torch
from projnorm.estimators.registry import ESTIMATORS
from projnorm.models.batches import Collate
from projnorm.models.classifiers import is_network

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

SHIFTS = ("any", "classes", "inputs")


class EstimateOptions(TypedDict, total=False):
    """Options of `estimate_error` and `estimate_errors`, which describes them."""

    shift: str
    class_shares: Sequence[float] | Mapping[Any, float] | None
    methods: str | Sequence[str]
    calibration: str | Mapping[str, Any]
    level: float
    seed: int
    device: str
    prepare: Prepare | None
    init: nn.Module | tuple[nn.Module, Recipe] | None
    others: Sequence[Any]
    collate: Collate | None
    metrics: bool


def check_options(options: EstimateOptions) -> None:
    """Refuse options that are wrong by themselves."""
    level, seed, shift = options.get("level", 0.9), options.get("seed", 0), options.get("shift", "any")
    calibration = options.get("calibration", "auto")
    if not 0.0 < level < 1.0:
        raise InputError(f"`level` must be above 0 and below 1; got {level}.")
    if seed < 0:
        raise InputError(f"`seed` must be at least 0; got {seed}.")
    if shift not in SHIFTS:
        raise InputError(f"`shift` must be one of {', '.join(SHIFTS)}; got {shift!r}.")
    if not isinstance(calibration, Mapping) and str(calibration) not in ("auto", "none"):
        shown = repr(calibration) if isinstance(calibration, str) else type(calibration).__name__
        raise InputError(f"`calibration` must be auto, none, or labelled sets by name; got {shown}.")
    _, wanted = asked_methods(options.get("methods", "default"))
    if wanted is not None and (shift != "any" or options.get("class_shares") is not None):
        raise InputError("`shift` and `class_shares` are for the default; leave them out, or `methods`.")


def one_thread_for(model: Any, options: EstimateOptions) -> AbstractContextManager[Any]:
    """One thread on the CPU, so that numbers do not depend on the machine; of torch too, where it is used."""
    methods, _ = asked_methods(options.get("methods", "default"))
    uses_torch = is_network(model) or any("torch" in ESTIMATORS[name].needs for name in methods or ())
    if not uses_torch or not has_torch():
        return threadpool_limits(1)
    from projnorm.models.preparation import one_thread

    return one_thread(device_of(model, options.get("device", "auto")))


def asked_methods(methods: str | Sequence[str]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Methods to run if they are not those of the default, and those the estimate is to be made of if named."""
    offered = offered_methods()
    if isinstance(methods, str) and methods.lower() == "default":
        return None, None
    if isinstance(methods, str) and methods.lower() in ("cheap", "all"):
        return tuple(name for name in offered if methods.lower() == "all" or not ESTIMATORS[name].costly), None
    known = {name.lower(): name for name in offered}
    asked = (methods,) if isinstance(methods, str) else tuple(methods)
    for name in asked:
        if name.lower() not in known:
            raise InputError(f"`methods` must be default, cheap, all, or of {', '.join(offered)}; got {name!r}.")
    names = tuple(known[name.lower()] for name in asked)
    if not names or len(set(names)) < len(names):
        raise InputError("`methods` must name at least one method, each once.")
    return names, names


def device_of(model: Any, device: str) -> str:
    """The device of a network of torch; the CPU for any other model."""
    if not is_network(model):
        if device not in ("auto", "cpu"):
            raise InputError(f"`device` {device!r} needs `model` to be a network of torch.")
        return "cpu"
    from projnorm.core.device import choose_device

    return str(choose_device(device))
