r"""Is this only a change of class shares? A test that outputs alone can refute.

If nothing but the class shares changed, the mean of any function :math:`\varphi` of the outputs over the target is
:math:`\sum_k q_k \mu_k`, with :math:`\mu_k` its mean over the labelled samples of class k. With more functions than
classes this can be refuted. The statistic is that of Hansen's test of overidentifying restrictions ("Large Sample
Properties of Generalized Method of Moments Estimators", 1982),

.. math:: J = \min_{q} (\bar\varphi - M q)^\top W^{-1} (\bar\varphi - M q), \qquad
          W = \frac{\Sigma_q}{m} + \sum_k \frac{q_k^2}{n_k} \Sigma_k

over shares that are not negative. Since :math:`W` counts the noise of the target and of the labelled samples, and the
minimum that of the shares, J is about :math:`\chi^2` with as many degrees of freedom as there are functions beyond the
shares that are not zero. Since :math:`W` is itself estimated, J is compared with Hotelling's :math:`F`, whose second
degrees of freedom are those of :math:`W` (Nel and van der Merwe, "A Solution to the Multivariate Behrens-Fisher
Problem", 1986): few where the target has much of a class with few labelled samples. "Nothing changed" is the same test
with the shares of the source.

The functions are the calibrated probabilities, the largest, the second largest and the entropy, and whether confidence
and energy lie below quantiles of the source. With many classes the probabilities are left out and the shares are those
of maximum likelihood, whose noise is added to W.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import nnls
from scipy.special import fdtrc, fdtri, logsumexp

from projnorm.core.statistics import Floats
from projnorm.estimators.class_shares import maximum_likelihood_shares
from projnorm.estimators.softmax import BiasCorrected
from projnorm.outputs.outputs import Outputs

# With more classes, shares come from maximum likelihood and all classes are taken to have one covariance.
MOST_CLASSES = 30
_QUANTILES = np.linspace(0.0, 1.0, 7)[1:-1]
# Logits this far below the largest of their row do not matter.
_LOWEST = -30.0
# The covariance of a class is drawn to the mean of all with the weight of this many samples.
_PRIOR_SAMPLES = 10
_RIDGE = 1e-3
_ROUNDS = 3
# Weight of the condition that shares add up to one, in units of the largest entry.
_SUM_WEIGHT = 1e3
_NO_SHARE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class HotellingTest:
    """The result of a test of a hypothesis.

    Attributes:
        p_value: Probability of a statistic as large as this if the hypothesis holds.
        statistic: Value of the statistic; divided by its degrees of freedom it has about an F distribution.
        degrees: Its degrees of freedom.
        second_degrees: Degrees of freedom of the denominator.
    """

    p_value: float
    statistic: float
    degrees: int
    second_degrees: float

    @classmethod
    def from_distance(cls, distance: float, degrees: int, functions: int, covariance_degrees: float) -> HotellingTest:
        """The result for a squared distance in units of a covariance that has degrees of freedom of its own."""
        degrees, second = max(1, degrees), max(1.0, covariance_degrees - functions + 1.0)
        statistic = distance * min(1.0, second / max(1.0, covariance_degrees))
        return cls(float(fdtrc(degrees, second, statistic / degrees)), statistic, degrees, second)

    def beyond(self, alpha: float) -> float:
        """By how much the statistic exceeds the largest value that a test of this level accepts."""
        return max(0.0, self.statistic - self.degrees * float(fdtri(self.degrees, self.second_degrees, 1.0 - alpha)))


@dataclass(frozen=True, slots=True, eq=False)
class ShiftTest:
    """Tests of a target against labelled samples.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> test = ShiftTest.fit(source)
    >>> test.nothing_changed(source.take(np.arange(100))).p_value > 0.01, test.nothing_changed(target).p_value > 0.01
    (True, False)

    Attributes:
        scaling: Bias-corrected calibration of the probabilities.
        shares: Mean calibrated probability of each class in the source.
        edges: Quantiles of the confidence and of the energy in the source.
        units: Standard deviation of each function, nan where it is constant.
        mean: Mean of each function over the source, in these units.
        covariance: Their covariance over the source.
        means: Mean of each function over each class, shape ``(classes, functions)``.
        covariances: Covariance within each class; one for all with many classes.
        counts: Number of labelled samples of each class.
    """

    scaling: BiasCorrected
    shares: Floats
    edges: tuple[Floats, Floats]
    units: Floats
    mean: Floats
    covariance: Floats
    means: Floats
    covariances: Floats
    counts: NDArray[np.int64]

    @classmethod
    def fit(cls, source: Outputs) -> ShiftTest:
        """Learn from labelled samples."""
        labels, classes = source.known_labels, source.classes
        scaling = BiasCorrected.fit(source.logits, labels)
        rows = scaling.probabilities(source.logits)
        edges = (np.quantile(rows.max(axis=1), _QUANTILES), np.quantile(_energies(source.logits), _QUANTILES))
        values = _functions(rows, source.logits, edges)
        spread = values.std(axis=0)
        units = np.where(spread > 1e-9, spread, np.nan)
        values = values[:, ~np.isnan(units)] / units[~np.isnan(units)]
        counts = np.bincount(labels, minlength=classes)
        mean = values.mean(axis=0)
        means = np.stack([values[labels == k].mean(axis=0) if counts[k] else mean for k in range(classes)])
        within = values - means[labels]
        pooled = within.T @ within / len(values)
        if classes > MOST_CLASSES:
            covariances = pooled[None]
        else:
            covariances = np.stack([within[labels == k].T @ within[labels == k] for k in range(classes)])
            weights = (counts + _PRIOR_SAMPLES)[:, None, None]
            covariances = (covariances + _PRIOR_SAMPLES * pooled) / weights
        covariance = (values - mean).T @ (values - mean) / len(values)
        return cls(
            scaling=scaling,
            shares=rows.mean(axis=0),
            edges=edges,
            units=units,
            mean=mean,
            covariance=covariance,
            means=means,
            covariances=covariances,
            counts=counts,
        )

    def likely_shares(self, target: Outputs) -> Floats:
        """Class shares of a target by maximum likelihood, if nothing else changed."""
        return maximum_likelihood_shares(self.scaling.probabilities(target.logits), self.shares)

    def adapted(self, target: Outputs, shares: Floats) -> Floats:
        """Calibrated probabilities of a target with other class shares than the source."""
        ratio = np.divide(shares, self.shares, out=np.zeros_like(shares), where=self.shares > 0.0)
        rows = self.scaling.probabilities(target.logits) * ratio
        return rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-300)

    def nothing_changed(self, target: Outputs) -> HotellingTest:
        """Test that the target is as the source."""
        m, n = len(target), int(self.counts.sum())
        difference = self._means_of(target) - self.mean
        covariance = _ridged(self.covariance * (1.0 / m + 1.0 / n), m, n)
        distance = float(difference @ cho_solve(cho_factor(covariance), difference))
        return HotellingTest.from_distance(distance, len(difference), len(difference), n - 1)

    def only_shares_changed(
        self, target: Outputs, shares: Floats | None = None, *, likely: Floats | None = None
    ) -> HotellingTest:
        """Test that the target is as the source but for its class shares.

        Args:
            target: Outputs on the target.
            shares: Its class shares, where they are known; by default those that fit best.
            likely: What `likely_shares` says of the target, if it was computed before.
        """
        m, n = len(target), int(self.counts.sum())
        mean = self._means_of(target)
        extra = np.zeros((len(mean), len(mean)))
        fixed = shares
        if fixed is None and len(self.counts) > MOST_CLASSES:
            fixed = self.likely_shares(target) if likely is None else likely
            noise = _share_noise(self.scaling.probabilities(target.logits), fixed, self.shares)
            extra = self.means.T @ noise @ self.means
        shares = self.counts / n if fixed is None else fixed
        for _ in range(_ROUNDS):
            covariance = self._covariance(shares, m) + extra
            factor = np.linalg.cholesky(_ridged(covariance, m, n))
            A = solve_triangular(factor, self.means.T, lower=True)
            b = solve_triangular(factor, mean, lower=True)
            if fixed is not None:
                break
            shares = _simplex_fit(A[:, self.counts > 0], b, self.counts > 0)
        used = 0 if fixed is not None else int(np.sum(shares > _NO_SHARE)) - 1
        distance = float(np.sum((b - A @ shares) ** 2))
        return HotellingTest.from_distance(distance, len(mean) - used, len(mean), self._covariance_degrees(shares, m))

    def _means_of(self, target: Outputs) -> Floats:
        rows = self.scaling.probabilities(target.logits)
        used = ~np.isnan(self.units)
        return _functions(rows, target.logits, self.edges).mean(axis=0)[used] / self.units[used]

    def _covariance(self, shares: Floats, m: int) -> Floats:
        """Covariance of the differences between the means of a target and those expected from the classes."""
        centred = self.means - shares @ self.means
        between = (shares[:, None] * centred).T @ centred
        noise = np.divide(shares**2, self.counts, out=np.zeros_like(shares), where=self.counts > 0)
        if len(self.covariances) == 1:
            return (self.covariances[0] + between) / m + noise.sum() * self.covariances[0]
        within = np.tensordot(shares, self.covariances, axes=1)
        return (within + between) / m + np.tensordot(noise, self.covariances, axes=1)

    def _covariance_degrees(self, shares: Floats, m: int) -> float:
        """Degrees of freedom of that covariance, from the share of each class in it."""
        if len(self.covariances) == 1:
            return float(self.counts.sum() - np.count_nonzero(self.counts))
        noise = np.divide(shares**2, self.counts, out=np.zeros_like(shares), where=self.counts > 0)
        parts = shares / m + noise
        return float(parts.sum() ** 2 / np.sum(parts**2 / (self.counts + _PRIOR_SAMPLES - 1)))


def _functions(rows: Floats, logits: NDArray[np.floating], edges: tuple[Floats, Floats]) -> Floats:
    """The functions of the outputs that are compared, one column each."""
    largest = np.partition(rows, -2, axis=1)[:, -2:]
    entropy = -np.sum(rows * np.log(np.maximum(rows, 1e-12)), axis=1)
    columns = [
        *([rows] if rows.shape[1] <= MOST_CLASSES else []),
        largest,
        entropy[:, None],
        largest[:, 1:] <= edges[0],
        _energies(logits)[:, None] <= edges[1],
    ]
    return np.concatenate(columns, axis=1)


def _energies(logits: NDArray[np.floating]) -> Floats:
    """Log of the sum of exponentials of each row, less its mean."""
    rows = np.asarray(logits, dtype=np.float64)
    rows = np.maximum(rows - rows.max(axis=1, keepdims=True), _LOWEST)
    return logsumexp(rows - rows.mean(axis=1, keepdims=True), axis=1)


def _ridged(covariance: Floats, m: int, n: int) -> Floats:
    ridge = _RIDGE * (np.diag(covariance) + 1.0 / m + 1.0 / n)
    return covariance + np.diag(ridge)


def _simplex_fit(A: Floats, b: Floats, used: NDArray[np.bool_]) -> Floats:
    """Shares, none negative, that add up to one and bring `A q` nearest to `b`."""
    weight = _SUM_WEIGHT * float(np.abs(A).max(initial=1.0))
    solution, _ = nnls(np.vstack([A, np.full(A.shape[1], weight)]), np.append(b, weight))
    shares = np.zeros(len(used))
    shares[used] = solution / max(solution.sum(), 1e-300)
    return shares


def _share_noise(rows: Floats, shares: Floats, source_shares: Floats) -> Floats:
    """Covariance of maximum-likelihood shares, from the curvature of the likelihood on the shares that are not zero."""
    used = shares > _NO_SHARE
    ratios = rows[:, used] / source_shares[used]
    ratios /= ratios @ shares[used, None]
    information = ratios.T @ ratios
    covariance = np.zeros((len(shares), len(shares)))
    if used.sum() > 1:
        # Shares add up to one: the inverse on the plane of changes that do.
        inverse = np.linalg.pinv(information, hermitian=True)
        total = inverse.sum(axis=1, keepdims=True)
        covariance[np.ix_(used, used)] = inverse - total @ total.T / total.sum()
    return covariance
