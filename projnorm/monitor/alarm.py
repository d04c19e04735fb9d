r"""An alarm for errors above a threshold; the chance that it is ever false is bounded, however many batches there are.

Let :math:`x_1, \dots, x_m` be independent numbers from 0 to 1 that estimate the error of a batch. As long as their
means are not above :math:`c`, for every rate :math:`r > c`

.. math:: e(r) = \prod_{i=1}^m \left(1 + \frac{r - c}{c (1 - c)} (x_i - c)\right), \qquad E\,e(r) \le 1 .

Where the numbers are mistakes, 0 or 1, this is the likelihood ratio of r and c. The error of a model may rise in any
batch j, so the evidence after batch t is a mean over the beginnings j and over some rates r,

.. math:: M_t = \sum_{j \le t} w_j\, \overline{\prod_{s=j}^t e_s(r)} + \sum_{j > t} w_j, \qquad
    w_j = \frac{1}{j (j + 1)} .

It is a nonnegative supermartingale that begins at 1 as long as no batch has a mean above c, so by Ville's inequality
the probability that it *ever* reaches :math:`1/\alpha` is at most :math:`\alpha` (Ramdas, Grünwald, Vovk and Shafer,
"Game-Theoretic Statistics and Safe Anytime-Valid Inference", 2023; for changes Shin, Ramdas and Rinaldo, "E-detectors",
2023). The mean over beginnings lets long quiet times be forgotten, and costs a rise in batch j a factor of about
:math:`j^2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.special import logit, logsumexp
from scipy.stats import beta

from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm.labels.counts import StratumCounts

# Rises of the error that evidence is looked for, as differences of its logit.
_RISES = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False)
class Alarm:
    """Evidence against "the error was never above the threshold", batch after batch.

    >>> alarm = Alarm(threshold=0.2)
    >>> for wrong in ([0, 0, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]):
    ...     alarm = alarm.after(log_values(0.2, np.array(wrong, dtype=float)))
    >>> alarm.is_raised, alarm.batch_of_alarm
    (True, 3)

    Attributes:
        threshold: Largest error that needs no alarm.
        alpha: Largest probability of ever alarming while no error is above the threshold.
        batches: Number of batches so far.
        log_products: Logarithm of the mean over beginnings, for each of the rates.
        batch_of_alarm: Number of the batch, counted from 1, after which the alarm was raised; 0 for none.
    """

    threshold: float
    alpha: float = 0.05
    batches: int = 0
    log_products: Floats = field(default_factory=lambda: np.full(len(_RISES), -np.inf))
    batch_of_alarm: int = 0

    def __post_init__(self) -> None:
        """Refuse a threshold or an alpha that is not between 0 and 1."""
        for name in ("threshold", "alpha"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InputError(f"`{name}` must be above 0 and below 1; got {getattr(self, name):g}.")

    @property
    def log_evidence(self) -> float:
        """Logarithm of the evidence; an alarm is due from the logarithm of 1 / alpha on."""
        begun = float(logsumexp(self.log_products)) - math.log(len(_RISES))
        return float(np.logaddexp(begun, -math.log(self.batches + 1.0)))

    @property
    def is_raised(self) -> bool:
        """Whether there was an alarm."""
        return self.batch_of_alarm > 0

    def after(self, log_values: Floats) -> Self:
        """The alarm after one more batch, from what `log_values` or `labelled_log_values` gave."""
        number = self.batches + 1
        products = log_values + np.logaddexp(self.log_products, -math.log(number * (number + 1.0)))
        then = type(self)(self.threshold, self.alpha, number, products, self.batch_of_alarm)
        if not self.is_raised and then.log_evidence >= -math.log(self.alpha):
            return type(self)(self.threshold, self.alpha, number, products, number)
        return then

    def restarted(self) -> Self:
        """The alarm before the first batch."""
        return type(self)(self.threshold, self.alpha)


def log_values(threshold: float, numbers: Floats) -> Floats:
    """Logarithm of e of every rate, for independent numbers from 0 to 1 whose mean estimates the error."""
    bets = (_rates(threshold) - threshold) / (threshold * (1.0 - threshold))
    return np.log1p(np.multiply.outer(bets, np.asarray(numbers) - threshold)).sum(axis=1)


def labelled_log_values(threshold: float, counts: StratumCounts) -> Floats:
    r"""The same from labels that were drawn at random within strata; it assumes nothing of the model or its outputs.

    With :math:`T = \sum_h W_h x_h / n_h` the stratified estimate and :math:`\lambda` a number for each rate,

    .. math:: \log e = \lambda T - \max_{\sum_h W_h p_h \le c} \sum_h n_h \log(1 + p_h (e^{\lambda W_h / n_h} - 1)),

    the last term being the largest that :math:`\log E\,e^{\lambda T}` can be, also for draws without replacement
    (Hoeffding 1963). With one stratum it is the formula above.
    """
    n, share = counts.labelled.astype(float), counts.sizes / counts.total
    if not counts.labelled.all():
        raise InputError("every stratum must have a label.")
    # As many independent labels as these are worth if all strata have the same error.
    worth = 1.0 / float((share**2 / n).sum())
    powers = worth * (logit(_rates(threshold)) - logit(threshold))
    return powers * counts.estimate - np.array([_largest_log_mean(power, threshold, n, share) for power in powers])


def source_margin(threshold: float, n_source: int, alpha: float) -> float:
    """How far an estimate may be above the truth on every batch because its source has finitely many labels.

    It is exceeded with a probability of `alpha`.
    """
    return float(beta.ppf(1.0 - alpha, threshold * n_source + 1.0, (1.0 - threshold) * n_source)) - threshold


def _rates(threshold: float) -> Floats:
    odds = math.log(threshold / (1.0 - threshold)) + _RISES
    return 1.0 / (1.0 + np.exp(-odds))


def _largest_log_mean(power: float, threshold: float, n: Floats, share: Floats) -> float:
    """The largest logarithm of the mean of exp(power T) over strata whose mean error is the threshold."""
    gain = np.expm1(power * share / n)

    def errors(multiplier: float) -> Floats:
        return np.clip(n / (multiplier * share) - 1.0 / gain, 0.0, 1.0)

    low, high = 1e-12, float((n * gain / share).max())
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float(share @ errors(middle)) > threshold else (low, middle)
    return float(n @ np.log1p(errors(low) * gain))
