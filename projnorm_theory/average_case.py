r"""The average case: the exact law of the test loss when the ground truth has no preferred direction.

Section 6 of docs/theory.md. Nothing here needs an assumption on norms. What takes its place, a rotation-invariant
ground truth, is a strong one, and wrong for truths that are aligned with the leading directions of the inputs, as those
of trained networks are. The average case is therefore to be read next to an interval, never alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.bounds import training_assumptions
from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import sum_of_squares
from projnorm_theory.quadratic_forms import RatioLaw, ShiftedLaw, quadratic_tails, quantile
from projnorm_theory.results import Result
from projnorm_theory.training_fit import TrainingFit
from projnorm_theory.validation import FloatArray, as_count, as_finite_result, as_fraction

NEVER_ALONE = (
    "an average never stands alone: for truths aligned with the leading directions of the inputs it can be wrong by "
    "orders of magnitude, so read it next to an interval"
)


@dataclass(frozen=True, slots=True, eq=False)
class PredictionInterval(Result):
    """An interval that holds the test loss with a stated probability.

    Attributes:
        lower: Lower end for TestLoss.
        upper: Upper end for TestLoss.
        level: The probability, half of the rest on each side.
    """

    lower: float
    upper: float
    level: float

    def headline(self) -> str:
        """The ends and the probability."""
        return f"TestLoss from {self.lower:.6g} to {self.upper:.6g} with probability {self.level:.4g}"


@dataclass(frozen=True, slots=True, eq=False)
class LossPrediction(Result):
    r"""A law of the test loss over ground truths, with the quantities that it was computed from.

    Attributes:
        mean: Mean of TestLoss; infinite where the training data fix the scale of the truth too loosely for a mean.
        scale: :math:`\tau^2`, the squared length of theta* per dimension, summed over the outputs.
        law: The law of TestLoss divided by `unit`; None where the loss is known to be `mean`.
        unit: What the law is multiplied by.
        independent_outputs: Number of outputs that vary independently of each other.
        training_residual: ``||X theta - Y||``.
        interpolates: Whether that is rounding only. If not, the law speaks of a `theta*` whose projection on the
            training row space is the fitted `theta`.
        assumptions: What must be true for the law to hold and where it fails, in words.
    """

    mean: float
    scale: float
    law: RatioLaw | ShiftedLaw | None
    unit: float
    independent_outputs: int
    training_residual: float
    interpolates: bool
    assumptions: tuple[str, ...]

    def headline(self) -> str:
        """The mean, and that it is an average."""
        fit = "" if self.interpolates else "; the training data is not interpolated"
        return f"TestLoss {self.mean:.6g} on average ({self._kind()}{fit}); {NEVER_ALONE}"

    def _kind(self) -> str:
        return "over ground truths"

    def cdf(self, loss: float) -> float:
        """Probability of a test loss of at most `loss`."""
        if math.isnan(loss):
            raise InputError("`loss` must be a number; got nan.")
        if self.law is None:
            return float(loss >= self.mean)
        return self.law.tails(float(loss) / self.unit).lower

    def quantile(self, p: float) -> float:
        """The loss that is not exceeded with probability `p`, strictly between 0 and 1."""
        p = as_fraction(p, "p")
        if self.law is None:
            return self.mean
        return as_finite_result(self.unit * quantile(self.law, p), "the quantile of the loss")

    def interval(self, level: float = 0.9) -> PredictionInterval:
        """The interval between the quantiles ``(1 - level) / 2`` and ``(1 + level) / 2``."""
        level = as_fraction(level, "level")
        return PredictionInterval(self.quantile((1 - level) / 2), self.quantile((1 + level) / 2), level)


@dataclass(frozen=True, slots=True, eq=False)
class SphericalLoss(LossPrediction):
    r"""The exact law of the test loss for a rotation-invariant ground truth.

    Attributes:
        schur_eigenvalues: :math:`l_j`, eigenvalues of the Schur complement :math:`\tilde K - CK^{+}C^\top`, descending.
        train_rank: Rank of `X`, the degrees of freedom per output.
        isotropy_p_value: How likely a rotation-invariant truth is to spread over the training spectrum as unevenly as
            the fitted weights do: a small value refutes the assumption. It is exact, two-sided, and the score test
            against truths whose squared coordinates follow a power of the eigenvalues. nan where `X` has rank one or a
            flat spectrum.
    """

    schur_eigenvalues: FloatArray
    train_rank: int
    isotropy_p_value: float

    def _kind(self) -> str:
        return f"over rotations of the ground truth, isotropy p-value {self.isotropy_p_value:.2g}"


@dataclass(frozen=True, slots=True, eq=False)
class AverageRatio(Result):
    r"""The Proposition in the mean: the ratio of the average test loss to the average squared ProjNormLinear.

    Attributes:
        ratio: :math:`\mathbb E\,\mathrm{TestLoss} / \mathbb E\,\mathrm{ProjNormLinear}^2`; infinite where
            ProjNormLinear is always zero but the loss is not, nan where both are.
        mean_eigenvalue: :math:`\sum_j \lambda_j\sin_j^2 / (m\sum_j\sin_j^2)`, a weighted mean of
            :math:`\lambda_j/m`; nan where every sine is zero.
        rank_factor: ``ratio / mean_eigenvalue``, which is 1 when the two ranks are equal.
        loss: :math:`m^{-1}\sum_j\lambda_j\sin_j^2`: average test loss per unit of :math:`\tau^2`.
        projnorm_squared: :math:`r - \sum_j\cos_j^2` with `r` the rank of `X`: average ProjNormLinear^2 per unit of
            :math:`\tau^2`.
    """

    ratio: float
    mean_eigenvalue: float
    rank_factor: float
    loss: float
    projnorm_squared: float

    def headline(self) -> str:
        """The ratio, and that it is an average."""
        return f"E TestLoss / E ProjNormLinear^2 = {self.ratio:.6g} for isotropic truths; {NEVER_ALONE}"


def spherical_loss(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    *,
    independent_outputs: int | None = None,
) -> SphericalLoss:
    r"""The law of the test loss over ground truths of random direction, given what the training data tell.

    .. math:: \frac{m\,\mathrm{TestLoss}}{\|\hat\theta\|^2} \sim \frac{\sum_j l_j\,\chi^2_{q}}{\chi^2_{rq}}

    with independent chi-squares, :math:`l_j` the eigenvalues of the Schur complement :math:`\tilde K - CK^{+}C^\top`,
    `r` the rank of `X` and `q` the number of independent outputs. It is exact if the law of :math:`\theta_\star` is
    unchanged by rotations of the `d` entries of its only column, whatever the law of its length. For several outputs it
    is exact if :math:`\theta_\star = \Theta Q^\top` where :math:`\Theta` has `q` columns, those of `Q` are orthonormal,
    and the law of :math:`\Theta` is unchanged by rotations of all its ``d q`` entries together. Invariance under
    rotations of the `d` features alone does not fix the law of the sum over outputs; each output alone then has the
    law for one.

    The mean is :math:`q\operatorname{tr}(\tilde K - CK^{+}C^\top)\,\|\hat\theta\|^2 / (m(rq - 2))` for ``r q > 2`` and
    infinite otherwise.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``, not all zero.
        X_ood: Shifted inputs, shape ``(m, d)``.
        independent_outputs: `q`, from 1 to `c`. Default `c`.

    Raises:
        InputError: If a shape is wrong, an entry is not finite, or the fitted weights are zero.

    >>> law = spherical_loss([[1.0, 0.0]], [2.0], [[0.0, 3.0]])  # 36 times a ratio F(1, 1)
    >>> round(law.quantile(0.5), 9), law.mean
    (36.0, inf)
    """
    pair = as_pair(X, X_ood)
    fit = pair.fit(Y)
    q = as_independent_outputs(independent_outputs, fit)
    require_a_length(fit)
    roots = pair.schur_singular_values()
    largest = float(roots.max(initial=0.0))
    dof = pair.train_rank * q
    unit = as_finite_result(largest * fit.norm * (largest * fit.norm) / pair.n_ood, "the law of the loss")
    law = None
    if unit > 0.0:
        law = RatioLaw((roots / largest) ** 2, q, np.ones(1), np.array([float(dof)]))
    # The mean of q / chi^2_{rq}.
    inverse = q / (dof - 2) if dof > 2 else math.inf
    return SphericalLoss(
        mean=unit * inverse * float(law.weights.sum()) if law is not None else 0.0,
        scale=inverse * fit.norm * fit.norm,
        law=law,
        unit=unit,
        independent_outputs=q,
        training_residual=fit.residual,
        interpolates=fit.interpolates,
        assumptions=(*training_assumptions(fit), isotropy_assumption(q), NEVER_ALONE),
        schur_eigenvalues=roots**2,
        train_rank=pair.train_rank,
        isotropy_p_value=_isotropy_p_value(pair, fit, q),
    )


def average_ratio(X: ArrayLike | LinearPair, X_ood: ArrayLike | None = None) -> AverageRatio:
    r"""The Proposition in the mean, with no assumption on the spectra.

    .. math:: \frac{\mathbb E\,\mathrm{TestLoss}}{\mathbb E\,\mathrm{ProjNormLinear}^2}
              = \frac{m^{-1}\sum_j\lambda_j\sin_j^2}{r - \sum_j\cos_j^2}

    where :math:`\sin_j` and :math:`\cos_j` are those of the angle between the eigenvector :math:`v_j` of
    :math:`\tilde X^\top\tilde X` and the row space of `X`, and `r` is the rank of `X`. It holds for every random truth
    with :math:`\mathbb E\,\theta_\star\theta_\star^\top \propto I`. When both ranks are equal the denominator is
    :math:`\sum_j\sin_j^2`, so the ratio is a weighted mean of :math:`\lambda_j/m`, where the Proposition bounds it by
    the extreme ones.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        X_ood: Shifted inputs, shape ``(m, d)``.

    Raises:
        InputError: If a shape is wrong or an entry is not finite.

    >>> average_ratio([[1.0, 0.0, 0.0]], [[0.0, 3.0, 0.0]]).ratio.__round__(12)  # orthogonal rows: lambda / m
    9.0
    """
    pair = as_pair(X, X_ood)
    loss = as_finite_result(sum_of_squares(pair.schur_singular_values()) / pair.n_ood, "the average loss")
    projnorm_squared, sines_squared = sum_of_squares(pair.train_sines), sum_of_squares(pair.ood_sines)
    return AverageRatio(
        ratio=_over(loss, projnorm_squared),
        mean_eigenvalue=_over(loss, sines_squared),
        rank_factor=_over(sines_squared, projnorm_squared),
        loss=loss,
        projnorm_squared=projnorm_squared,
    )


def as_independent_outputs(value: int | None, fit: TrainingFit) -> int:
    """The number of outputs that vary independently; by default all."""
    outputs = fit.coordinates.shape[1]
    if value is None:
        return outputs
    return as_count(value, "independent_outputs", low=1, high=outputs, because=", the number of outputs")


def require_a_length(fit: TrainingFit) -> None:
    """Refuse fitted weights of zero: the law is a multiple of their length."""
    if fit.norm == 0.0:
        raise InputError("`Y` must not be zero on the column space of `X`: theta = 0 gives the truth no scale.")


def isotropy_assumption(independent_outputs: int) -> str:
    """What a rotation-invariant truth means, in words."""
    if independent_outputs == 1:
        return "theta* has no preferred direction: rotations of the features leave its law unchanged"
    return (
        f"theta* has no preferred direction: rotations of all entries of its {independent_outputs} independent outputs "
        f"together leave its law unchanged"
    )


def _isotropy_p_value(pair: LinearPair, fit: TrainingFit, independent_outputs: int) -> float:
    r"""Two-sided p-value of :math:`\sum_i \log\mu_i \|a_i\|^2 / \|a\|^2`, a ratio of quadratic forms in normals."""
    logs = 2 * np.log(pair.train_singular_values)
    shares = np.sum((fit.coordinates / fit.norm) ** 2, axis=1)
    # Differences to the last entry, so that a flat spectrum is seen as flat.
    logs = logs - logs[-1]
    if logs[0] <= 1e-8:
        return math.nan
    tails = quadratic_tails(logs - float(logs @ shares), np.full(logs.size, float(independent_outputs)))
    return min(1.0, 2 * min(tails.lower, tails.upper))


def _over(numerator: float, denominator: float) -> float:
    if denominator > 0.0:
        return numerator / denominator
    return math.inf if numerator > 0.0 else math.nan
