"""What may have changed between the source and a target, the error under each hypothesis, and which are refuted.

Without labels the error is not identified: every estimate assumes something about the shift. Here the assumptions are
named, those that outputs can refute are tested, and each gives an error.

| hypothesis | error | refuted by |
| --- | --- | --- |
| no shift | that of the source | the outputs |
| class shares | expected from probabilities adapted to the estimated shares | the outputs |
| inputs | COT: the outputs moved onto labels with the shares of the source | calibration sets, in part |
| class shares and inputs | COT of adapted probabilities | nothing |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.cbpe import CBPE
from projnorm.estimators.class_shares import label_shares
from projnorm.estimators.cot import regret
from projnorm.estimators.doc import DoC
from projnorm.estimators.shift_test import MOST_CLASSES, HotellingTest, ShiftTest
from projnorm.estimators.softmax import probabilities
from projnorm.estimators.transport import transport
from projnorm.outputs.outputs import Outputs

NO_SHIFT, CLASS_SHARES, INPUTS, BOTH = "no shift", "class shares", "inputs", "class shares and inputs"
# Level of the tests. It is small because a wrong rejection costs far more than a wrong acceptance: what the tests
# accept differs little from the source.
ALPHA = 1e-3
# Largest statistic per degree of freedom that "class shares" is accepted with. With few labelled samples of a class the
# test itself accepts far more, also networks that call everything one class.
_WORST_FIT = 2.0
# Level of the test of "inputs" against calibration sets with their own class shares.
_INPUTS_ALPHA = 0.05
# Known class shares nearer than this to those of the source are the same.
_SAME_SHARES = 0.05
# Draws of class shares for the bias of COT.
_BIAS_DRAWS = 2


@dataclass(frozen=True, slots=True)
class HypothesisResult:
    """The error under one hypothesis about the shift.

    Attributes:
        name: "no shift", "class shares", "inputs", or "class shares and inputs".
        error: Estimated error if the hypothesis holds.
        p_value: Probability of outputs as unlikely as these if it holds; nan where nothing can refute it.
        refuted: Whether the test, or the regression over calibration sets, rejects it.
    """

    name: str
    error: float
    p_value: float
    refuted: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Assessment:
    """What the outputs on a target say about the shift and the error.

    Attributes:
        no_shift: Test that nothing changed.
        class_shares: Test that nothing but the class shares changed.
        shares: Class shares of the target if only they changed, or those that are known.
        distance: Total variation distance of these from the shares of the source.
        source_error: Error of the model on the source.
        confidence_error: Error that calibrated confidence expects: right if neither shares nor inputs changed much.
        adapted_error: Error that probabilities adapted to the shares expect: right if only shares changed.
        cot: COT onto the shares of the source, or onto known ones: right if they are so.
        cot_adapted: COT of adapted probabilities onto their shares.
        excess: By how much the test of class shares is exceeded, per sample; 0 where it accepts.
        resolution: How much of the classes the outputs reveal, as in `HypothesisTests`.
        predicted_distance: Total variation distance of the shares of predicted classes from those in the source.
        confidence_method: Name of the method behind `confidence_error`.
        has_known_shares: Whether the class shares were given.
    """

    no_shift: HotellingTest
    class_shares: HotellingTest
    shares: Floats
    distance: float
    source_error: float
    confidence_error: float
    adapted_error: float
    cot: float
    cot_adapted: float
    excess: float
    resolution: float
    predicted_distance: float
    confidence_method: str = DoC.name
    has_known_shares: bool = False

    @property
    def results(self) -> tuple[HypothesisResult, ...]:
        """The error under each hypothesis, and whether it is refuted."""
        return (
            HypothesisResult(NO_SHIFT, self.source_error, self.no_shift.p_value, not self.accepts_no_shift),
            HypothesisResult(
                CLASS_SHARES, self.adapted_error, self.class_shares.p_value, not self.accepts_class_shares
            ),
            HypothesisResult(INPUTS, min(1.0, self.cot), np.nan, refuted=False),
            HypothesisResult(BOTH, min(1.0, self.cot_adapted), np.nan, refuted=False),
        )

    def with_calibration(
        self, errors: tuple[float, float], p_value: float, *, refutes_class_shares: bool
    ) -> tuple[HypothesisResult, ...]:
        """The same after calibration sets, which can refute what outputs cannot.

        Args:
            errors: Error if inputs changed, and if class shares did too, as the regressions on the sets predict them.
            p_value: Share of the draws with their own class shares that look no more like draws of this kind than the
                target does.
            refutes_class_shares: Whether the regressions contradict that only class shares changed.
        """
        no_shift, class_shares, inputs, both = self.results
        if refutes_class_shares:
            class_shares = replace(class_shares, refuted=True)
        inputs = replace(inputs, error=errors[0], p_value=p_value, refuted=p_value < _INPUTS_ALPHA)
        return no_shift, class_shares, inputs, replace(both, error=errors[1])

    @property
    def accepts_no_shift(self) -> bool:
        """Whether "no shift" is not refuted, neither by the outputs nor by class shares that are known."""
        return self.no_shift.p_value >= ALPHA and not self.shares_are_known_to_differ

    @property
    def shares_are_known_to_differ(self) -> bool:
        """Whether class shares were given that are not those of the source."""
        return self.has_known_shares and self.distance > _SAME_SHARES

    @property
    def accepts_class_shares(self) -> bool:
        """Whether a change of class shares alone, or no shift, is not refuted."""
        fits = self.class_shares.statistic <= _WORST_FIT * self.class_shares.degrees
        return (self.class_shares.p_value >= ALPHA and fits) or self.accepts_no_shift


@dataclass(frozen=True, slots=True, eq=False)
class HypothesisTests:
    """The tests of the hypotheses and the errors under them, fitted to the labelled source.

    Attributes:
        source: Labelled outputs, calibrated.
        test: Test of class shares.
        confidence: Method that expects the error from confidence: CBPE for two classes where it calibrates them, else
            DoC; isotonic regressions of each of many classes would not add up.
        resolution: How much of the classes the outputs reveal: one less the Brier score of the probabilities over that
            of the class shares. Where it is small, any other change distorts the estimated class shares.
        known_shares: Class shares of the target, where they are known.
    """

    source: Outputs
    test: ShiftTest
    confidence: CBPE | DoC
    resolution: float
    known_shares: Floats | None = None

    @classmethod
    def fit(cls, source: Outputs, raw: Outputs, known_shares: Floats | None = None) -> HypothesisTests:
        """Learn from labelled samples: calibrated outputs, and the same as the model gave them."""
        test, labels = ShiftTest.fit(source), source.known_labels
        rows = test.scaling.probabilities(source.logits)
        # The sum of squared differences from one-hot labels.
        score = float(np.sum(rows**2) - 2.0 * rows[np.arange(len(rows)), labels].sum() + len(rows))
        shares = label_shares(labels, source.classes)
        base = len(rows) * (1.0 - float(np.sum(shares**2)))
        resolution = max(0.0, 1.0 - score / base) if base > 0.0 else 0.0
        cbpe = CBPE().fit(raw) if source.classes == 2 else None
        confidence = DoC().fit(source) if cbpe is None or cbpe.calibrations[1] is None else cbpe
        return cls(source, test, confidence, resolution, known_shares)

    def expected(self, target: Outputs, raw: Outputs) -> float:
        """The error that confidence expects on a target; arguments as in `assess`."""
        return self.confidence.score_unchecked(raw if isinstance(self.confidence, CBPE) else target)

    def assess(self, target: Outputs, raw: Outputs) -> Assessment:
        """What calibrated outputs on a target say, and the same as the model gave them."""
        own = label_shares(self.source.known_labels, self.source.classes)
        shares = self.test.likely_shares(target) if self.known_shares is None else self.known_shares
        adapted = self.test.adapted(target, shares)
        expected = float(1.0 - adapted[np.arange(len(target)), target.predicted].mean())
        confidence = self.expected(target, raw)
        weight = self.resolution if self.known_shares is None else 1.0
        rows = probabilities(target.logits)
        test = self.test.only_shares_changed(target, self.known_shares, likely=shares)
        onto = own if self.known_shares is None else shares
        return Assessment(
            no_shift=self.test.nothing_changed(target),
            class_shares=test,
            shares=shares,
            distance=_distance(shares, own),
            source_error=self.source.error,
            confidence_error=confidence,
            adapted_error=weight * expected + (1.0 - weight) * confidence,
            cot=max(0.0, transport(rows, onto).cost - self.transport_bias(len(target))) + regret(rows, target),
            cot_adapted=transport(adapted, shares).cost + regret(adapted, target),
            excess=test.beyond(ALPHA) * (1.0 / len(target) + 1.0 / len(self.source)),
            resolution=self.resolution,
            predicted_distance=_distance(self._predicted_shares(target), self._predicted_shares(self.source)),
            confidence_method=self.confidence.name,
            has_known_shares=self.known_shares is not None,
        )

    def _predicted_shares(self, outputs: Outputs) -> Floats:
        return label_shares(outputs.predicted, self.source.classes)

    def transport_bias(self, m: int) -> float:
        """By how much COT on m samples is too high because the class shares of both sets have sampling noise.

        With many classes this is most of the cost. It is estimated by the mean rise of the cost on the source when its
        class shares are drawn anew with the noise of both sets. With few classes it is 0, since COT is then too low
        rather than too high.
        """
        n, classes = len(self.source), self.source.classes
        if self.known_shares is not None or classes <= MOST_CLASSES:
            return 0.0
        noise = 1.0 / n + 1.0 / m
        rows, own = probabilities(self.source.logits), label_shares(self.source.known_labels, classes)
        rng = np.random.default_rng(0)
        draws = [rng.multinomial(max(1, round(1.0 / noise)), own) * noise for _ in range(_BIAS_DRAWS)]
        costs = [transport(rows, shares / shares.sum()).cost for shares in draws]
        return float(np.mean(costs)) - transport(rows, own).cost


def _distance(shares: Floats, others: Floats) -> float:
    """Total variation distance of two vectors of class shares."""
    return 0.5 * float(np.abs(shares - others).sum())
