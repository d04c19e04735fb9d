"""The sets of samples that a kernel is between: a training set, and any number of targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ntk.tiles.plan import TRAIN
from ntk.trace.inputs import Inputs, Samples
from projnorm.core.errors import InputError

# Name of a target that was given without one.
ONLY_TARGET = "target"


def as_sets(train: Inputs, targets: Mapping[str, Inputs] | Inputs | None) -> dict[str, Samples]:
    """The inputs by name, the training set first; a target that is given without a name is called "target"."""
    first = Samples.from_inputs(train, f"inputs of {TRAIN}")
    if targets is None:
        named: Mapping[Any, Any] = {}
    elif not isinstance(targets, Mapping) or (isinstance(first.values, dict) and set(targets) == set(first.values)):
        named = {ONLY_TARGET: targets}
    else:
        named = targets
    if TRAIN in named:
        raise InputError(f"a target must not be called {TRAIN!r}.")
    return named_samples({TRAIN: first, **{str(name): x for name, x in named.items()}})


def named_samples(inputs: Mapping[str, Inputs | Samples]) -> dict[str, Samples]:
    """The inputs of the training set and of targets, by name, checked to be of one shape and type."""
    sets = {name: Samples.from_inputs(x, f"inputs of {name}") for name, x in inputs.items()}
    first = sets[TRAIN]
    for name, x in sets.items():
        if x.form != first.form:
            raise InputError(
                f"inputs of {name} must be of shape {_shown(first)} like the training inputs; got {_shown(x)}."
            )
        for key, t in x.tensors.items():
            expected = first.tensors[key].dtype
            if t.dtype != expected and (t.is_floating_point() or expected.is_floating_point):
                raise InputError(f"inputs of {name} must be of {expected} like the training inputs; got {t.dtype}.")
    return sets


def _shown(samples: Samples) -> str:
    return ", ".join(f"{name} {shape}".strip() for name, shape in samples.form.items())
