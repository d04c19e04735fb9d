r"""What a ridge and hard pseudo-labels do for ProjNormLinear: a certificate for the classification error.

Section 7 of docs/theory.md. Training on pseudo-labels with a ridge moves the weights for two reasons: the ridge fit to
the *true* labels of the shifted set is elsewhere (drift), and some pseudo-labels are wrong (mistakes). The map from
mistakes to weights is known, so what drift cannot explain of the movement must be mistakes.

The ridge is per sample throughout: the fit minimises :math:`\|\tilde X\theta - \tilde Y\|^2/m + b\|\theta\|^2`, which
is the ridge :math:`mb` on the Gram matrix in `projnorm_linear_of_pair`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import LinearPair, as_pair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.validation import FloatArray, as_non_negative, as_range, as_rows

# How far below the smallest possible drift one may be that was itself measured.
_MEASURED = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class RidgeErrorBound(Result):
    r"""Bounds on the fraction of wrong pseudo-labels, with the decomposition they come from.

    .. math:: \hat\theta - \tilde\theta = \underbrace{\hat\theta - \tilde\theta_\star}_{\text{drift}}
              + \underbrace{\tilde\theta_\star - \tilde\theta}_{\text{mistakes}}

    with :math:`\tilde\theta` the ridge fit to the pseudo-labels and :math:`\tilde\theta_\star` that to the true labels.

    Attributes:
        lower: Lower end for the error, the fraction of shifted examples whose pseudo-label is wrong.
        upper: Upper end; 1 where `X_ood` has dependent rows, because mistakes can then cancel each other.
        certificate: The plain lower end :math:`2b(\mathrm{ProjNormLinear}_b - \mathrm{drift})_+^2` for one-hot labels
            (half of it for labels of plus and minus one), which needs no spectrum; never above `lower`.
        projnorm: :math:`\mathrm{ProjNormLinear}_b = \|\hat\theta - \tilde\theta\|`.
        outside: The part of theta outside the shifted row space, :math:`\|(I - \tilde P)\hat\theta\|`; it is in
            `projnorm` and in the drift alike.
        drift: Values of :math:`\|\hat\theta - \tilde\theta_\star\|` allowed, (low, high); measured if there are
            labels.
        mistakes: :math:`\|\tilde\theta_\star - \tilde\theta\|`; nan without labels.
        alignment: Cosine of the angle between drift and mistakes; nan without labels or where one of them is zero.
        error: The fraction of wrong pseudo-labels; nan without labels.
        ridge: The ridge per sample, :math:`b`.
        gains: Smallest and largest factor :math:`\sqrt{l}/(l + b)` by which mistakes move weights, over the nonzero
            eigenvalues of :math:`\tilde X^\top\tilde X/m`.
        full_row_rank: Whether the rows of `X_ood` are independent.
        assumptions: What must be true for the two ends, in words.
    """

    lower: float
    upper: float
    certificate: float
    projnorm: float
    outside: float
    drift: tuple[float, float]
    mistakes: float
    alignment: float
    error: float
    ridge: float
    gains: tuple[float, float]
    full_row_rank: bool
    assumptions: tuple[str, ...]

    def headline(self) -> str:
        """The two ends, and the error where it is known."""
        measured = "" if math.isnan(self.error) else f"; measured {self.error:.4g}"
        return f"error from {self.lower:.4g} to {self.upper:.4g} (ridge {self.ridge:.4g} per sample{measured})"


@dataclass(frozen=True, slots=True, eq=False)
class RidgeBalance(Result):
    r"""The ridge that lets every direction's mistakes move the weights most evenly.

    Attributes:
        ridge: :math:`b = \sqrt{l_{\max}l_{\min}}`, per sample.
        condition: Largest over smallest squared gain :math:`l_j/(l_j + b)^2` at that ridge.
        condition_bound: :math:`(1 + \sqrt k)^2/(4\sqrt k)`, which it never exceeds.
        unregularised: :math:`k = l_{\max}/l_{\min}`, the same ratio with no ridge, and with a very large one.
    """

    ridge: float
    condition: float
    condition_bound: float
    unregularised: float


def ridge_error_bound(
    X: ArrayLike | LinearPair,
    Y: ArrayLike,
    X_ood: ArrayLike | None = None,
    *,
    ridge: float,
    drift: float | tuple[float, float] | None = None,
    Y_ood: ArrayLike | None = None,
    pseudo_labels: ArrayLike | None = None,
    train_ridge: float = 0.0,
) -> RidgeErrorBound:
    r"""How many pseudo-labels must be wrong for training on them to move the weights as far as it does.

    With :math:`l_j` the nonzero eigenvalues of :math:`\tilde X^\top\tilde X/m` and
    :math:`\gamma_j = \sqrt{l_j}/(l_j + b)`, exactly

    .. math:: \hat\theta - \tilde\theta = (\hat\theta - \tilde\theta_\star)
              + (\tilde X^\top\tilde X/m + b)^{-1}\tilde X^\top(\tilde Y_\star - \hat Y)/m ,

    and the last term, the mistakes, has a norm between :math:`\gamma_{\min}` (for independent rows of `X_ood`) and
    :math:`\gamma_{\max} \le 1/(2\sqrt b)` times :math:`\|\tilde Y_\star - \hat Y\|/\sqrt m`, which is
    :math:`\sqrt{2\,\mathrm{err}}` for one-hot labels. With `p` and `q` the parts of ProjNormLinear and of the drift
    inside the shifted row space, where alone the two differ,

    .. math:: \frac{(p - q)^2}{2\gamma_{\max}^2} \le \mathrm{err} \le \frac{(p + q)^2}{2\gamma_{\min}^2}, \qquad
              \mathrm{err} \ge 2b\,(\mathrm{ProjNormLinear}_b - \mathrm{drift})_+^2 .

    The drift is the one thing that needs the labels of the shifted set. Pass `Y_ood` to measure it, on data where the
    decomposition is to be studied or on a labelled set like the target, and `drift` to assume it where there are none.

    Args:
        X: Training inputs, shape ``(n, d)``; or a `LinearPair`, and then no `X_ood`.
        Y: Training responses, shape ``(n, c)`` for `c` classes, or ``(n,)`` for two classes called plus and minus one.
        X_ood: Shifted inputs, shape ``(m, d)``.
        ridge: Ridge per sample on the shifted set, :math:`b \ge 0`; on the Gram matrix it is :math:`mb`.
        drift: The largest :math:`\|\hat\theta - \tilde\theta_\star\|` to allow for, or a range (low, high) of it.
        Y_ood: True labels of the shifted inputs, one-hot ``(m, c)`` or plus and minus one; instead of `drift`.
        pseudo_labels: Hard labels of the same form. Default: the class that theta predicts.
        train_ridge: Ridge per sample of the training fit theta; by default it is the minimum-norm solution.

    Raises:
        InputError: If a shape is wrong, labels are not hard, not exactly one of `drift` and `Y_ood` is given, or
            `drift` is one that no labels have.

    >>> bound = ridge_error_bound([[1.0, 0.0]], [1.0], [[1.0, 0.0]], ridge=1.0, Y_ood=[-1.0])
    >>> bound.error, round(bound.lower, 12), bound.projnorm, bound.drift  # one direction: b = l, 1 -> 1/2 or -1/2
    (1.0, 1.0, 0.5, (1.5, 1.5))
    """
    pair = as_pair(X, X_ood)
    b, a = as_non_negative(ridge, "ridge"), as_non_negative(train_ridge, "train_ridge")
    if (drift is None) == (Y_ood is None):
        raise InputError(
            "exactly one of `drift` and `Y_ood` must be given: the drift assumed, or labels to measure it."
        )
    fit = pair.fit(Y)
    shrinkage = 1.0 / (1.0 + a * (math.sqrt(pair.n_train) / pair.train_singular_values) ** 2)
    theta = shrinkage[:, None] * fit.coordinates
    seen = pair.cosines @ theta
    outside = pair.distance_to_ood(theta)
    labels = (
        _hard_labels(pair, seen) if pseudo_labels is None else _as_hard(pair, pseudo_labels, "pseudo_labels", theta)
    )
    roots = pair.ood_singular_values / math.sqrt(pair.n_ood)
    fits = _RidgeFits(pair, seen, 1.0 / (roots + b / roots))
    moved = fits.difference(labels)
    p = frobenius(moved)
    if Y_ood is not None:
        inside = _InsideDrift.from_labels(fits, _as_hard(pair, Y_ood, "Y_ood", theta), labels, outside)
    else:
        inside = _assumed_drift(drift, outside)
    span = (math.hypot(outside, inside.low), math.hypot(outside, inside.high))
    smallest, largest = fits.gain_range
    apart = max(p - inside.high, inside.low - p, 0.0)
    per_mistake = 4.0 if theta.shape[1] == 1 else 2.0  # squared distance between two different labels
    projnorm = math.hypot(outside, p)
    farthest = largest * math.sqrt(per_mistake)  # how far wrong labels throughout can move the weights
    if drift is not None and apart > farthest + _MEASURED * (p + inside.low):
        feasible = (math.hypot(outside, max(p - farthest, 0.0)), math.hypot(outside, p + farthest))
        raise InputError(
            f"`drift` must lie between {feasible[0]:.6g} and {feasible[1]:.6g}: with any other, not even wrong labels "
            f"throughout explain a ProjNormLinear of {projnorm:.6g}; got {drift!r}."
        )
    full_row_rank = pair.ood_rank == pair.n_ood
    return RidgeErrorBound(
        lower=_share_of_mistakes(apart, largest, per_mistake) if largest else 0.0,
        upper=_share_of_mistakes(p + inside.high, smallest, per_mistake) if full_row_rank else 1.0,
        certificate=_share_of_mistakes(2 * math.sqrt(b) * max(projnorm - span[1], 0.0), 1.0, per_mistake),
        projnorm=projnorm,
        outside=outside,
        drift=span,
        mistakes=inside.mistakes,
        alignment=inside.alignment,
        error=inside.error,
        ridge=b,
        gains=(smallest, largest),
        full_row_rank=full_row_rank,
        assumptions=_assumptions(span, is_measured=Y_ood is not None, full_row_rank=full_row_rank),
    )


def balancing_ridge(pair: LinearPair) -> RidgeBalance:
    r"""The ridge per sample for which the map from mistakes to weights is best conditioned.

    .. math:: b = \sqrt{l_{\max}l_{\min}}, \qquad
              \frac{\max_j l_j/(l_j+b)^2}{\min_j l_j/(l_j+b)^2} \le \frac{(1+\sqrt k)^2}{4\sqrt k},
              \quad k = \frac{l_{\max}}{l_{\min}}

    with :math:`l_j` the nonzero eigenvalues of :math:`\tilde X^\top\tilde X/m`. Without a ridge the ratio is `k`: a
    mistake along a small eigenvalue moves the weights far more than one along a large eigenvalue, and the distance
    counts directions, not mistakes. No other ridge gives a smaller ratio, whatever eigenvalues lie between the two.

    Args:
        pair: The two row spaces; only the shifted one enters.

    Raises:
        InputError: If `X_ood` is zero.

    >>> balance = balancing_ridge(LinearPair.from_features([[1.0, 0.0]], [[4.0, 0.0], [0.0, 1.0]]))  # l = 8 and 1/2
    >>> round(balance.ridge, 12), round(balance.condition, 12), round(balance.condition_bound, 12)
    (2.0, 1.0, 1.5625)
    """
    if pair.ood_rank == 0:
        raise InputError("`X_ood` must not be zero: without eigenvalues there is nothing to balance.")
    roots = pair.ood_singular_values / math.sqrt(pair.n_ood)
    ridge = float(roots[0]) * float(roots[-1])
    gains = 1.0 / (roots + ridge / roots)
    root_k = float(roots[0] / roots[-1])  # sqrt(k)
    return RidgeBalance(
        ridge=ridge,
        condition=float(gains.max() / gains.min()) ** 2,
        condition_bound=(1.0 + root_k) ** 2 / (4.0 * root_k),
        unregularised=root_k * root_k,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _RidgeFits:
    """Ridge fits to labels of the shifted set, in the coordinates of its row space.

    Attributes:
        pair: The two row spaces.
        seen: Theta in these coordinates, shape ``(ood_rank, c)``.
        gains: Factor by which labels along each coordinate move the weights, shape ``(ood_rank,)``.
    """

    pair: LinearPair
    seen: FloatArray
    gains: FloatArray

    def difference(self, hard: FloatArray) -> FloatArray:
        """Theta minus the ridge fit to these labels."""
        return self.seen - self.gains[:, None] * (self.pair.ood_left.T @ hard) / math.sqrt(self.pair.n_ood)

    @property
    def gain_range(self) -> tuple[float, float]:
        """The smallest and the largest gain; zeros where `X_ood` is zero."""
        return (float(self.gains.min()), float(self.gains.max())) if self.gains.size else (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _InsideDrift:
    """The drift inside the shifted row space, and what only labels of the shifted set measure.

    Attributes:
        low: Smallest drift inside.
        high: Largest drift inside.
        mistakes: As in `RidgeErrorBound`.
        alignment: As in `RidgeErrorBound`.
        error: As in `RidgeErrorBound`.
    """

    low: float
    high: float
    mistakes: float = math.nan
    alignment: float = math.nan
    error: float = math.nan

    @classmethod
    def from_labels(cls, fits: _RidgeFits, truth: FloatArray, labels: FloatArray, outside: float) -> _InsideDrift:
        """The drift that true labels measure, beside pseudo-labels."""
        moved, drifted = fits.difference(labels), fits.difference(truth)
        inside, mistakes = frobenius(drifted), frobenius(moved - drifted)
        product = math.hypot(outside, inside) * mistakes
        alignment = float(np.sum(drifted * (moved - drifted))) / product if product else math.nan
        return cls(inside, inside, mistakes, alignment, float(np.mean(np.any(truth != labels, axis=1))))


def _assumptions(span: tuple[float, float], *, is_measured: bool, full_row_rank: bool) -> tuple[str, ...]:
    """What must be true for the two ends, in words; `span` is the range of the drift."""
    return (
        "true labels and pseudo-labels are hard, one class for each example",
        "the drift is measured with the true labels"
        if is_measured
        else f"the ridge fit to the true labels is at a distance from theta in [{span[0]:.6g}, {span[1]:.6g}]",
        "the rows of X_ood are independent, so that the upper end holds"
        if full_row_rank
        else "the rows of X_ood are dependent: mistakes may cancel, and there is no upper end",
    )


def _share_of_mistakes(distance: float, gain: float, per_mistake: float) -> float:
    """The error that moves weights by `distance` at this gain, at most 1."""
    return min(min(distance / gain, per_mistake) ** 2 / per_mistake, 1.0)


def _assumed_drift(drift: Any, outside: float) -> _InsideDrift:
    """The drift allowed inside the shifted row space, once the part outside, which is known, is taken away."""
    low, high = as_range(drift, "drift")
    if np.ndim(drift) == 0:
        low = 0.0
    if high < outside * (1.0 - _MEASURED):
        raise InputError(
            f"`drift` must be at least {outside:.6g}, the distance of theta to the row space of `X_ood`, where every "
            f"ridge fit to labels lies; got {drift!r}."
        )
    return _InsideDrift(*(math.sqrt(max(end - outside, 0.0)) * math.sqrt(end + outside) for end in (low, high)))


def _hard_labels(pair: LinearPair, seen: FloatArray) -> FloatArray:
    """The class that weights predict for each shifted example, one-hot or plus and minus one."""
    predictions = pair.ood_left @ (pair.ood_singular_values[:, None] * seen)
    if predictions.shape[1] == 1:
        return np.where(predictions >= 0.0, 1.0, -1.0)
    return np.eye(predictions.shape[1])[np.argmax(predictions, axis=1)]


def _as_hard(pair: LinearPair, labels: ArrayLike, name: str, theta: FloatArray) -> FloatArray:
    """Labels as a matrix of shape ``(m, c)``, refused unless each row names one class."""
    outputs = theta.shape[1]
    hard = as_rows(labels, name, rows=pair.n_ood, rows_like="`X_ood`").reshape(pair.n_ood, -1)
    if hard.shape[1] != outputs:
        raise InputError(f"`{name}` must have {outputs} outputs like `Y`; got {hard.shape[1]}.")
    if outputs == 1:
        good = np.abs(hard[:, 0]) == 1.0
        required = "1 or -1"
    else:
        good = np.all((hard == 0.0) | (hard == 1.0), axis=1) & (hard.sum(axis=1) == 1.0)
        required = "one-hot, a single 1 among zeros"
    if not good.all():
        raise InputError(f"`{name}` must be hard labels, each row {required}; row {int(np.argmin(good))} is not.")
    return hard
