"""The ridge that a finite sample of Gaussian rows amounts to, whatever explicit ridge it is given.

Section 8 of docs/theory.md. Everything that is known of a large sample in advance follows from this one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from projnorm_theory.validation import EPS, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class ImplicitRidge:
    r"""What the resolvent of a sample :math:`X` with covariance :math:`C` concentrates on.

    .. math:: a\,(X^\top X + aI)^{-1} \approx \kappa\,(C + \kappa I)^{-1}, \qquad
              \sum_i \frac{s_i}{s_i + \kappa} = \text{rows} - \frac a\kappa

    Without an explicit ridge :math:`a` the left-hand side is the projector on the orthogonal complement of the rows.

    Attributes:
        eigenvalues: Eigenvalues :math:`s_i` of the covariance, shape ``(d,)``.
        kappa: The implicit ridge; 0 when the rows span every direction of nonzero variance and there is no ridge.
        learnt: Share :math:`s_i / (s_i + \kappa)` of each eigendirection that the sample learns, shape ``(d,)``; 0
            where the variance is zero.
        missed: The rest, :math:`\kappa / (s_i + \kappa)`.
        effective: The rows less :math:`\sum_i s_i^2 / (s_i + \kappa)^2`, which is also :math:`1 / \kappa'(a)` and
            :math:`a/\kappa + \sum_i s_i\kappa / (s_i + \kappa)^2`. Relative errors are of the order of its inverse.
        explicit_share: Share of `effective` that the explicit ridge contributes, between 0 and 1.
    """

    eigenvalues: FloatArray
    kappa: float
    learnt: FloatArray
    missed: FloatArray
    effective: float
    explicit_share: float

    @classmethod
    def from_eigenvalues(cls, eigenvalues: FloatArray, rows: int, ridge: float = 0.0) -> ImplicitRidge:
        """Solve for the implicit ridge of this number of rows; the eigenvalues must be zero or more."""
        with np.errstate(divide="ignore"):
            log_s = np.log(eigenvalues)
        log_ridge = math.log(ridge) if ridge > 0.0 else -math.inf
        log_kappa = _log_kappa(log_s[log_s > -math.inf], rows, log_ridge)
        if log_kappa == -math.inf:
            learnt = (eigenvalues > 0.0).astype(np.float64)
            return cls(eigenvalues, 0.0, learnt, 1.0 - learnt, rows - float(np.sum(learnt)), 0.0)
        learnt, missed = expit(log_s - log_kappa), expit(log_kappa - log_s)
        explicit = math.exp(log_ridge - log_kappa)
        effective = explicit + float(learnt @ missed)
        return cls(eigenvalues, math.exp(log_kappa), learnt, missed, effective, explicit / effective)

    @property
    def influence(self) -> FloatArray:
        r""":math:`s_i / (s_i + \kappa)^2`: what noise in the responses does to each weight; 0 at zero variance."""
        seen = self.eigenvalues > 0.0
        return np.where(seen, self.learnt / np.where(seen, self.eigenvalues + self.kappa, 1.0), 0.0)

    @property
    def missed_square(self) -> FloatArray:
        r"""What the square of the resolvent, :math:`a^2 (X^\top X + aI)^{-2}`, concentrates on, shape ``(d,)``."""
        return self.missed * (1.0 - self.explicit_share * self.learnt)


def _log_kappa(log_s: FloatArray, rows: int, log_ridge: float) -> float:
    """Logarithm of the kappa with ``sum s / (s + kappa) = rows - ridge / kappa``; minus infinity where kappa is 0."""
    if log_s.size <= rows and log_ridge == -math.inf:
        return -math.inf
    log_s = np.sort(log_s)[::-1]

    def excess(log_kappa: float) -> float:
        # Each share s / (s + kappa) is 0 or 1, whichever is nearer, and a small rest, so that nothing cancels.
        above = log_s > log_kappa
        rest = expit(-np.abs(log_s - log_kappa))
        shares = np.count_nonzero(above) - rows + float(np.sum(rest[~above])) - float(np.sum(rest[above]))
        return shares + math.exp(log_ridge - log_kappa)

    # The ridge, or the rows + 1 largest alone, bound the root from below; the trace and the ridge from above. Either
    # may be the root, to within rounding.
    low = max(log_ridge, float(log_s[rows]) if log_s.size > rows else -math.inf) - math.log(rows)
    high = float(logsumexp(np.append(log_s, log_ridge))) - math.log(rows)
    return float(brentq(excess, low - 1e-9, high + 1e-9, xtol=4 * EPS, rtol=4 * EPS))
