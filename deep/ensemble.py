"""Methods together: the mean of standardised scores, and stacking."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from deep.calibration import Floats, left_out_predictions
from deep.estimators import ESTIMATORS
from deep.scores import Scores
from projnorm.errors import InputError

STACKED = "stacked"
_MOST_PAIRED = 8
_PAPERS_OWN = "ProjNorm"
CAPTION = (
    "A + B is the mean of scores that were standardised over the targets, without labels. Stacked is the error "
    "predicted by non-negative weights of all methods, fitted without the family it is used on; its MAE is that of "
    "these predictions as they are."
)


def rising(scores: Scores) -> Floats:
    """The scores, with the sign turned of those that fall as the error rises."""
    return scores.values * signs(scores.methods)


def signs(methods: Sequence[str]) -> Floats:
    """What makes the score of each method rise with the error: 1 or -1; what is no method rises."""
    falling = {name for name, one in ESTIMATORS.items() if one.direction == "down"}
    return np.array([-1.0 if method in falling else 1.0 for method in methods])


def standardised(scores: Scores) -> Floats:
    """Every column less its mean and divided by its standard deviation over the targets; zero where it is constant.

    All rise with the error then.
    """
    values = rising(scores)
    centred = values - values.mean(axis=0)
    spread = scores.values.std(axis=0)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0.0)


def mean_of(scores: Scores, methods: Sequence[str]) -> Floats:
    """The paper's ensemble: the mean of standardised scores, which all rise with the error. No label is used.

    Raises:
        InputError: If a method is not there, or there is none.
    """
    missing = [method for method in methods if method not in scores.methods]
    if missing or not methods or len(set(methods)) < len(methods):
        known = ", ".join(scores.methods)
        raise InputError(f"`methods` must be of {known}, each once; got {', '.join(methods) or 'none'}.")
    return standardised(scores)[:, [scores.methods.index(method) for method in methods]].mean(axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """From several scores, which all rise with the error, to an error: a weight each, none negative.

    Attributes:
        centre: Mean of each score.
        weights: Weight of each score.
        offset: The mean error.
    """

    centre: Floats
    weights: Floats
    offset: float

    @classmethod
    def fitted(cls, scores: Floats, errors: Floats) -> Stack:
        """By least squares; a score that is constant has no weight."""
        from scipy.optimize import nnls

        centre, spread = scores.mean(axis=0), np.where(np.ptp(scores, axis=0) > 0.0, scores.std(axis=0), np.inf)
        weights, _ = nnls((scores - centre) / spread, errors - errors.mean())
        return cls(centre, weights / spread, float(errors.mean()))

    def predict(self, scores: Floats) -> Floats:
        """Errors of scores, one a row."""
        return self.offset + (scores - self.centre) @ self.weights


def stacked(scores: Scores) -> Floats:
    """Predicted errors: each by weights, none negative, fitted to the targets of all other families.

    Raises:
        InputError: If there are fewer than two families.
    """
    if len(set(scores.families.tolist())) < 2:
        raise InputError("stacking leaves a family out and fits the others; there is only one.")
    return left_out_predictions(rising(scores), scores.errors, scores.families, Stack.fitted)


def ensembles(scores: Scores, subsets: Iterable[Sequence[str]] | None = None) -> Scores:
    """The methods and their ensembles, each a column: the subsets named, or every pair and all; and stacking.

    Of more than eight methods, every pair with ProjNorm.

    There is no stacking of one method or on one family.
    """
    if subsets is None:
        pairs = combinations(scores.methods, 2)
        few = len(scores.methods) <= _MOST_PAIRED
        subsets = [*(pair for pair in pairs if few or _PAPERS_OWN in pair), scores.methods]
    columns = {" + ".join(subset): mean_of(scores, subset) for subset in subsets}
    if len(scores.methods) > 1 and len(set(scores.families.tolist())) > 1:
        columns[STACKED] = stacked(scores)
    return replace(
        scores,
        methods=(*scores.methods, *columns),
        values=np.column_stack([scores.values, *columns.values()]),
    )
