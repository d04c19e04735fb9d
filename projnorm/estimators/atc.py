"""ATC: Garg et al., "Leveraging Unlabeled Data to Predict Out-of-Distribution Performance" (ICLR 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, SupervisedEstimator, register
from projnorm.estimators.softmax import entropies, probabilities
from projnorm.outputs.outputs import Outputs

SCORES: dict[str, Callable[[NDArray[np.floating]], Floats]] = {
    "entropy": lambda logits: -entropies(logits),
    "confidence": lambda logits: probabilities(logits).max(axis=1),
}


@register
class ATC(SupervisedEstimator):
    """The share of samples whose score falls below a threshold learnt from labelled ones.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(ATC().fit(source).score(target), 3)
    0.335

    Attributes:
        by: What a sample is scored by: "entropy" for the negative entropy, or "confidence".
        threshold: As many labelled samples fall below it as are predicted wrongly.

    Examples:
        >>> import numpy as np
        >>> import projnorm as pn
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(3, size=600)
        >>> logits = rng.normal(size=(600, 3)) + 2 * np.eye(3)[labels]
        >>> source = pn.Outputs(logits[:300], labels=labels[:300])
        >>> target = pn.Outputs(logits[300:] / 2)  # half as confident
        >>> round(pn.ATC().fit(source).score(target), 2)
        0.5
    """

    by: str = "entropy"
    threshold: float = LEARNT

    name = "ATC"

    def __post_init__(self) -> None:
        """Refuse an unknown kind of score."""
        if self.by not in SCORES:
            raise InputError(f"`by` must be one of {', '.join(SCORES)}; got {self.by!r}.")

    def _fit(self, source: Outputs) -> ATC:
        wrong = int(np.sum(source.predicted != source.known_labels))
        return replace(self, threshold=threshold_below(SCORES[self.by](source.logits), wrong))

    def _score(self, target: Outputs) -> float:
        return float(np.mean(SCORES[self.by](target.logits) < self.threshold))


def threshold_below(scores: Floats, count: int) -> float:
    """A threshold with `count` of the scores strictly below it, or as near to that as ties allow.

    None or all of them are met exactly, at minus or plus infinity. In between it is halfway to the next score, so that
    rounding does not move a score across. Of the two nearest choices that ties leave, the lower.
    """
    values, below = np.unique(np.sort(scores), return_index=True)
    # One threshold in front of every value, with `below` scores under it, and one behind all.
    thresholds = np.concatenate([[-math.inf], 0.5 * (values[:-1] + values[1:]), [math.inf]])
    return float(thresholds[np.argmin(np.abs(np.append(below, len(scores)) - count))])
