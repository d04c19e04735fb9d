"""GDE: Jiang et al., "Assessing Generalization of SGD via Disagreement" (ICLR 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deep.estimators.evidence import Evidence


@dataclass(frozen=True, slots=True)
class GDE:
    """How often another network disagrees, read as an error; `AgreeScore` with outputs that are there already.

    It is the error where networks are calibrated as a class; where there are several others, the mean over them.
    """

    name = "GDE"
    direction = "up"
    is_error = True
    needs = ("outputs of a second network",)

    def score(self, evidence: Evidence) -> float:
        """The predicted error; nan where no other network was asked."""
        if not evidence.outputs.others:
            return math.nan
        own = evidence.outputs.predicted
        return float(np.mean([other.argmax(axis=1) != own for other in evidence.outputs.others]))
