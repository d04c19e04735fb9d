"""What the factors of a sample take of memory, from which the tiles are planned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of bytes that a plan is made from.

    Attributes:
        sample: Bytes kept for a sample.
        formed: Bytes formed for a sample in the widest layer whose gradients are not kept.
        capture: Bytes that a sample needs in a forward and backward pass.
        fixed: Bytes of the networks, the inputs and what was drawn.
    """

    sample: int
    formed: int
    capture: int
    fixed: int
