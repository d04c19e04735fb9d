"""Two records of one question side by side: which arrays are equal bit for bit, and how far the others are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.records import Record

IDENTICAL, ROUNDING, DIFFERENT = "identical", "equal up to rounding", "differs"
# Differences of up to so many units in the last place of an array's largest entry are rounding, however small the
# entry: what cancels to nothing keeps no digit.
LAST_PLACES = 64
# What a record says of its inputs by their hash, and of where it was computed, in its facts or their "inputs".
_HASHES = {"data_sha256": "data", "weights_sha256": "weights", "labels_sha256": "labels"}
_INPUTS_OF = "inputs of "
_WHERE = ("torch", "transformers", "device", "threads", "compiled", "passes")
_NETWORK = "network_sha256"
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class ArrayComparison:
    """One array in two records.

    Attributes:
        name: Of the array.
        shapes: In the first and in the second; None where it is missing.
        dtypes: Likewise.
        identical: Whether every bit is the same.
        differing: Entries that are not; all of them where the arrays cannot be compared.
        absolute: Largest absolute difference; infinite where there is none to take, as between texts.
        relative: Largest difference of two entries against the larger of them, `LAST_PLACES` of the array's largest
            entry left aside; infinite where there is none to take, and for whole numbers.
    """

    name: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    dtypes: tuple[str, str]
    identical: bool
    differing: int
    absolute: float
    relative: float

    def agrees(self, rtol: float) -> bool:
        """Whether they are identical, or no farther apart than rounding with this relative tolerance."""
        return self.identical or self.relative <= rtol


@dataclass(frozen=True, slots=True)
class Difference:
    """Something besides the arrays that is not the same in two records.

    Attributes:
        what: A library, or a fact of the machine.
        recorded: In the first.
        here: In the second.
    """

    what: str
    recorded: str
    here: str

    def __str__(self) -> str:
        return f"{self.what} {self.recorded} (here {self.here})"


def compare(old: Record, new: Record) -> tuple[ArrayComparison, ...]:
    """Every array of either record, in the order of the first."""
    names = [*old.arrays, *(name for name in new.arrays if name not in old.arrays)]
    return tuple(_compared(name, old.arrays.get(name), new.arrays.get(name)) for name in names)


def verdict(arrays: Sequence[ArrayComparison], *, rtol: float) -> str:
    """`IDENTICAL`, `ROUNDING` or `DIFFERENT`."""
    if all(array.identical for array in arrays):
        return IDENTICAL
    return ROUNDING if all(array.agrees(rtol) for array in arrays) else DIFFERENT


def differences(old: Record, new: Record) -> tuple[Difference, ...]:
    """Versions, machine and device that differ; the last bits may differ with them.

    A library that only one record speaks of is left out: the other did not need it, or did not know of it.
    """
    before, now = _where(old), _where(new)
    return tuple(
        Difference(what, str(before[what]), str(now[what]))
        for what in before
        if what in now and before[what] != now[what]
    )


def changed_inputs(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Data, weights or labels whose hashes in the facts of two records differ."""
    before, now = _hashes(old), _hashes(new)
    return tuple(name for name in before if name in now and before[name] != now[name])


def flat_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a record, with what they say of its inputs beside them."""
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
    return ArrayComparison(name, shapes, dtypes, False, *_apart(old, new))


def _apart(old: NDArray[Any], new: NDArray[Any]) -> tuple[int, float, float]:
    """Entries that differ, and by how much at most, absolutely and relatively."""
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    differing = int((~same).sum())
    finite = np.isfinite(old) & np.isfinite(new)
    if not (same | finite).all():
        return differing, math.inf, math.inf
    a, b = old[finite], new[finite]
    if not a.size:
        return differing, 0.0, 0.0
    apart, size = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
    beyond = apart > LAST_PLACES * np.finfo(old.dtype).eps * size.max()
    relative = float((apart[beyond] / size[beyond]).max()) if beyond.any() else 0.0
    return differing, float(apart.max()), relative


def _where(record: Record) -> dict[str, Any]:
    environment = {key: value for key, value in record.environment.items() if key != "libraries"}
    libraries = record.environment.get("libraries")
    found = environment | (dict(libraries) if isinstance(libraries, Mapping) else {})
    facts = flat_facts(record.facts)
    found |= {key: facts[key] for key in _WHERE if key in facts}
    network = record.config.get(_NETWORK, record.facts.get(_NETWORK))
    return found | ({} if network is None else {"fine-tuned network": str(network)[:_SHOWN]})


def _hashes(facts: Mapping[str, Any]) -> dict[str, Any]:
    flat = flat_facts(facts)
    found = {name: flat[key] for key, name in _HASHES.items() if key in flat}
    given = facts.get("fingerprints")
    prints = given if isinstance(given, Mapping) else {}
    # The others are of networks, which may have been trained here.
    return found | {name: prints[name] for name in prints if name.startswith(_INPUTS_OF)}
