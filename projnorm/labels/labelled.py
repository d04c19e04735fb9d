"""The error of a target from a few labels of its samples: what they say by themselves, and of the label-free answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.formatting import percent
from projnorm.core.statistics import Floats, Interval, normal_reach
from projnorm.estimators.softmax import probabilities
from projnorm.labels.counts import StratumCounts
from projnorm.labels.metrics import MetricEstimate, labelled_metrics
from projnorm.labels.plan import LABEL, SAMPLE, LabelPlan, read_labels
from projnorm.labels.sequence import anytime_interval
from projnorm.labels.strata import Strata, strata_count
from projnorm.labels.stratified_intervals import guaranteed_interval, stratified_interval
from projnorm.outputs.class_columns import class_columns
from projnorm.outputs.dataframes import is_missing, is_table
from projnorm.outputs.outputs import Outputs

INTERVALS = (AUTO, FIXED, ANYTIME, GUARANTEED) = ("auto", "fixed", "anytime", "guaranteed")
# Labels that a stratum of a uniform sample needs.
_FEWEST_LABELS = 5
_MEANINGS = {
    FIXED: "a number of labels that was decided beforehand",
    ANYTIME: "stopping after any label",
    GUARANTEED: "a number of labels that was decided beforehand, with at least this probability",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LabelledError:
    """The error of a target from labels of some of its samples.

    Attributes:
        error: The stratified estimate.
        low: Lower end of the interval.
        high: Upper end of the interval.
        level: Level of the interval.
        interval: "fixed" for a number of labels decided beforehand, "anytime" for stopping at any time, "guaranteed".
        design: "stratified" where the samples were chosen by `choose_labels`, "uniform" where they were drawn from all.
        counts: What the labels say of every stratum.
        expected: Error that the outputs predict in each stratum.
        power_tuned: Prediction-powered estimate, with an interval that is right for many labels.
        label_free: The estimate without the labels.
    """

    error: float
    low: float
    high: float
    level: float
    interval: str
    design: str
    counts: StratumCounts
    expected: Floats
    power_tuned: Interval
    label_free: Interval

    @property
    def labels(self) -> int:
        """Number of labels."""
        return int(self.counts.labelled.sum())

    @property
    def refutes_label_free(self) -> bool:
        """Whether the interval has no point in common with that of the label-free estimate."""
        return self.label_free.high < self.low or self.label_free.low > self.high

    @property
    def sentence(self) -> str:
        """What the labels changed, in words."""
        free = self.label_free
        wrong = int(self.counts.wrong.sum())
        verdict = "refute" if self.refutes_label_free else "do not refute"
        widths = [100 * (interval.high - interval.low) for interval in (free, self)]
        return (
            f"{wrong:,} of {self.labels:,} labelled samples are wrong. The interval holds whatever the shift is, for "
            f"{_MEANINGS[self.interval]}. Without labels the estimate was {percent(free.value)}, {percent(free.low)} "
            f"to {percent(free.high)}; the labels {verdict} it, move it by {100 * (self.error - free.value):+.1f} "
            f"points and change the width from {widths[0]:.1f} to {widths[1]:.1f} points."
        )

    def to_dict(self) -> dict[str, object]:
        """The estimate as plain JSON values."""
        return {
            "labels": self.labels,
            "wrong": int(self.counts.wrong.sum()),
            "interval": self.interval,
            "design": self.design,
            "strata": [
                {"size": int(size), "labelled": int(n), "wrong": int(x), "expected_error": float(rate)}
                for size, n, x, rate in zip(
                    self.counts.sizes, self.counts.labelled, self.counts.wrong, self.expected, strict=True
                )
            ],
            "power_tuned": _ends(self.power_tuned),
            "label_free": _ends(self.label_free),
            "refutes_label_free": self.refutes_label_free,
        }


class LabelCounts(NamedTuple):
    """Labels by stratum.

    Attributes:
        stratum: Stratum of each labelled sample, shape ``(n,)``.
        by_stratum: Samples, labels and mistakes of every stratum.
    """

    stratum: NDArray[np.int64]
    by_stratum: StratumCounts


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Samples of a target whose labels are known.

    >>> labelled = Labelled.from_input({"sample": [3, 0, 7], "label": [1, 0, None]})
    >>> labelled.samples, labelled.is_whole
    (array([3, 0]), False)

    Attributes:
        samples: Rows of the target.
        labels: Their labels, names or numbers of classes.
        plan: How the samples were chosen; None where they were drawn uniformly from all.
        is_beginning: Whether they are the first of those that were chosen.
        is_whole: Whether they are all of those, and how many these are did not depend on labels.
    """

    samples: NDArray[np.int64]
    labels: NDArray[Any]
    plan: LabelPlan | None = None
    is_beginning: bool = True
    is_whole: bool = True

    @classmethod
    def from_input(cls, labelled: Any) -> Labelled:
        """From a `LabelPlan`, from a table or mapping with `sample` and `label` of a uniform draw, or from a file."""
        if isinstance(labelled, str | Path):
            labelled = read_labels(labelled)
        if isinstance(labelled, LabelPlan):
            known = labelled.is_labelled
            if not known.any():
                raise InputError("`labelled` has no label yet; fill in the column `label`.")
            labels = np.array([label for label in labelled.labels if label])
            return cls(
                labelled.samples[known], labels, labelled, _begins(known), bool(known.all()) and labelled.is_one_draw
            )
        if not isinstance(labelled, Mapping) and not is_table(labelled):
            raise InputError(f"`labelled` must be a LabelPlan, a file or a table; got {type(labelled).__name__}.")
        names = list(labelled.keys() if isinstance(labelled, Mapping) else labelled.columns)
        if missing := [name for name in (SAMPLE, LABEL) if name not in names]:
            raise InputError(f"`labelled` must have `{SAMPLE}` and `{LABEL}`; it has no `{missing[0]}`.")
        samples, labels = np.asarray(labelled[SAMPLE]).reshape(-1), np.asarray(labelled[LABEL]).reshape(-1)
        known = np.array([not is_missing(label) for label in labels.tolist()], dtype=bool)
        if len(samples) != len(labels) or samples.dtype.kind not in "iu" or not known.any():
            raise InputError(
                f"`labelled` must have a row of the target, a whole number, and a label in each entry; got "
                f"{len(samples)} rows and {int(known.sum())} labels."
            )
        # A list, since an array with missing entries may be one of objects.
        whole = bool(known.all())
        return cls(samples[known].astype(np.int64), np.array(labels[known].tolist()), None, _begins(known), whole)

    def columns(self, outputs: Outputs) -> NDArray[np.int64]:
        """The labels as columns of the logits of such outputs: by the names of the classes, else as numbers."""
        labels, shape = self.labels, (len(self.labels), outputs.classes)
        if outputs.class_names:
            return class_columns(labels, np.array(outputs.class_names), shape, "labels", "`labelled`")
        if labels.dtype.kind in "US":
            with suppress(ValueError):  # what is no number is refused below
                labels = np.array([float(label) for label in labels.tolist()])
        return class_columns(labels, None, shape, "labels", "`labelled`")

    def columns_on(self, target: Outputs) -> NDArray[np.int64]:
        """The same, after a check that they are labels of samples of this target."""
        samples, m = self.samples, len(target)
        distinct = len(np.unique(samples))
        if samples.min() < 0 or samples.max() >= m or distinct < len(samples):
            raise InputError(
                f"`labelled` must name different rows of the target, 0 to {m - 1:,}; got {len(samples):,} rows from "
                f"{samples.min():,} to {samples.max():,}, {distinct:,} of them different."
            )
        if self.plan is not None and self.plan.sizes.sum() != m:
            raise InputError(f"`labelled` was chosen from {self.plan.sizes.sum():,} samples; the target has {m:,}.")
        return self.columns(target)

    def counts(self, wrong: NDArray[np.bool_], strata: Strata) -> LabelCounts:
        """The stratum of each labelled sample, and the mistakes in every stratum.

        Args:
            wrong: Whether each labelled sample is wrong.
            strata: Strata of the target, for samples that were drawn from all.
        """
        if self.plan is None:
            stratum, sizes = strata.stratum_of_sample[self.samples], strata.sizes
        else:
            stratum, sizes = self.plan.strata[self.plan.is_labelled], self.plan.sizes
        counts = StratumCounts.from_samples(stratum, wrong, sizes)
        if not counts.labelled.all():
            count = len(counts.sizes)
            raise InputError(f"`labelled` needs a label in each of the {count} strata; label the first rows first.")
        return LabelCounts(stratum, counts)


def labelled_error(
    labelled: Labelled,
    outputs: Outputs,
    rows: Floats,
    label_free: Interval,
    *,
    interval: str = AUTO,
    level: float = 0.9,
) -> LabelledError:
    """The error of a target from labels of some of its samples.

    Args:
        labelled: The samples and their labels.
        outputs: Outputs on the whole target.
        rows: Probabilities of the classes of each sample of it, which expect the label-free error.
        label_free: The estimate without labels.
        interval: "fixed", "anytime" or "guaranteed"; "auto" is fixed where all samples that were chosen are labelled,
            and anytime where labelling is under way.
        level: Level of the intervals.
    """
    if interval not in INTERVALS:
        raise InputError(f"`interval` must be one of {', '.join(INTERVALS)}; got {interval!r}.")
    samples, m, predicted = labelled.samples, len(outputs), outputs.predicted
    labels = labelled.columns_on(outputs)
    wrong = predicted[samples] != labels
    expected_wrong = 1.0 - rows[np.arange(m), predicted]
    if interval == AUTO:
        interval = FIXED if labelled.is_whole else ANYTIME
    # A confidence sequence needs strata that stay the same from label to label.
    strata = Strata.by_error(expected_wrong, 1) if interval == ANYTIME else _post_strata(expected_wrong, samples)
    stratum, counts = labelled.counts(wrong, strata)
    expected = strata.expected if labelled.plan is None else labelled.plan.expected
    if interval == ANYTIME:
        estimate = anytime_interval(counts, expected, level)
    else:
        estimate = (stratified_interval if interval == FIXED else guaranteed_interval)(counts, level)
    return LabelledError(
        error=estimate.value,
        low=estimate.low,
        high=estimate.high,
        level=level,
        interval=interval,
        design="uniform" if labelled.plan is None else "stratified",
        counts=counts,
        expected=expected,
        power_tuned=power_tuned_interval(wrong, expected_wrong, samples, stratum, counts.sizes, level),
        label_free=label_free,
    )


def metrics_from_labels(
    labelled: Labelled, outputs: Outputs, *, level: float = 0.9, seed: int = 0
) -> tuple[MetricEstimate, ...]:
    """Metrics besides the error from labels of some samples, with intervals that are approximate.

    Arguments are those of `labelled_error`.
    """
    samples, labels = labelled.samples, labelled.columns_on(outputs)
    predicted = outputs.predicted[samples]
    stratum, counts = labelled.counts(predicted != labels, Strata.single(len(outputs)))
    rows, rng = probabilities(outputs.logits)[samples], np.random.default_rng(seed)
    return labelled_metrics(labels, predicted, rows, stratum, counts.sizes, level=level, rng=rng)


def power_tuned_interval(
    wrong: NDArray[np.bool_],
    expected: Floats,
    samples: NDArray[np.int64],
    strata: NDArray[np.int64],
    sizes: NDArray[np.int64],
    level: float,
) -> Interval:
    r"""The prediction-powered estimate with power tuning, within strata.

    .. math:: \sum_h \frac{N_h}{N} \Bigl(\lambda \bar f_h + \frac{1}{n_h} \sum_{i \in h} (y_i - \lambda f_i)\Bigr)

    with f the predicted probability to be wrong and the :math:`\lambda` from 0 to 1 of least estimated variance
    (Angelopoulos, Duchi and Zrnic, "PPI++", 2023; Fisch et al., "Stratified Prediction-Powered Inference", 2024). The
    interval is normal: right for many labels, too narrow for few.

    Args:
        wrong: Whether each labelled sample is wrong.
        expected: Predicted probability to be wrong of every sample of the target, in its order.
        samples: Rows of the labelled samples.
        strata: Stratum of each labelled sample.
        sizes: Number of samples of the target in each stratum.
        level: Level of the interval.
    """
    y, f, n = wrong.astype(float), expected[samples], np.bincount(strata, minlength=len(sizes))
    # Labelled samples are part of a target that is finite, so noise is that of drawing without replacement.
    share = sizes / sizes.sum()
    noise = share**2 * (1.0 - n / sizes) / n
    centred = [values - (np.bincount(strata, values) / n)[strata] for values in (y, f)]
    freedom = np.maximum(n - 1, 1)

    def covariance(a: Floats, b: Floats) -> float:
        return float(noise @ (np.bincount(strata, a * b, len(sizes)) / freedom))

    yf, ff, yy = covariance(*centred), covariance(centred[1], centred[1]), covariance(centred[0], centred[0])
    power = min(1.0, max(0.0, yf / ff)) if ff > 0.0 else 0.0
    weights = (share / n)[strata]
    # The mean of f over the target, which is known, in place of its estimate.
    error = float(weights @ y - power * (weights @ f - expected.mean()))
    deviation = math.sqrt(max(0.0, yy - 2.0 * power * yf + power**2 * ff))
    reach = normal_reach(level) * deviation
    error = min(1.0, max(0.0, error))
    return Interval(error, max(0.0, error - reach), min(1.0, error + reach))


def _ends(interval: Interval) -> dict[str, float]:
    """An error with the ends of its interval, as JSON has it."""
    return {"error": interval.value, "low": interval.low, "high": interval.high}


def _begins(known: NDArray[np.bool_]) -> bool:
    """Whether what is known comes before what is not."""
    return bool(known[: known.sum()].all())


def _post_strata(expected_wrong: Floats, samples: NDArray[np.int64]) -> Strata:
    """Strata of a uniform draw, which within each of them is a draw too; as many as have labels enough."""
    for count in range(strata_count(len(samples)), 1, -1):
        strata = Strata.by_error(expected_wrong, count)
        if np.bincount(strata.stratum_of_sample[samples], minlength=len(strata.expected)).min() >= _FEWEST_LABELS:
            return strata
    return Strata.single(len(expected_wrong))
