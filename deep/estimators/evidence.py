"""What a predictor may look at, and what a predictor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deep.outputs import Outputs


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """A target as a predictor sees it.

    Attributes:
        inputs: Unlabelled, one sample per row.
        outputs: What the evaluated network says of them; one forward pass for all predictors.
        labels: Only for the ablation that trains on true labels; no predictor looks at them otherwise.
    """

    inputs: NDArray[np.generic]
    outputs: Outputs
    labels: NDArray[np.int64] | None = None


class Estimator(Protocol):
    """A predictor of the error on a target. What else it needs it was built with."""

    @property
    def name(self) -> str:
        """As in the tables."""
        ...

    @property
    def direction(self) -> str:
        """Whether a larger score means more error ("up") or less ("down")."""
        ...

    @property
    def is_error(self) -> bool:
        """Whether the score is itself an error between 0 and 1."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """What it looks at, or was built with."""
        ...

    def score(self, evidence: Evidence) -> float:
        """The score of a target."""
        ...
