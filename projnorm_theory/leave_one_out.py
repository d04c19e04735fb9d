r"""The average case with a scale that the training responses fix: by leave-one-out, or by a power prior.

Section 6 of docs/theory.md. A truth that leans towards the leading directions of the inputs is longer on the training
rows than outside them, and `spherical_loss`, which takes one length for both, then predicts too large a loss. The two
methods here ask the training responses how much is new in a direction not seen before. That removes the error where the
shifted inputs are like the training inputs. Where their spectrum is flatter, steeper or rotated, it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.optimize import minimize_scalar

from projnorm_theory.average_case import (
    NEVER_ALONE,
    LossPrediction,
    as_independent_outputs,
    isotropy_assumption,
    require_a_length,
)
from projnorm_theory.bounds import training_assumptions
from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import frobenius, sum_of_squares
from projnorm_theory.quadratic_forms import RatioLaw, ShiftedLaw
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import EPS, FloatArray, as_finite_result

# A row whose leverage is this close to 1 is not a combination of the other rows.
_NEW_ROW = 1e-8
# A shifted direction with a smaller sine against the training rows is one of theirs; it carries no loss to speak of.
_NEGLIGIBLE_SINE = 1e-6
# The singular values of the stacked inputs, and of the training rows in the features of a power prior, must lie within
# this fraction of the largest for their powers to be known.
_SMALLEST = 1e-12
# Exponents of the power prior: at -1 all responses are independent.
EXPONENTS = (-1.0, 4.0)
_EXPONENT_GRID = 11

_LIKE_TRAINING_ROWS = (
    "a shifted row is to the training rows what each of them is to the others: the part of it outside their span adds "
    "the same squared error per unit of squared length"
)
_FAILS_IF_SPECTRUM_CHANGES = (
    "wrong for truths aligned with the training inputs when the spectrum changes too: too large where that of the "
    "shifted inputs is flatter or rotated away, too small where it is steeper"
)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledLoss(LossPrediction):
    r"""A law of the test loss whose scale, and perhaps shape, was fitted to the training responses.

    Attributes:
        method: "loo" or "power".
        exponent: The exponent `a` of the power prior, 0 for an isotropic truth; nan for "loo". The `scale` is then that
            of :math:`(Z^\top Z/\sigma_1^2)^a` with :math:`\sigma_1` the largest singular value of the stacked inputs.
        leave_one_out: Residuals :math:`y_i - x_i^\top\hat\theta_{-i}` of each training row against the fit to the
            others, shape ``(n, c)``; nan in rows that are combinations of the others, and everywhere for "power".
    """

    method: str
    exponent: float
    leave_one_out: FloatArray

    def _kind(self) -> str:
        return "leave-one-out scale" if self.method == "loo" else f"power prior, exponent {self.exponent:.3g}"


def scaled_loss(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    *,
    method: str = "loo",
    exponent: float | None = None,
    independent_outputs: int | None = None,
) -> ScaledLoss:
    r"""The average test loss when the training responses say how much is new in a direction not seen before.

    ``method="loo"`` takes the scale from the leave-one-out residuals :math:`e_i = \alpha_i/[K^{+}]_{ii}` with
    :math:`\alpha = K^{+}Y`. The squared distance of the i-th row to the span of the others is
    :math:`1/[K^{+}]_{ii}`, so

    .. math:: \tau^2 = \frac{\sum_i \|e_i\|^2}{\sum_i 1/[K^{+}]_{ii}}, \qquad
              \mathrm{TestLoss} \approx \frac{\tau^2}{m}\operatorname{tr}(\tilde K - CK^{+}C^\top),

    which is `mean`. The interval is exact for the truths of `spherical_loss`: there the loss over
    :math:`\sum_i\|e_i\|^2` is a ratio of independent sums :math:`\sum_j l_j\chi^2 / (m\sum_i g_i\chi^2)`.

    ``method="power"`` takes the responses of both sets for one Gaussian vector,
    :math:`[Y; \tilde Y] \sim N(0, \tau^2 G^{1+a})` with `G` the Gram matrix of the stacked inputs, which is a truth of
    covariance :math:`\tau^2(Z^\top Z)^a`: aligned with the inputs for ``a > 0``. The exponent maximises the marginal
    likelihood of `Y` with :math:`\tau` profiled out; the law of the loss is then that of :math:`\tilde Y` given `Y`
    with :math:`\tau` integrated out under the prior :math:`d\tau/\tau`. At ``a = 0`` it is `spherical_loss`.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``, not all zero.
        X_ood: Shifted inputs, shape ``(m, d)``.
        method: "loo" or "power".
        exponent: `a` of the power prior, from -1 to 4. Default: the likeliest for `Y`.
        independent_outputs: As for `spherical_loss`.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, the fitted weights are zero, every training row is a
            combination of the others ("loo"), or the training inputs are too ill conditioned ("power").

    >>> scaled_loss([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]], [1.0, 2.0], [[0.0, 0.0, 3.0]]).mean.__round__(12)
    9.0
    """
    if not isinstance(method, str) or method not in ("loo", "power"):
        raise InputError(f"`method` must be 'loo' or 'power'; got {method!r}.")
    if exponent is not None:
        exponent = _as_exponent(exponent, method)
    pair = as_pair(X, X_ood)
    fit = pair.fit(Y)
    q = as_independent_outputs(independent_outputs, fit)
    require_a_length(fit)
    return _leave_one_out(pair, fit, q) if method == "loo" else _power_prior(pair, fit, q, exponent)


def _as_exponent(value: float, method: str) -> float:
    if method != "power":
        raise InputError(f"`exponent` belongs to method='power'; got method={method!r}.")
    low, high = EXPONENTS
    try:
        exponent = float(value)
    except (TypeError, ValueError):
        raise InputError(f"`exponent` must be a number; got {value!r}.") from None
    if not low <= exponent <= high:
        raise InputError(f"`exponent` must lie between {low:g} and {high:g}; got {value!r}.")
    return exponent


def _leave_one_out(pair: LinearPair, fit: TrainingFit, q: int) -> ScaledLoss:
    leverages = np.sum(pair.train_left**2, axis=1)
    new = leverages >= 1.0 - _NEW_ROW
    if not new.any():
        raise InputError(
            "`X` must have a row that is not a combination of the others: leaving out any of them changes nothing that "
            "the rest determines, so there is no leave-one-out scale; use method='power'."
        )
    whitened = pair.train_left[new] / pair.train_singular_values
    lengths = np.linalg.norm(whitened, axis=1)  # roots of the diagonal of K^+
    to_residuals = whitened / lengths[:, None] / lengths[:, None]
    residuals = np.full((pair.n_train, fit.coordinates.shape[1]), np.nan)
    residuals[new] = to_residuals @ fit.coordinates
    size = frobenius(residuals[new])
    tau = size / frobenius(1.0 / lengths)

    roots = pair.schur_singular_values()
    largest = float(roots.max(initial=0.0))
    response = np.linalg.svd(to_residuals, compute_uv=False)
    law, unit = None, 0.0
    if largest > 0.0 and size > 0.0:
        # TestLoss = |e|^2 sum l chi^2 / (m sum g chi^2), with the largest l and g taken out.
        root_unit = largest * size / response[0]
        unit = as_finite_result(root_unit * root_unit / pair.n_ood, "the law of the loss")
        kept = response > EPS * response[0]
        weights = (response[kept] / response[0]) ** 2
        law = RatioLaw((roots / largest) ** 2, q, weights, np.full(weights.size, float(q)))
    typical = tau * frobenius(roots)
    return ScaledLoss(
        mean=as_finite_result(typical * typical / pair.n_ood, "the average loss"),
        scale=tau * tau,
        law=law,
        unit=unit,
        independent_outputs=q,
        training_residual=fit.residual,
        interpolates=fit.interpolates,
        assumptions=(
            *training_assumptions(fit),
            _LIKE_TRAINING_ROWS,
            f"the interval is exact where {isotropy_assumption(q)}",
            _FAILS_IF_SPECTRUM_CHANGES,
            NEVER_ALONE,
        ),
        method="loo",
        exponent=math.nan,
        leave_one_out=residuals,
    )


def _power_prior(pair: LinearPair, fit: TrainingFit, q: int, exponent: float | None) -> ScaledLoss:
    prior = _PowerPrior.from_fit(pair, fit, q)
    exponent, features = prior.likeliest() if exponent is None else prior.at(exponent)
    length = frobenius(features.solution)
    dof = pair.train_rank * q

    predicted = pair.ood_singular_values[:, None] * (pair.cosines @ fit.coordinates)
    bias = (predicted - features.ood @ (features.basis @ features.solution)) / math.sqrt(pair.n_ood)
    new = features.ood
    for _ in range(2):  # the second pass takes away what rounding left
        new = new - (new @ features.basis) @ features.basis.T
    axes, roots, _ = np.linalg.svd(new, full_matrices=False)
    roots = roots * (length / math.sqrt(pair.n_ood))
    kept = roots > EPS * frobenius(features.ood) * length
    shifts = np.sum((axes[:, kept].T @ bias) ** 2, axis=1)
    bias_squared = sum_of_squares(bias)
    variance = sum_of_squares(roots[kept])
    as_finite_result(bias_squared + variance, "the average loss")
    inverse = q / (dof - 2) if dof > 2 else math.inf
    law = None
    if kept.any():
        law = ShiftedLaw(roots[kept] ** 2, q, shifts, max(bias_squared - float(shifts.sum()), 0.0), dof)
    return ScaledLoss(
        mean=bias_squared + (inverse * variance if variance else 0.0),
        scale=inverse * length * length,
        law=law,
        unit=1.0,
        independent_outputs=q,
        training_residual=fit.residual,
        interpolates=fit.interpolates,
        assumptions=(
            *training_assumptions(fit),
            f"theta* is Gaussian with covariance proportional to (Z^T Z)^{exponent:.3g}, Z the inputs of both sets",
            "the exponent is taken as known, although it is fitted to Y unless it was passed",
            _FAILS_IF_SPECTRUM_CHANGES,
            NEVER_ALONE,
        ),
        method="power",
        exponent=exponent,
        leave_one_out=np.full((pair.n_train, fit.coordinates.shape[1]), np.nan),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _PowerFeatures:
    r"""The rows of both sets in the features :math:`Z (Z^\top Z)^{a/2}`, where the power prior is isotropic.

    Attributes:
        ood: Shifted rows, rotated by the left singular vectors of `X_ood`.
        basis: Orthonormal basis of the span of the training rows.
        solution: Minimum-norm solution in these features, in `basis`.
        log_likelihood: Log-likelihood of the training responses, with the scale profiled out.
    """

    ood: FloatArray
    basis: FloatArray
    solution: FloatArray
    log_likelihood: float


@dataclass(frozen=True, slots=True, eq=False)
class _PowerPrior:
    r"""The power priors of a pair, one for each exponent.

    Attributes:
        left: Left singular vectors of the stacked rows :math:`A^\top X` and :math:`B^\top\tilde X`.
        logs: Logarithms of their singular values, relative to the largest.
        scores: :math:`A^\top Y`, shape ``(train_rank, c)``.
        independent_outputs: Number of independent outputs.
    """

    left: FloatArray
    logs: FloatArray
    scores: FloatArray
    independent_outputs: int

    @classmethod
    def from_fit(cls, pair: LinearPair, fit: TrainingFit, independent_outputs: int) -> _PowerPrior:
        """Decompose the stacked rows, in an orthonormal basis of their span in which `V` is [cosines, sines^T]."""
        s, t = pair.train_singular_values, pair.ood_singular_values[:, None]
        unseen = np.zeros((s.size, pair.ood_sines.shape[0]))
        stacked = np.block([[np.diag(s), unseen], [t * pair.cosines, t * pair.ood_sines.T]])
        left, roots, _ = np.linalg.svd(stacked, full_matrices=False)
        sines = np.linalg.svd(pair.ood_sines, compute_uv=False)
        rank = min(s.size + int(np.count_nonzero(sines > _NEGLIGIBLE_SINE)), roots.size)
        if roots[rank - 1] <= _SMALLEST * roots[0]:
            raise InputError(
                f"the inputs are too ill conditioned for a power prior: the singular values of both sets together span "
                f"a factor of {roots[0] / roots[rank - 1]:.1e}, more than float64 resolves. Use method='loo'."
            )
        logs = np.log(roots[:rank] / roots[0])
        return cls(left[:, :rank], logs, s[:, None] * fit.coordinates, independent_outputs)

    def features(self, exponent: float) -> _PowerFeatures | None:
        """The features for one exponent; None where float64 cannot tell the training rows apart in them."""
        rank = self.scores.shape[0]
        rows = self.left * np.exp((1.0 + exponent) * self.logs)
        basis, triangle = linalg.qr(rows[:rank].T, mode="economic", check_finite=False)
        lengths = np.abs(np.diag(triangle))
        if lengths.min() <= _SMALLEST * lengths.max():
            return None
        solution = linalg.solve_triangular(triangle, self.scores, trans="T", check_finite=False)
        log_likelihood = -float(np.sum(np.log(lengths))) - rank * math.log(frobenius(solution))
        return _PowerFeatures(rows[rank:], basis, solution, self.independent_outputs * log_likelihood)

    def at(self, exponent: float) -> tuple[float, _PowerFeatures]:
        """The exponent itself and its features.

        Raises:
            InputError: If float64 cannot resolve them.
        """
        features = self.features(exponent)
        if features is None:
            raise InputError(
                f"`X` is too ill conditioned for a power prior: with the exponent {exponent:.3g} its rows cannot be "
                "told apart next to those of `X_ood`. Use method='loo'."
            )
        return exponent, features

    def likeliest(self) -> tuple[float, _PowerFeatures]:
        """The exponent of largest marginal likelihood among those that float64 resolves, and its features."""

        def cost(exponent: float) -> float:
            features = self.features(exponent)
            return math.inf if features is None else -features.log_likelihood

        grid = np.linspace(*EXPONENTS, _EXPONENT_GRID)
        costs = np.array([cost(exponent) for exponent in grid])
        best = int(np.argmin(costs))
        around = slice(max(best - 1, 0), best + 2)
        exponent = float(grid[best])
        if np.all(np.isfinite(costs[around])):
            bounds = (grid[around][0], grid[around][-1])
            refined = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-4})
            exponent = float(refined.x) if refined.fun <= costs[best] else exponent
        return self.at(exponent)
