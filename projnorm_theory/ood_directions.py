"""Directions of the shifted row space: free, shared with the training rows, or uncertain from rounding."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm_theory.validation import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class OodDirections:
    """Principal directions of the shifted row space against the training one, by what is known of their sines.

    Each basis is orthonormal in the coordinates of `V`, shape ``(ood_rank, count)``. What is in neither is shared: its
    sine is zero to within a tolerance of at most 1e-10.

    Attributes:
        free: Directions that the training rows certainly leave undetermined.
        uncertain: Directions whose sine rounding could explain, known too coarsely to be called shared.
        tolerance: Largest sine that was not told from zero, or that would not have been; at least 1e-10.
    """

    free: FloatArray
    uncertain: FloatArray
    tolerance: float

    def assumption(self) -> tuple[str, ...]:
        """What is taken for granted of the shared directions, in words; empty where there is none."""
        shared = self.free.shape[0] - self.free.shape[1] - self.uncertain.shape[1]
        if not shared:
            return ()
        return (
            f"directions of the shifted row space that count as shared, their sines being zero to rounding: {shared}",
        )
