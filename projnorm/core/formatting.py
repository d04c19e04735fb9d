"""Shares and names as sentences show them."""

from __future__ import annotations

from collections.abc import Sequence


def percent(share: float) -> str:
    """A share in percent."""
    return f"{100 * share:.1f} %"


def joined(names: Sequence[str]) -> str:
    """Names with commas and an "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
