"""Entropy: Guillory et al., "Predicting with Confidence on Unseen Distributions" (ICCV 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from deep.estimators.evidence import Evidence
from deep.estimators.softmax import entropies


@dataclass(frozen=True, slots=True)
class Entropy:
    """The mean entropy of the predicted probabilities."""

    name = "Entropy"
    direction = "up"
    is_error = False
    needs = ("outputs",)

    def score(self, evidence: Evidence) -> float:
        """In nats."""
        return float(entropies(evidence.outputs.logits).mean())
