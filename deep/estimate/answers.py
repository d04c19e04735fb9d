"""The answer from outputs alone: one estimate and a range, from the hypotheses that were not refuted.

Where the outputs refute neither "no shift" nor "class shares", confidence says the error; where they refute both, COT
does. With two classes it rests on a single share, so there confidence keeps a weight that falls with how far the
outputs are from what class shares explain and with how much the two disagree. The range spans
what the hypotheses say, the sampling noise, and an allowance: real shifts make models worse in ways that outputs do not
show. The constants were chosen on a part of the benchmark of real shifts, see docs/which-method.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from deep.estimate.hypotheses import Evidence

# With two classes COT has half of the weight where excess times the squared difference from confidence is this.
_HALF = 1e-3
# Parts of the estimate by which a 90 % range is longer below and above, half of it above COT, and least length.
_BELOW, _ABOVE, _LEAST = 0.2, 0.45, 0.005
# COT is too low by about this part of what it says above the source, where networks are sure of their mistakes.
_BEYOND = 0.3
_USUAL_REACH = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True)
class Answer:
    """An error with the ends of its interval, and the sampling noise in it."""

    error: float
    low: float
    high: float
    sampling_noise: float


def answer_from_outputs(evidence: Evidence, shift: str, sizes: tuple[int, int], level: float) -> Answer:
    """The estimate and the range.

    Args:
        evidence: What the outputs say under each hypothesis.
        shift: What the user says of the shift: "any", "classes" or "inputs".
        sizes: Number of samples of the source and of the target.
        level: Level of the range.
    """
    e = evidence
    above = _ABOVE
    if shift == "classes":
        error, said = e.adapted, [e.adapted]
    elif shift == "inputs":
        error, said, above = e.moved, [e.moved, _further(e)], _ABOVE / 2
    elif e.accepts_no_shift:
        error, said = e.confidence, [e.confidence, e.source_error, e.adapted]
    elif e.accepts_class_shares:
        error, said = e.adapted, [e.adapted, e.confidence]
    else:
        odds = e.excess * (e.moved - e.confidence) ** 2 / _HALF
        weight = odds / (1.0 + odds) if len(e.shares) == 2 else 1.0
        error, above = weight * e.moved + (1.0 - weight) * e.confidence, _ABOVE / 2
        said = [error, e.moved, _further(e), min(error, e.moved_adapted)]
        said += [e.confidence] if weight < 0.5 else []
    return _ranged(min(1.0, max(0.0, error)), said, above, sizes, level)


def sampling_noise(error: float, n: int, m: int) -> float:
    """Standard deviation of the difference of the errors on n labelled and m other samples of one distribution.

    Errors of all or no samples have some noise too: that of half a sample.
    """
    least = 0.5 / (n + m)
    p = min(1.0 - least, max(least, error))
    return math.hypot(math.sqrt(p * (1.0 - p) * (1.0 / n + 1.0 / m)), 0.5 / m)


def _further(e: Evidence) -> float:
    """COT, and what it is likely to miss."""
    return e.moved + _BEYOND * max(0.0, e.moved - e.source_error)


def answer_from_methods(errors: list[float], sizes: tuple[int, int], level: float) -> Answer:
    """The mean of what several methods say, with a range over them and the same allowance; arguments as above."""
    error = min(1.0, max(0.0, sum(errors) / len(errors)))
    return _ranged(error, errors, _ABOVE, sizes, level)


def _ranged(error: float, said: list[float], above: float, sizes: tuple[int, int], level: float) -> Answer:
    """An error with a range over everything that was said, sampling noise and the allowance."""
    noise = sampling_noise(error, *sizes)
    reach = NormalDist().inv_cdf(0.5 + level / 2.0)
    scale = reach / _USUAL_REACH
    low, high = min(error, *said), max(error, *said)
    low -= math.hypot(reach * noise, scale * (_BELOW * low + _LEAST))
    high += math.hypot(reach * noise, scale * (above * high + _LEAST))
    return Answer(error, max(0.0, low), min(1.0, high), noise)
