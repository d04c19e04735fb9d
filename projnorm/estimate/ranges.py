"""The answer from outputs alone: an estimate and a range, from the hypotheses that were not refuted.

Where the outputs do not refute "no shift", the estimate is the error that calibrated confidence expects; where they
refute it but not "class shares", the error that probabilities adapted to the estimated shares expect; where they refute
both, COT. With two classes COT depends on a single share, so confidence keeps a weight there: the smaller, the more the
outputs differ from what class shares explain and the more the two estimates differ. The range covers the errors under
these hypotheses, the sampling noise, and an allowance, because real shifts make models worse in ways that outputs do
not show. The constants were chosen on an earlier draw of most sets of the benchmark, see docs/which-method.md.
"""

from __future__ import annotations

import math

from projnorm.core.statistics import Interval, normal_reach
from projnorm.estimate.hypotheses import Assessment

# With two classes COT has half of the weight where the excess times its squared difference from confidence is this.
_HALF = 1e-3
# Allowance of a 90 % range below and above, as parts of its ends (above COT half of that), and the least allowance.
_BELOW, _ABOVE, _LEAST = 0.2, 0.45, 0.005
# Where networks are confident in their mistakes, COT is too low by about this part of its rise above the source error.
_BEYOND = 0.3
_USUAL_REACH = normal_reach(0.9)


def range_from_outputs(assessment: Assessment, shift: str, sizes: tuple[int, int], level: float) -> Interval:
    """The estimate and the range.

    Args:
        assessment: What the outputs say under each hypothesis.
        shift: What the user says of the shift: "any", "classes" or "inputs".
        sizes: Number of samples of the source and of the target.
        level: Level of the range.
    """
    e = assessment
    above = _ABOVE
    if shift == "classes":
        error, errors = e.adapted_error, [e.adapted_error]
    elif shift == "inputs":
        error, errors, above = e.cot, [e.cot, _upper_cot(e)], _ABOVE / 2
    elif e.accepts_no_shift:
        error, errors = e.confidence_error, [e.confidence_error, e.source_error, e.adapted_error]
    elif e.accepts_class_shares:
        error, errors = e.adapted_error, [e.adapted_error, e.confidence_error]
    else:
        odds = e.excess * (e.cot - e.confidence_error) ** 2 / _HALF
        weight = odds / (1.0 + odds) if len(e.shares) == 2 else 1.0
        error, above = weight * e.cot + (1.0 - weight) * e.confidence_error, _ABOVE / 2
        errors = [error, e.cot, _upper_cot(e), min(error, e.cot_adapted)]
        errors += [e.confidence_error] if weight < 0.5 else []
    return _ranged(min(1.0, max(0.0, error)), errors, above, sizes, level)


def sampling_noise(error: float, n: int, m: int) -> float:
    """Standard deviation of the difference of the errors on n labelled and m other samples of one distribution.

    Errors of all or no samples have some noise too: that of half a sample.
    """
    least = 0.5 / (n + m)
    p = min(1.0 - least, max(least, error))
    return math.hypot(math.sqrt(p * (1.0 - p) * (1.0 / n + 1.0 / m)), 0.5 / m)


def _upper_cot(e: Assessment) -> float:
    """COT, and what it is likely to miss."""
    return e.cot + _BEYOND * max(0.0, e.cot - e.source_error)


def range_from_methods(errors: list[float], sizes: tuple[int, int], level: float) -> Interval:
    """The mean of what several methods say, with a range over them and the same allowance; arguments as above."""
    error = min(1.0, max(0.0, sum(errors) / len(errors)))
    return _ranged(error, errors, _ABOVE, sizes, level)


def _ranged(error: float, errors: list[float], above: float, sizes: tuple[int, int], level: float) -> Interval:
    """An error with a range over several errors, sampling noise and the allowance."""
    noise = sampling_noise(error, *sizes)
    reach = normal_reach(level)
    scale = reach / _USUAL_REACH
    low, high = min(error, *errors), max(error, *errors)
    low -= math.hypot(reach * noise, scale * (_BELOW * low + _LEAST))
    high += math.hypot(reach * noise, scale * (above * high + _LEAST))
    return Interval(error, max(0.0, low), min(1.0, high))
