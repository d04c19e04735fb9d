"""What kernel to compute, and how."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ntk.contraction import ROUTES
from ntk.kinds import KINDS

ACCUMULATE = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """What kernel to compute, and how.

    Attributes:
        kind: "exact" for all parameters, "coordinates" for a random subset of them, "projection" for a random
            projection.
        count: Coordinates, or the width of the projection.
        seed: Of what is drawn.
        layers: Only the parameters of these modules; all by default.
        accumulate: "float32" products with float64 sums over layers, or "float64" products.
        route: "best" per layer, or "direct" or "structured" wherever there is one; for coordinates, "direct"
            forms every gradient and indexes it.
        memory: Ceiling in bytes, of the whole process; on a GPU, of its memory.
        panel: Samples per panel; a tile of the kernel is two panels. Made smaller where the ceiling asks for it.
        batch: Samples per forward and backward pass.
        device: "auto", or a device that torch knows.
        checks: Entries of the kernel compared with plain autograd.
    """

    kind: str = "exact"
    count: int = 500_000
    seed: int = 0
    layers: tuple[str, ...] | None = None
    accumulate: str = "float32"
    route: str = "best"
    memory: float = 4e9
    panel: int = 1024
    batch: int = 64
    device: str = "auto"
    checks: int = 4

    def __post_init__(self) -> None:
        """Refuse what no kernel can be computed with."""
        for name, allowed in (("kind", KINDS), ("accumulate", ACCUMULATE), ("route", ROUTES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"`{name}` must be one of {', '.join(allowed)}; got {getattr(self, name)!r}.")
        for name, least in (("count", 1), ("panel", 1), ("batch", 1), ("checks", 0), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}; got {getattr(self, name)}.")
        if not 0 < self.memory < math.inf:
            raise ValueError(f"`memory` must be a positive number of bytes; got {self.memory}.")
