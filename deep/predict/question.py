"""From scores to an estimate: what the labelled sets teach, used on a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from deep.calibration import Floats, Line, left_out_predictions
from deep.ensemble import Stack, signs
from deep.estimators.evidence import Estimator
from deep.predict.answer import ErrorEstimate, Grounds, MethodResult, joined, percent
from deep.predict.conformal import Calibration, coverage
from deep.predict.meta_set import MetaSet
from deep.predict.methods import (
    ALL_METHODS,
    CALIBRATED,
    COSTLY,
    UNCALIBRATED,
    Network,
    build,
    lacking,
)
from deep.predict.sets import OutputSet

_DRAWS = 200
# A bootstrap draws so many rows at the most, and its spread is scaled to all of them.
_MOST_DRAWN = 2_000
# A target larger than the calibration sets is scored in so many parts at the most.
_MOST_PARTS = 10
# Fewer samples are warned of.
_FEW = 30


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Everything about an estimate but the target.

    Attributes:
        source: The labelled set.
        learnt: The part of it that methods learn from.
        meta: Labelled shifted sets; None where there are none.
        network: What a network gives besides its outputs.
        asked: Methods to run.
        wanted: Methods the estimate is to be made of; None for the default.
        level: Of the interval.
        seed: Of everything drawn.
    """

    source: OutputSet
    learnt: OutputSet
    meta: MetaSet | None
    network: Network | None
    asked: tuple[str, ...]
    wanted: tuple[str, ...] | None
    level: float
    seed: int

    def answered(self, target: OutputSet) -> ErrorEstimate:
        """The estimate for a target."""
        missing = {method: lacking(method, self.learnt, self.network) for method in self.asked}
        m = len(target) if self.meta is None else min(len(target), self.meta.size)
        built = {
            method: build(method, self.learnt, self.network, m=m, seed=self.seed)
            for method, lack in missing.items()
            if not lack
        }
        scores = {method: _score(estimator, target, m, self.seed) for method, estimator in built.items()}
        default = UNCALIBRATED if self.meta is None else CALIBRATED
        chosen = tuple(method for method in self.wanted or default if math.isfinite(scores.get(method, math.nan)))
        if not chosen:
            reasons = "; ".join(f"{method}: {_note(missing[method], scores.get(method))}" for method in missing)
            raise ValueError(f"{target.name}: nothing can be estimated ({reasons}).")
        if self.meta is None:
            return self._uncalibrated(target, built, scores, missing, chosen)
        return self._calibrated(target, self.meta, built, scores, missing, chosen)

    def _uncalibrated(
        self,
        target: OutputSet,
        built: Mapping[str, Estimator],
        scores: Mapping[str, float],
        missing: Mapping[str, str],
        chosen: tuple[str, ...],
    ) -> ErrorEstimate:
        """The mean of methods whose scores are errors, with the sampling noise of both sets from bootstrap draws."""
        if raw := [method for method in chosen if not built[method].is_error]:
            raise ValueError(
                f"{joined(raw)}: scores that are no errors need calibration, by labelled shifted sets or a model."
            )
        bias, spread = self._sampling_noise(target, chosen)
        error = float(np.clip(np.mean([scores[method] for method in chosen]) - bias, 0.0, 1.0))
        reach = NormalDist().inv_cdf(0.5 + self.level / 2.0) * spread
        results = []
        for method, lack in missing.items():
            score = scores.get(method, math.nan)
            known = method in built and built[method].is_error
            results.append(
                MethodResult(method, score, score if known else math.nan, math.nan, _note(lack, scores.get(method)))
            )
        return self._estimate(
            target,
            (error, error - reach, error + reach),
            chosen,
            results,
            above=lambda threshold: 1.0 - NormalDist(error, spread).cdf(threshold),
        )

    def _sampling_noise(self, target: OutputSet, methods: tuple[str, ...]) -> tuple[float, float]:
        """What the methods miss by on draws of the source as large as the target, and how much they vary.

        Some are biased on few samples: the classes of so few do not have the shares that COTT takes them to have. The
        spread is the standard deviation over draws of both sets, with replacement. It is no less than that of the error
        of the source, counted with half a sample more of each kind, and half a sample of the target: sets without any
        error, or of one sample, would have none.
        """
        rng = np.random.default_rng(self.seed)
        sets = (self.source, target)
        sizes = [min(len(one), _MOST_DRAWN) for one in sets]
        varied, missed = [], []
        for _ in range(_DRAWS):
            learnt, seen, like_source = (
                one.take(rng.integers(len(one), size=size))
                for one, size in zip((*sets, self.source), (*sizes, sizes[1]), strict=True)
            )
            estimators = [build(method, learnt, None, m=len(seen), seed=self.seed) for method in methods]
            varied.append(np.mean([estimator.score(seen.evidence()) for estimator in estimators]))
            there = np.mean([estimator.score(like_source.evidence()) for estimator in estimators])
            missed.append(there - learnt.error)
        share = max(size / len(one) for one, size in zip(sets, sizes, strict=True))
        spread = _finite_or(np.std, varied, 1.0) * math.sqrt(share)
        n = len(self.source)
        p = (n * self.source.error + 0.5) / (n + 1)
        spread = math.hypot(max(spread, math.sqrt(p * (1.0 - p) / n)), 0.5 / len(target))
        return _finite_or(np.mean, missed, 0.0), spread

    def _calibrated(
        self,
        target: OutputSet,
        meta: MetaSet,
        built: Mapping[str, Estimator],
        scores: Mapping[str, float],
        missing: Mapping[str, str],
        chosen: tuple[str, ...],
    ) -> ErrorEstimate:
        """Through what the scores and errors of labelled shifted sets of the same size teach."""
        table = meta.scores(built, m=min(len(target), meta.size), seed=self.seed)
        chosen = tuple(method for method in chosen if np.isfinite(table[method]).all())
        if not chosen:
            raise ValueError(f"{target.name}: no method is defined on all of the calibration sets.")
        turned = signs(chosen)
        values = np.column_stack([table[method] for method in chosen])
        here = np.array([scores[method] for method in chosen])
        known = (values * turned, meta.errors, meta.families, Stack.fitted, self.source.error)
        learnt = Calibration.of(*known)
        raw = float(learnt.fitted.predict((here * turned)[None])[0])
        error = min(1.0, max(0.0, raw))
        radius = float(learnt.radius(np.array(error), self.level))
        weighty = tuple(
            method for method, weight in zip(chosen, Stack.fitted(*known[:2]).weights, strict=True) if weight > 0.0
        )
        held = coverage(*known, self.level, rng=np.random.default_rng(self.seed))
        return self._estimate(
            target,
            (error, error - radius, error + radius),
            weighty or chosen,
            [_by_line(method, scores.get(method), table.get(method), meta, lack) for method, lack in missing.items()],
            above=lambda threshold: learnt.probability_above(error, threshold),
            warnings=(
                *_too_few(meta, radius, self.level),
                *_outside(chosen, values, here),
                *(() if weighty else ("No method follows the error on the calibration sets; this is their mean.",)),
                *((f"The calibration gives {percent(raw)}, which was cut.",) if raw != error else ()),
            ),
            grounds=Grounds(meta.origin, meta.names, meta.families, meta.errors, learnt.predicted, learnt.mae, held),
        )

    def _general_warnings(self, target: OutputSet) -> list[str]:
        """What is said of sets that are small or look wrong."""
        found = [
            f"{what} has {len(one)} sample{'s' if len(one) > 1 else ''}; so few say little."
            for what, one in (("The source", self.source), ("The target", target))
            if len(one) < _FEW
        ]
        rows = self.source.outputs.logits
        if rows.min() >= 0.0 and np.allclose(rows.sum(axis=1), 1.0, atol=1e-3):
            found.append("What was given as logits looks like probabilities, and softmax is applied to logits.")
        return found

    def _estimate(
        self,
        target: OutputSet,
        ends: tuple[float, float, float],
        chosen: tuple[str, ...],
        results: Sequence[MethodResult],
        *,
        above: Callable[[float], float],
        warnings: tuple[str, ...] = (),
        grounds: Grounds | None = None,
    ) -> ErrorEstimate:
        error, low, high = np.clip(ends, 0.0, 1.0).tolist()
        return ErrorEstimate(
            target.name,
            len(target),
            error,
            low,
            high,
            self.level,
            chosen,
            self.source.error,
            len(self.source),
            (*results, *_not_asked(self.asked)),
            (*self._general_warnings(target), *warnings),
            grounds,
            above,
        )


def _score(estimator: Estimator, data: OutputSet, m: int, seed: int) -> float:
    """The mean over parts of `m` samples, since most scores depend on how many there are; costly ones see one part."""
    most = 1 if estimator.name in COSTLY else _MOST_PARTS
    order = np.random.default_rng(seed).permutation(len(data))
    parts = [np.sort(order[start : start + m]) for start in range(0, len(data) - m + 1, m)][:most]
    return float(np.mean([estimator.score(data.take(part).evidence()) for part in parts]))


def _finite_or(measure: Callable[[Floats], np.floating], values: list[np.floating], otherwise: float) -> float:
    """A measure of the values that are finite; `otherwise` if there are none."""
    finite = np.array(values)[np.isfinite(values)]
    return float(measure(finite)) if len(finite) else otherwise


def _by_line(method: str, score: float | None, table: Floats | None, meta: MetaSet, missing: str) -> MethodResult:
    if score is None or table is None or not math.isfinite(score):
        return MethodResult(method, math.nan, math.nan, math.nan, _note(missing, score))
    if not np.isfinite(table).all():
        return MethodResult(method, score, math.nan, math.nan, "undefined on some of the calibration sets")
    missed = np.abs(left_out_predictions(table, meta.errors, meta.families) - meta.errors)
    predicted = float(Line.fitted(table, meta.errors).predict(np.array(score)))
    return MethodResult(method, score, predicted, float(missed.mean()), "")


def _note(missing: str, score: float | None) -> str:
    if missing:
        return f"not run: needs {missing}"
    return "" if score is None or math.isfinite(score) else "undefined on this set"


def _not_asked(asked: tuple[str, ...]) -> list[MethodResult]:
    """Those that were left out, with the reason: the costly ones by default, all others where methods are named."""
    return [
        MethodResult(
            method,
            math.nan,
            math.nan,
            math.nan,
            f"not run: {'costly, name it in methods' if method in COSTLY else 'not asked for'}",
        )
        for method in ALL_METHODS
        if method not in asked
    ]


def _too_few(meta: MetaSet, radius: float, level: float) -> list[str]:
    """What is said where the families do not suffice for an interval."""
    if math.isfinite(radius):
        return []
    families = len(set(meta.families.tolist()))
    reach = 100 * families / (families + 1)
    said = (
        f"{families} families of calibration sets are too few for an interval at {100 * level:g} %, which is then all"
    )
    return [f"{said} from 0 to 100 %; they reach {reach:.0f} % at the most."]


def _outside(chosen: tuple[str, ...], values: Floats, here: Floats) -> list[str]:
    """What is said where a target is not among the calibration sets."""
    outside = [
        f"{method} is {score:.4g}, and {low:.4g} to {high:.4g} on the calibration sets"
        for method, score, low, high in zip(chosen, here, values.min(axis=0), values.max(axis=0), strict=True)
        if not low <= score <= high
    ]
    if not outside:
        return []
    said = f"The target lies outside the calibration sets ({'; '.join(outside)})"
    return [f"{said}: the estimate is an extrapolation and the interval may not hold."]
