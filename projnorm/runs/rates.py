"""Hours on devices that are not here: arithmetic from what tasks cost and from assumed rates, nothing measured."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device and the way to it are taken to sustain.

    Attributes:
        tflops: Of one device, in 10^12 floating-point operations a second.
        gbps: Of the one link that everything moves over, in 10^9 bits a second.
    """

    tflops: float = 10.0
    gbps: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        for name in ("tflops", "gbps"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be positive; got {getattr(self, name)}.")

    def hours(self, flops: float, moved: float) -> float:
        """Of so many operations on one device after so many bytes were moved, one after the other."""
        return (flops / (self.tflops * 1e12) + 8.0 * moved / (self.gbps * 1e9)) / 3600.0


def busiest(costs: Iterable[float], devices: int) -> float:
    """What the busiest device is given when tasks are handed out in order, each to whoever is free first.

    Raises:
        ValueError: If there is no device.
    """
    if devices < 1:
        raise ValueError(f"`devices` must be at least 1; got {devices}.")
    given = [0.0] * devices
    for cost in costs:
        heapq.heapreplace(given, given[0] + cost)
    return max(given)
