"""Linear regression on labels that are signs: a linear model that the labels do not follow, in closed form.

Section 8 of docs/theory.md. The toy experiment and its siblings are of this kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad
from scipy.special import expit

from projnorm_theory.deterministic_equivalents import Covariance, equivalents, sign_error
from projnorm_theory.errors import InputError
from projnorm_theory.results import Result
from projnorm_theory.validation import as_non_negative, as_rows, as_vector

MEAN_ABS = math.sqrt(2 / math.pi)  # E|z| of a standard normal z
# Readings of "two-class linear regression": one output on labels +-1, or one output per class on labels 0 and 1.
OUTPUTS = ("sign", "one-hot")


@dataclass(frozen=True, slots=True, eq=False)
class SignEquivalents(Result):
    """Values that the quantities of a linear model trained on signs concentrate on.

    Attributes:
        test_error: Probability of the wrong sign.
        projnorm_linear: ProjNormLinear.
        confidence: Mean of the larger softmax probability, of ``(z, -z)`` where there is one output `z`.
        squared_loss: Mean squared error on the labels, summed over outputs.
        theta_norm: Norm of the minimum-norm solution.
        kappa: Implicit ridge of the target sample.
        effective: Smaller effective number of rows of the two samples, as in `Equivalents`.
    """

    test_error: float
    projnorm_linear: float
    confidence: float
    squared_loss: float
    theta_norm: float
    kappa: float
    effective: float


def sign_equivalents(
    direction: ArrayLike,
    A: ArrayLike,
    B: ArrayLike,
    *,
    n: int,
    m: int,
    flipped: float = 0.0,
    outputs: str = "sign",
) -> SignEquivalents:
    r"""Equivalents of the minimum-norm regression on labels :math:`\operatorname{sign}(x^\top w)`.

    No linear function gives these labels, but `equivalents` serves: on Gaussian rows with covariance :math:`A` a label
    is :math:`x^\top\beta` and a rest that is uncorrelated with :math:`x`,

    .. math:: \beta = (1 - 2f)\sqrt{\tfrac2\pi}\,\frac{w}{\sqrt{w^\top Aw}}, \qquad
              s^2 = 1 - (1 - 2f)^2\,\tfrac2\pi,

    with :math:`f` the share of flipped labels. On the target the outputs :math:`z = x^\top\hat\theta` and
    :math:`x^\top w` are jointly normal, which gives the error, the confidence and the loss there.

    Args:
        direction: Direction :math:`w` of the labels, shape ``(d,)``.
        A: Covariance of the training rows or its diagonal, as in `equivalents`.
        B: Covariance of the target rows or its diagonal.
        n: Number of training rows.
        m: Number of target rows.
        flipped: Share of labels that are replaced by their opposite, in both sets.
        outputs: "sign" for one output on labels +-1, "one-hot" for two outputs on labels 0 and 1.

    Raises:
        InputError: As in `equivalents`; also if `direction` has no variance on one of the two sets, or `flipped` is
            above 1/2.

    >>> toy = sign_equivalents([1, 0, 0], [1, 1, 0], [1, 1, 4], n=1, m=1)
    >>> round(toy.theta_norm**2, 6)  # half of 2 / pi, and the rest as noise
    0.68169
    """
    w = as_vector(direction, "direction")
    train, target = Covariance.from_matrix(A, "A"), Covariance.from_matrix(B, "B")
    scales = []
    for covariance, name, rows in ((train, "A", "training"), (target, "B", "target")):
        as_rows(w, "direction", rows=covariance.eigenvalues.size, rows_like=f"`{name}`")
        scales.append(math.sqrt(float(covariance.form(w, w))))
        if scales[-1] == 0.0:
            raise InputError(f"`direction` must have variance on the {rows} rows; the one that `{name}` gives it is 0.")
    if (flipped := as_non_negative(flipped, "flipped")) > 0.5:
        raise InputError(f"`flipped` must lie between 0 and 1/2; got {flipped:g}.")
    linear_part = (1 - 2 * flipped) * MEAN_ABS
    fit = equivalents(linear_part / scales[0] * w, A, B, n=n, m=m, noise=math.sqrt(1 - linear_part**2))
    # Covariance of the output with the label's argument, whose scale is taken to be 1.
    with_label = float(target.form(fit.mean_theta, w)) / scales[1]
    error = float(sign_error(np.array(with_label), np.array(fit.output_scale**2), np.array(1.0)))
    projnorm, theta_norm, confidence = fit.projnorm_linear, fit.theta_norm, mean_confidence(fit.output_scale)
    squared_loss = 1 + fit.output_scale**2 - 2 * linear_part * with_label
    if as_outputs(outputs) == "one-hot":
        ones = equivalents(np.zeros_like(w), A, B, n=n, m=m, noise=1.0)
        projnorm, theta_norm = (
            math.hypot(getattr(fit, name), getattr(ones, name)) / math.sqrt(2)
            for name in ("projnorm_linear", "theta_norm")
        )
        confidence = mean_confidence(fit.output_scale / 2)
        squared_loss = (squared_loss + 1 + ones.output_scale**2) / 2
    return SignEquivalents(
        test_error=flipped + (1 - 2 * flipped) * error,
        projnorm_linear=projnorm,
        confidence=confidence,
        squared_loss=squared_loss,
        theta_norm=theta_norm,
        kappa=fit.kappa_ood,
        effective=fit.effective,
    )


def as_outputs(outputs: str) -> str:
    """The name of the outputs of two-class regression, checked to be one of `OUTPUTS`."""
    if outputs not in OUTPUTS:
        raise InputError(f"`outputs` must be one of {', '.join(map(repr, OUTPUTS))}; got {outputs!r}.")
    return outputs


def mean_confidence(scale: float) -> float:
    """``E sigmoid(2 scale |z|)`` for a standard normal `z`; `scale` is the root mean square of the outputs."""

    def density(z: float) -> float:
        return 2 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi) * float(expit(2 * scale * z))

    # The integrand turns at z ~ 1 / scale and has vanished at z = 40.
    turn = min(1.0, 10 / scale)
    return sum(quad(density, low, high, epsabs=1e-12, limit=200)[0] for low, high in ((0, turn), (turn, 10), (10, 40)))
