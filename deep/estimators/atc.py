"""ATC: Garg et al., "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance" (ICLR 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import Floats, entropies, probabilities

SCORES: dict[str, Callable[[NDArray[np.floating]], Floats]] = {
    "entropy": lambda logits: -entropies(logits),
    "confidence": lambda logits: probabilities(logits).max(axis=1),
}


@dataclass(frozen=True, slots=True)
class ATC:
    """The share of images whose score falls below a threshold learnt from labelled images.

    Attributes:
        threshold: As many validation images fall below it as are labelled wrongly.
        by: "entropy" for the negative entropy, or "confidence".
    """

    threshold: float
    by: str = "entropy"

    name = "ATC"
    direction = "up"
    is_error = True
    needs = ("outputs", "validation labels")

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64], *, by: str = "entropy") -> ATC:
        """Learn the threshold.

        Args:
            logits: Of labelled in-distribution images, shape ``(n, classes)``.
            labels: Theirs.
            by: "entropy" or "confidence".

        Raises:
            ValueError: If there is no such score, or nothing to learn from.
        """
        if by not in SCORES:
            raise ValueError(f"`by` must be one of {', '.join(SCORES)}; got {by!r}.")
        if len(logits) != len(labels) or not len(labels):
            raise ValueError(f"`labels` must hold one class per row of `logits`; got {len(labels)} for {len(logits)}.")
        wrong = int(np.sum(logits.argmax(axis=1) != labels))
        return cls(threshold_below(SCORES[by](logits), wrong), by)

    def score(self, evidence: Evidence) -> float:
        """The predicted error."""
        return float(np.mean(SCORES[self.by](evidence.outputs.logits) < self.threshold))


def threshold_below(scores: Floats, count: int) -> float:
    """A threshold with `count` of the scores strictly below it, or as near to that as ties allow.

    None or all of them are met exactly, at minus or plus infinity. In between it is halfway to the next score, so that
    rounding does not move a score across. Of the two nearest choices that ties leave, the lower.
    """
    if count <= 0:
        return -math.inf
    if count >= len(scores):
        return math.inf
    values, below = np.unique(np.sort(scores), return_index=True)
    # Thresholds that separate: in front of every value but the first, with `below` scores under it.
    choices = below[1:]
    if not len(choices):
        return -math.inf if 2 * count <= len(scores) else math.inf
    counts = np.concatenate([[0], choices, [len(scores)]])
    nearest = int(np.argmin(np.abs(counts - count)))
    if nearest == 0:
        return -math.inf
    if nearest == len(counts) - 1:
        return math.inf
    return float(0.5 * (values[nearest - 1] + values[nearest]))
