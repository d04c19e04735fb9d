"""ConfScore: Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples" (2016)."""

from __future__ import annotations

from dataclasses import dataclass

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import probabilities


@dataclass(frozen=True, slots=True)
class ConfScore:
    """One less the mean confidence: the error if every confidence were a probability of being right."""

    name = "ConfScore"
    direction = "up"
    is_error = True
    needs = ("outputs",)

    def score(self, evidence: Evidence) -> float:
        """``1 - mean max p``."""
        return float(1.0 - probabilities(evidence.outputs.logits).max(axis=1).mean())
