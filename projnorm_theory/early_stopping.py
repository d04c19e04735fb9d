"""ProjNormLinear when training on the pseudo-labels is stopped early, in closed form.

Section 7 of docs/theory.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from projnorm_theory.errors import InputError
from projnorm_theory.linear_pair import LinearPair
from projnorm_theory.norms import frobenius
from projnorm_theory.results import Result
from projnorm_theory.validation import FloatArray, as_non_negative


@dataclass(frozen=True, slots=True, eq=False)
class StoppedProjNorm(Result):
    r"""ProjNormLinear after numbers of gradient steps.

    Attributes:
        values: :math:`\|\hat\theta - \tilde\theta_T\|`, of the shape of `steps`.
        steps: Numbers of steps :math:`T`.
        step_size: The step :math:`h`.
        largest_step: Steps from here on do not converge: :math:`2 / l_{\max}`; infinite where `X_ood` is zero.
        limit: What the values tend to: ProjNormLinear for the model's own pseudo-labels.
        equivalent_ridge: :math:`1/(hT)`, the per-sample ridge whose filter is closest; infinite at no steps.
    """

    values: FloatArray
    steps: NDArray[np.int64]
    step_size: float
    largest_step: float
    limit: float
    equivalent_ridge: FloatArray


def projnorm_linear_after(
    pair: LinearPair,
    Y: ArrayLike,
    *,
    steps: ArrayLike,
    step_size: float,
    pseudo_labels: ArrayLike | None = None,
) -> StoppedProjNorm:
    r"""ProjNormLinear when training on the pseudo-labels stops after `T` steps of gradient descent from zero.

    The steps minimise :math:`\|\tilde X\theta - \tilde Y\|^2 / (2m)`. With :math:`l_j, v_j` the eigenvalues and
    eigenvectors of :math:`\tilde X^\top\tilde X/m` and the model's own predictions as labels,

    .. math:: \|\hat\theta - \tilde\theta_T\|^2 = \mathrm{ProjNormLinear}^2
              + \sum_j (1 - h l_j)^{2T} \|v_j^\top\hat\theta\|^2 .

    Stopping is a spectral filter: along :math:`v_j` the fraction :math:`1 - (1 - hl_j)^T` of the labels is learnt,
    where a ridge `b` learns :math:`l_j/(l_j + b)`. The two are close for :math:`b = 1/(hT)`, and for
    :math:`h l_{\max} \le 1` stopping learns the larger fraction of the two, so with the model's own labels its value is
    the smaller.

    Args:
        pair: The two row spaces.
        Y: Training responses, shape ``(n,)`` or ``(n, c)``; theta is their minimum-norm fit.
        steps: Numbers of steps, whole and not negative, any shape.
        step_size: :math:`h > 0`, below :math:`2/l_{\max}`.
        pseudo_labels: Responses of the shifted inputs, shape ``(m,)`` or ``(m, c)``; by default what the fit predicts.

    Raises:
        InputError: If an argument does not fit the pair, a count is negative, or the step does not converge.

    >>> pair = LinearPair.from_features([[3.0, 4.0]], [[2.0, 0.0]])
    >>> projnorm_linear_after(pair, [5.0], steps=[0, 1, 100], step_size=0.125).values.round(12).tolist()
    [1.0, 0.854400374532, 0.8]
    """
    counts = _as_steps(steps)
    h = as_non_negative(step_size, "step_size")
    roots = pair.ood_singular_values / math.sqrt(pair.n_ood)
    largest_step = _largest_step(roots)
    learnt_per_step = np.minimum(math.sqrt(h) * roots, 2.0) ** 2  # h l_j, kept from overflowing
    if h == 0.0 or np.any(learnt_per_step >= 2.0):
        raise InputError(
            f"`step_size` must be positive and below 2 / l_max = {largest_step:.6g}, where l_max is the largest "
            f"eigenvalue of X_ood^T X_ood / m: larger steps do not converge; got {step_size!r}."
        )
    theta = pair.fit(Y).coordinates
    seen = pair.cosines @ theta
    target = seen
    if pseudo_labels is not None:
        labels = pair.as_ood_responses(pseudo_labels, "pseudo_labels", outputs=theta.shape[1])
        target = pair.ood_coordinates(labels)
    outside, never_learnt = pair.distance_to_ood(theta), seen - target

    def value(count: int) -> float:
        left = _remaining(learnt_per_step, count)
        return math.hypot(outside, frobenius(never_learnt + left[:, None] * target))

    flat = counts.ravel()
    with np.errstate(divide="ignore"):
        ridges = 1.0 / (h * counts.astype(np.float64))
    return StoppedProjNorm(
        values=np.array([value(int(count)) for count in flat]).reshape(counts.shape),
        steps=counts,
        step_size=h,
        largest_step=largest_step,
        limit=math.hypot(outside, frobenius(never_learnt)),
        equivalent_ridge=ridges,
    )


def _remaining(learnt_per_step: FloatArray, steps: int) -> FloatArray:
    """``(1 - h l)^T``, by logarithms: exact to rounding of ``h l`` for any number of steps."""
    if steps == 0:
        return np.ones_like(learnt_per_step)
    base = 1.0 - learnt_per_step
    with np.errstate(divide="ignore"):
        logs = np.where(base > 0.0, np.log1p(-np.minimum(learnt_per_step, 1.0)), np.log(np.abs(base)))
    sizes = np.exp(steps * logs)
    return np.where((base < 0.0) & (steps % 2 == 1), -sizes, sizes)


def _largest_step(roots: FloatArray) -> float:
    largest = float(roots.max(initial=0.0))
    return 2.0 / largest / largest if largest > 0.0 else math.inf


def _as_steps(value: ArrayLike) -> NDArray[np.int64]:
    counts = np.asarray(value)
    if counts.dtype.kind not in "iu":
        raise InputError(f"`steps` must be whole numbers; got an array of {counts.dtype}.")
    if counts.size == 0:
        raise InputError(f"`steps` must not be empty; got shape {counts.shape}.")
    if counts.min() < 0 or counts.max() > np.iinfo(np.int64).max:
        raise InputError(f"`steps` must lie between 0 and 2^63 - 1; got {counts.min()} to {counts.max()}.")
    return counts.astype(np.int64)
