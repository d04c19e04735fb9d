"""Comparison of two records of the same experiment: which arrays are equal bit for bit, and how much others differ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.records import Record

IDENTICAL, ROUNDING, DIFFERENT = "identical", "equal up to rounding", "differs"
# Differences of up to this many units in the last place of an array's largest entry count as rounding, even in small
# entries: cancellation leaves them no correct digits.
LAST_PLACES = 64
# Facts with the hashes of inputs, and facts on the software and hardware, at the top level or under "inputs".
_HASHES = {"data_sha256": "data", "weights_sha256": "weights", "labels_sha256": "labels"}
_INPUTS_OF = "inputs of "
_ENVIRONMENT = ("torch", "transformers", "device", "threads", "compiled", "passes")
_NETWORK = "network_sha256"
_SHOWN_DIGITS = 12


@dataclass(frozen=True, slots=True)
class ArrayComparison:
    """Comparison of one array in two records; a record that lacks it has the shape None and the type "".

    All entries count as `differing` where the arrays cannot be compared. The largest differences are infinite where
    there are none, as between texts; `relative` is relative to the larger entry, apart from rounding (see
    `LAST_PLACES`), and infinite for integers that differ.
    """

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    dtypes: tuple[str, str]
    identical: bool
    differing: int
    absolute: float
    relative: float

    def agrees(self, rtol: float) -> bool:
        """Whether the arrays are identical, or differ by no more than this relative tolerance and rounding."""
        return self.identical or self.relative <= rtol


@dataclass(frozen=True, slots=True)
class Difference:
    """A library version or a property of the machine that differs between two records."""

    what: str
    recorded: str
    here: str

    def __str__(self) -> str:
        return f"{self.what} {self.recorded} (here {self.here})"


def compare(old: Record, new: Record) -> tuple[ArrayComparison, ...]:
    """Compare every array of either record, in the order of the first record."""
    names = [*old.arrays, *(name for name in new.arrays if name not in old.arrays)]
    return tuple(_compared(name, old.arrays.get(name), new.arrays.get(name)) for name in names)


def verdict(arrays: Sequence[ArrayComparison], *, rtol: float) -> str:
    """Summary of a comparison: `IDENTICAL`, `ROUNDING` or `DIFFERENT`."""
    if all(array.identical for array in arrays):
        return IDENTICAL
    return ROUNDING if all(array.agrees(rtol) for array in arrays) else DIFFERENT


def differences(old: Record, new: Record) -> tuple[Difference, ...]:
    """Differences in library versions, machine and device, which may explain differences in the last bits.

    Libraries that only one record mentions are left out.
    """
    before, now = _environment(old), _environment(new)
    return tuple(
        Difference(what, str(before[what]), str(now[what]))
        for what in before
        if what in now and before[what] != now[what]
    )


def changed_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the inputs (data, weights, labels) whose hashes differ between the facts of two records."""
    before, now = _hashes(old), _hashes(new)
    return tuple(name for name in before if name in now and before[name] != now[name])


def flat_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a record with those under "inputs" moved to the top level."""
    inputs = facts.get("inputs")
    return {**facts, **(inputs if isinstance(inputs, Mapping) else {})}


def _compared(name: str, old: NDArray[Any] | None, new: NDArray[Any] | None) -> ArrayComparison:
    shapes = (None if old is None else old.shape, None if new is None else new.shape)
    dtypes = ("" if old is None else str(old.dtype), "" if new is None else str(new.dtype))
    if old is None or new is None or old.shape != new.shape or old.dtype != new.dtype:
        size = max(array.size for array in (old, new) if array is not None)
        return ArrayComparison(name, shapes, dtypes, False, size, math.inf, math.inf)
    if old.tobytes() == new.tobytes():
        return ArrayComparison(name, shapes, dtypes, True, 0, 0.0, 0.0)
    if not np.issubdtype(old.dtype, np.inexact):
        numbers = np.issubdtype(old.dtype, np.integer)
        absolute = float(np.abs(old.astype(float) - new.astype(float)).max()) if numbers else math.inf
        return ArrayComparison(name, shapes, dtypes, False, int((old != new).sum()), absolute, math.inf)
    return ArrayComparison(name, shapes, dtypes, False, *_differences(old, new))


def _differences(old: NDArray[Any], new: NDArray[Any]) -> tuple[int, float, float]:
    """Number of entries that differ, and the largest absolute and relative difference."""
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    differing = int((~same).sum())
    finite = np.isfinite(old) & np.isfinite(new)
    if not (same | finite).all():
        return differing, math.inf, math.inf
    a, b = old[finite], new[finite]
    if not a.size:
        return differing, 0.0, 0.0
    difference, size = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
    beyond = difference > LAST_PLACES * np.finfo(old.dtype).eps * size.max()
    relative = float((difference[beyond] / size[beyond]).max()) if beyond.any() else 0.0
    return differing, float(difference.max()), relative


def _environment(record: Record) -> dict[str, Any]:
    environment = {key: value for key, value in record.environment.items() if key != "libraries"}
    libraries = record.environment.get("libraries")
    environment |= libraries if isinstance(libraries, Mapping) else {}
    facts = flat_facts(record.facts)
    environment |= {key: facts[key] for key in _ENVIRONMENT if key in facts}
    network = record.config.get(_NETWORK, record.facts.get(_NETWORK))
    return environment | ({} if network is None else {"fine-tuned network": str(network)[:_SHOWN_DIGITS]})


def _hashes(facts: Mapping[str, Any]) -> dict[str, Any]:
    flat = flat_facts(facts)
    hashes = {name: flat[key] for key, name in _HASHES.items() if key in flat}
    fingerprints = facts.get("fingerprints")
    if isinstance(fingerprints, Mapping):
        # The others are of networks, which may have been trained on this machine.
        hashes |= {name: value for name, value in fingerprints.items() if name.startswith(_INPUTS_OF)}
    return hashes
