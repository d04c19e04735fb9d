"""Shares and names as sentences show them, and numbers as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def joined(names: Sequence[str]) -> str:
    """Names with commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def finite_or_none(value: T) -> T | None:
    """The value, or None for a number that is not finite, which JSON does not have.

    >>> finite_or_none(0.5), finite_or_none(math.nan), finite_or_none("nan")
    (0.5, None, 'nan')
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value
