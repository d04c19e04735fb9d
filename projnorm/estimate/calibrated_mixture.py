"""The estimate where there are labelled shifted sets: a mixture of two regressions from scores to the error.

The first regression is fitted to draws of the calibration sets with their own class shares, and predicts the error if
inputs changed; the second to all draws, also those with other shares, and predicts the error if both changed. A third
regression predicts from the scores whether a draw is of the first kind; its predictions for families of shifts that it
was not fitted to give the odds of the two hypotheses. With these odds the first two predictions are mixed, and the ends
of the interval are quantiles of the mixture.

Where the outputs do not refute that only class shares changed, the estimate is that of this hypothesis, unless a
regression contradicts it: with few samples the test of the outputs also accepts changes of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from projnorm.core.statistics import Floats, Interval, normal_reach
from projnorm.estimate.calibration_sets import Draw
from projnorm.estimate.hypotheses import Assessment
from projnorm.estimate.ranges import range_from_outputs, sampling_noise
from projnorm.estimate.score_regression import ScoreRegression

# Scores that the error is regressed on if inputs changed, and if class shares changed too.
FOR_INPUTS = ("COT", "AC", "MI", "FeatureShift")
FOR_BOTH = ("COT", "COT-MLLS", "AC", "Entropy", "MI", "FeatureShift", "ClassFeatureShift", "ATC")
# Least number of calibration sets, the source included; with fewer no regression is fitted.
FEWEST_SETS = 6
# Where "class shares" gives the estimate, its errors on draws that "class shares" accepts too give the interval: the
# largest number of them, which have the nearest estimates, and the least number that is enough.
_NEAREST, _FEWEST_ACCEPTED = 60, 20
# Prior odds that class shares stayed as they were.
_PRIOR_ODDS = 15.0
# The estimate of "class shares" is overruled where a regression contradicts it: the one for "inputs" if it has at least
# this weight and differs by more than `_FROM_INPUTS` standard deviations; the one on all draws, which include other
# class shares, if it differs by more than `_FROM_BOTH` and the test statistic exceeds its degrees of freedom.
_SURE, _FROM_INPUTS, _FROM_BOTH = 0.98, 1.0, 3.0
# Largest weight of "inputs" in the interval, so that the other hypothesis always counts.
_MOST_WEIGHT = 0.6
# Where the standard deviation of the regression exceeds this, its mean is averaged with COT, which needs no
# calibration sets.
_UNSURE = 0.08
_STEPS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """A mixture of two normal laws.

    Attributes:
        means: Mean of each law.
        deviations: Standard deviation of each law.
        weight: Weight of the first law.
    """

    means: tuple[float, float]
    deviations: tuple[float, float]
    weight: float

    def quantile(self, level: float) -> float:
        """The quantile of the mixture at a level, by bisection."""
        laws = [NormalDist(mean, sd) for mean, sd in zip(self.means, self.deviations, strict=True)]
        low, high = (end([law.inv_cdf(level) for law in laws]) for end in (min, max))
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            below = self.weight * laws[0].cdf(middle) + (1.0 - self.weight) * laws[1].cdf(middle)
            low, high = (middle, high) if below < level else (low, middle)
        return 0.5 * (low + high)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CalibratedMixture:
    """The regressions that were fitted to draws of the calibration sets, for targets of their size.

    Attributes:
        methods: Methods whose scores are used, for each of the two regressions.
        inputs: Regression of the error if class shares are those of the source.
        both: Regression of the error if class shares may have changed, too.
        likeness: Regression of 1 for draws with their own class shares and 0 for others.
        own: Prediction of `likeness` for each draw with its own shares, fitted without its family of shifts.
        other: The same for the draws with other shares.
        accepted: Estimated and true error of each draw that "class shares" accepts, shape ``(draws, 2)``.
        widest: Standard deviation of the prediction that one draw in twenty exceeds when its family is left out.
    """

    methods: tuple[tuple[str, ...], tuple[str, ...]]
    inputs: ScoreRegression
    both: ScoreRegression
    likeness: ScoreRegression
    own: Floats
    other: Floats
    accepted: Floats
    widest: float

    @classmethod
    def fit(
        cls,
        draws: Sequence[Draw],
        tables: Mapping[str, Floats],
        assessments: Sequence[Assessment],
        methods: tuple[tuple[str, ...], tuple[str, ...]],
    ) -> CalibratedMixture:
        """Learn from draws, the scores of each by method, and what the outputs on each say."""
        errors = np.array([draw.error for draw in draws])
        families = np.array([draw.family for draw in draws])
        own = np.array([not draw.has_other_shares for draw in draws])
        for_inputs, for_both = (np.column_stack([tables[method] for method in names]) for names in methods)
        inputs = ScoreRegression.fit(for_inputs[own], errors[own], families[own])
        both = ScoreRegression.fit(for_both, errors, families)
        likeness = ScoreRegression.fit(for_both, own.astype(float), families)
        left_out = likeness.left_out().mean
        accepted = [
            (assessment.adapted_error, error)
            for error, assessment in zip(errors, assessments, strict=True)
            if assessment.accepts_class_shares
        ]
        widest = float(np.quantile(inputs.left_out().deviation, 0.95))
        return cls(
            methods=methods,
            inputs=inputs,
            both=both,
            likeness=likeness,
            own=left_out[own],
            other=left_out[~own],
            accepted=np.array(accepted).reshape(-1, 2),
            widest=widest,
        )

    def interval(
        self,
        assessment: Assessment,
        scores: Mapping[str, float],
        shift: str,
        sizes: tuple[int, int],
        level: float,
    ) -> Interval:
        """The estimate and its interval; arguments as in `range_from_outputs`, and the scores of the target."""
        if self.prefers_class_shares(assessment, scores, shift):
            return self._accepted(assessment, shift, sizes, level)
        law = self.law(scores, assessment, shift)
        error = min(1.0, max(0.0, law.quantile(0.5)))
        wide = Mixture(law.means, law.deviations, min(law.weight, _MOST_WEIGHT) if shift == "any" else law.weight)
        low, high = wide.quantile(0.5 - level / 2.0), wide.quantile(0.5 + level / 2.0)
        return Interval(error, low, high).at_least(normal_reach(level) * sampling_noise(error, *sizes))

    def prefers_class_shares(self, assessment: Assessment, scores: Mapping[str, float], shift: str) -> bool:
        """Whether "class shares" gives the estimate: it is stated, or neither outputs nor regressions refute it."""
        if shift != "any" or not _explained_by_shares(assessment):
            return shift == "classes"
        law, test = self.law(scores, assessment, shift), assessment.class_shares
        inputs, both = (
            abs(assessment.adapted_error - mean) / deviation
            for mean, deviation in zip(law.means, law.deviations, strict=True)
        )
        looks_like_inputs = law.weight >= _SURE and inputs > _FROM_INPUTS
        return not looks_like_inputs and (both <= _FROM_BOTH or test.statistic <= test.degrees)

    def law(self, scores: Mapping[str, float], assessment: Assessment, shift: str) -> Mixture:
        """The law of the error by the two regressions, each with the odds of its hypothesis."""
        x, z = (np.array([scores[method] for method in names]) for names in self.methods)
        inputs, both = self.inputs.predict(x), self.both.predict(z)
        weight = 1.0 if shift == "inputs" else self.weight_of_inputs(scores)
        deviations = (float(inputs.deviation[0]), float(both.deviation[0]))
        first = float(inputs.mean[0])
        if deviations[0] > _UNSURE and not assessment.accepts_no_shift:
            first = 0.5 * (first + assessment.cot)
        return Mixture((first, float(both.mean[0])), deviations, weight)

    def p_value_of_inputs(self, scores: Mapping[str, float]) -> float:
        """Share of the draws with their own class shares for which `likeness` is no larger than for the target."""
        here = self._likeness(scores)
        return (1 + int(np.sum(self.own <= here))) / (len(self.own) + 1)

    def weight_of_inputs(self, scores: Mapping[str, float]) -> float:
        """Probability that class shares are those of the source, from `likeness` of the target and of both kinds."""
        if not len(self.other):
            return 1.0
        here = self._likeness(scores)
        odds = _PRIOR_ODDS * self.p_value_of_inputs(scores)
        odds /= (1 + int(np.sum(self.other >= here))) / (len(self.other) + 1)
        return odds / (1.0 + odds)

    def _likeness(self, scores: Mapping[str, float]) -> float:
        return float(self.likeness.predict([scores[method] for method in self.methods[1]]).mean[0])

    def _accepted(self, assessment: Assessment, shift: str, sizes: tuple[int, int], level: float) -> Interval:
        """The estimate of outputs alone, with its errors on calibration sets in place of the general allowance."""
        plain = range_from_outputs(assessment, shift, sizes, level)
        if len(self.accepted) < _FEWEST_ACCEPTED:
            return plain
        error = plain.value
        estimates, errors = self.accepted.T
        nearest = np.argsort(np.abs(estimates - error), kind="stable")[:_NEAREST]
        missed = errors[nearest] - estimates[nearest]
        low, high = np.quantile(missed, [0.5 - level / 2.0, 0.5 + level / 2.0]).tolist()
        ends = error + min(0.0, low), error + max(0.0, high)
        return Interval(error, *ends).at_least(normal_reach(level) * sampling_noise(error, *sizes))


def _explained_by_shares(assessment: Assessment) -> bool:
    """Whether the outputs refute "no shift" but not "class shares".

    What "no shift" accepts may still be a slight change of inputs, of which the regressions know more.
    """
    return assessment.accepts_class_shares and not assessment.accepts_no_shift
