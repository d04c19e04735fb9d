r"""The linear theory on kernels: every number here is a call into `projnorm_theory` on a `LinearPair` of kernels.

With features :math:`\Phi, \tilde\Phi` of the training and the target set, whose kernels are
:math:`K = \Phi\Phi^\top`, :math:`\tilde K = \tilde\Phi\tilde\Phi^\top` and
:math:`\tilde K_\times = \tilde\Phi\Phi^\top`, and centred one-hot labels `Y`, the weights that interpolate and the
paper's statistic are

.. math::
   \hat\theta = \Phi^\top K^{-1} Y, \qquad
   \mathrm{ProjNormLinear}^2 = \|(I - \tilde P)\hat\theta\|^2
   = \mathrm{tr}\,Y^\top K^{-1}\bigl(K - \tilde K_\times^\top \tilde K^{+} \tilde K_\times\bigr)K^{-1} Y

and the ratios of norms, measured from the labels of both sets, with projections :math:`P, \tilde P, P_Z` onto the
features of the training set, of the target and of both,

.. math:: \rho = \|\tilde P\theta_\star\| / \|P\theta_\star\|, \qquad \eta = \|P_Z\theta_\star\| / \|P\theta_\star\|
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from projnorm.core.arrays import form
from projnorm.core.errors import InputError
from projnorm.core.statistics import Floats
from projnorm_theory import (
    Alignment,
    LinearPair,
    LossInterval,
    PowerLawFit,
    PredictionInterval,
    alignment,
    fit_power_law,
    generalised_bound,
    joint_interval,
    joint_ratio,
    projnorm_linear_of_pair,
    proposition_bound,
    sharp_interval,
    spherical_loss,
)
from projnorm_theory.assumptions import norm_assumption
from projnorm_theory.gram_space import GramSpace

# A smallest eigenvalue within this many roundings of a product may be due to rounding.
_TRUSTED_ROUNDINGS = 100.0
_FEWEST_FOR_A_FIT = 3
_FEWEST_CLASSES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Responses:
    """One-hot targets with the training mean taken off, so that a kernel without a bias can fit them.

    Attributes:
        train: Centred one-hot labels of the training set, shape ``(n, classes)``.
        centre: The mean that was taken off, shape ``(classes,)``.
    """

    train: Floats
    centre: Floats

    @classmethod
    def from_labels(cls, labels: ArrayLike, classes: int) -> Responses:
        """Responses from labels 0 to ``classes - 1``, whole numbers of shape ``(n,)``; others are refused.

        Example:
            >>> from ntk import Responses
            >>> Responses.from_labels([0, 1, 1, 0], classes=2).train
            array([[ 0.5, -0.5],
                   [-0.5,  0.5],
                   [-0.5,  0.5],
                   [ 0.5, -0.5]])
        """
        if isinstance(classes, bool) or not isinstance(classes, int | np.integer) or classes < _FEWEST_CLASSES:
            raise InputError(f"`classes` must be a whole number of at least {_FEWEST_CLASSES}; got {classes!r}.")
        one_hot = _one_hot(labels, int(classes))
        centre = one_hot.mean(axis=0)
        return cls(one_hot - centre, centre)

    def ood(self, labels: ArrayLike) -> Floats:
        """The targets of other labels, with the same centre."""
        return _one_hot(labels, len(self.centre)) - self.centre


@dataclass(frozen=True, slots=True, eq=False)
class TrainAnalysis:
    """Spectrum and factors of the training block, with which targets are analysed.

    Attributes:
        eigenvalues: Eigenvalues of ``k_train``, descending.
        decay: Power law of the eigenvalues; None with fewer than three.
        space: Eigendecomposition of ``k_train``, for `analyse_target`.
        warning: Why the smallest eigenvalues are not to be trusted; empty where they are.
        responses: Targets of the training set.
        accumulate: Precision of the products that the kernels are made from.
    """

    eigenvalues: Floats
    decay: PowerLawFit | None
    space: GramSpace
    warning: str
    responses: Responses
    accumulate: str


@dataclass(frozen=True, slots=True, eq=False)
class TargetPrediction:
    """ProjNormLinear and predicted labels of a target; its labels serve to count the errors alone.

    Attributes:
        projnorm: Value of ProjNormLinear.
        projnorm_error: Largest error of its square through rounding.
        theta_norm: Norm of the fitted weights.
        ridge: Number added to the diagonals of both kernels.
        predicted: Labels by the largest output of the kernel regression.
        error: Share of the predicted labels that are wrong; nan where the target has no labels.
    """

    projnorm: float
    projnorm_error: float
    theta_norm: float
    ridge: float
    predicted: NDArray[np.int64]
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetAnalysis:
    r"""What the three blocks say about one target; what is measured from labels is nan or None where there are none.

    Attributes:
        eigenvalues: Eigenvalues of ``k_ood``, descending.
        decay: Power law of the eigenvalues; None with fewer than three.
        alignment: Alignment of the top eigenvectors with those of the training set.
        rho: :math:`\|\tilde P\theta_\star\| / \|P\theta_\star\|`, measured from the labels.
        eta: :math:`\|P_Z\theta_\star\| / \|P\theta_\star\|`, with `Z` the features of both sets, from the labels.
        overlap: Overlap `c` of the two row spaces with nothing assumed shared.
        test_loss: Squared error of the interpolating kernel regression, summed over classes.
        proposition: The paper's interval at ``k = 0``: equal norms and orthogonal row spaces assumed.
        generalised: Our interval at ``k = 0`` with the measured `rho`; it must hold.
        sharp: The sharp interval with the measured `rho`; it must hold. Also None where it does not exist.
        joint: The joint interval with the measured `eta`; it must hold.
        spherical: Prediction interval at 90 % for ground truths of random direction, whatever the labels.
        prediction: ProjNormLinear and predicted labels.
        warnings: Why the smallest eigenvalues are not to be trusted, or why there is no sharp interval; empty at best.
    """

    eigenvalues: Floats
    decay: PowerLawFit | None
    alignment: Alignment
    rho: float
    eta: float
    overlap: float
    test_loss: float
    proposition: LossInterval
    generalised: LossInterval | None
    sharp: LossInterval | None
    joint: LossInterval | None
    spherical: PredictionInterval
    prediction: TargetPrediction
    warnings: tuple[str, ...]


def analyse_train(k_train: Floats, responses: Responses, *, accumulate: str = "float64") -> TrainAnalysis:
    """Spectrum of the training block.

    Args:
        k_train: Kernel of the training set, shape ``(n, n)``.
        responses: Targets of the training set.
        accumulate: Precision of the products that it and the kernels of targets are made from.

    Raises:
        ValueError: If it is not a Gram matrix.

    Example:
        >>> import numpy as np
        >>> from ntk import Responses, analyse_train
        >>> analyse_train(np.diag([1.0, 4.0]), Responses.from_labels([0, 1], classes=2)).eigenvalues
        array([4., 1.])
    """
    space = GramSpace.from_gram(k_train, name="k_train", noise=kernel_noise(k_train, accumulate))
    eigenvalues = space.singular_values**2
    warning = _warning(k_train, space, accumulate)
    return TrainAnalysis(eigenvalues, _decay(eigenvalues), space, warning, responses, accumulate)


def analyse_target(
    train: TrainAnalysis,
    k_ood_train: Floats,
    k_ood: Floats,
    labels: ArrayLike | None,
    *,
    ridge: float = 0.0,
    top: int = 300,
) -> TargetAnalysis:
    """Spectrum, alignment, assumptions, intervals, ProjNormLinear and predicted labels of one target.

    Args:
        train: From `analyse_train`.
        k_ood_train: Kernel of the target with the training set, shape ``(m, n)``.
        k_ood: Kernel of the target, shape ``(m, m)``.
        labels: True labels of the target set, whole numbers of shape ``(m,)``; None where they are not known.
        ridge: Number added to the diagonals of both kernels for ProjNormLinear and the predicted labels; the intervals
            are those of the interpolating solution.
        top: Number of eigenvectors in the alignment, or as many as there are.

    Raises:
        ValueError: If the blocks do not belong together, or a label is not one of the training classes.

    Example:
        >>> import numpy as np
        >>> from ntk import Responses, analyse_target, analyse_train
        >>> rng = np.random.default_rng(0)
        >>> X, X_ood = rng.normal(size=(4, 9)), rng.normal(size=(3, 9))
        >>> train = analyse_train(X @ X.T, Responses.from_labels([0, 1, 1, 0], classes=2))
        >>> target = analyse_target(train, X_ood @ X.T, X_ood @ X_ood.T, labels=[0, 1, 0])
        >>> target.sharp.lower <= target.test_loss <= target.sharp.upper
        True
    """
    pair, warning = _pair(train, k_ood_train, k_ood)
    Y = train.responses.train
    proposition = proposition_bound(pair, Y, k=0)
    measured = _NOT_MEASURED if labels is None else _measured(pair, Y, train.responses.ood(_of_all(labels, len(k_ood))))
    problem = ""
    if measured.sharp is not None and not math.isfinite(measured.sharp.upper):
        problem = f"no sharp interval: {measured.sharp.assumptions[0]}"
    return TargetAnalysis(
        eigenvalues=pair.ood_eigenvalues,
        decay=_decay(pair.ood_eigenvalues),
        alignment=alignment(pair, k=min(top, pair.train_rank, pair.ood_rank)),
        rho=measured.rho,
        eta=measured.eta,
        overlap=proposition.overlap,
        test_loss=measured.test_loss,
        proposition=proposition,
        generalised=measured.generalised,
        sharp=None if problem else measured.sharp,
        joint=measured.joint,
        # Centred one-hot responses have one output less than there are classes.
        spherical=spherical_loss(pair, Y, independent_outputs=Y.shape[1] - 1).interval(0.9),
        prediction=_predict(pair, train.responses, labels, ridge),
        warnings=tuple(filter(None, (warning, problem))),
    )


def predict_target(
    train: TrainAnalysis, k_ood_train: Floats, k_ood: Floats, labels: ArrayLike | None = None, *, ridge: float = 0.0
) -> TargetPrediction:
    """ProjNormLinear and predicted labels alone; arguments as in `analyse_target`.

    Example:
        >>> import numpy as np
        >>> from ntk import Responses, analyse_train, predict_target
        >>> K = np.diag([1.0, 4.0])
        >>> train = analyse_train(K, Responses.from_labels([0, 1], classes=2))
        >>> same = predict_target(train, K, K)  # the target is the training set: nothing is lost
        >>> abs(round(same.projnorm, 6)), same.predicted.tolist()
        (0.0, [0, 1])
    """
    return _predict(_pair(train, k_ood_train, k_ood)[0], train.responses, labels, ridge)


def _pair(train: TrainAnalysis, k_ood_train: Floats, k_ood: Floats) -> tuple[LinearPair, str]:
    """Both sets under the kernel, and the warning about the target's eigenvalues."""
    ood = GramSpace.from_gram(k_ood, name="k_ood", noise=kernel_noise(k_ood, train.accumulate))
    return LinearPair.from_gram_spaces(train.space, ood, k_ood_train), _warning(k_ood, ood, train.accumulate)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """What labels of the target are needed for; the attributes are those of `TargetAnalysis`."""

    rho: float = math.nan
    eta: float = math.nan
    test_loss: float = math.nan
    generalised: LossInterval | None = None
    sharp: LossInterval | None = None
    joint: LossInterval | None = None


_NOT_MEASURED = _Measured()


def _measured(pair: LinearPair, Y: Floats, Y_ood: Floats) -> _Measured:
    rho = norm_assumption(pair, Y, Y_ood).rho
    eta = joint_ratio(pair, Y, Y_ood=Y_ood)
    return _Measured(
        rho,
        eta,
        pair.test_loss(pair.fit(Y), Y_ood),
        generalised_bound(pair, Y, k=0, rho=rho),
        sharp_interval(pair, Y, rho=rho),
        joint_interval(pair, Y, eta=eta),
    )


def _predict(pair: LinearPair, responses: Responses, labels: ArrayLike | None, ridge: float) -> TargetPrediction:
    linear = projnorm_linear_of_pair(pair, responses.train, ridge=ridge)
    weights = pair.ridge_coordinates(pair.fit(responses.train), ridge)
    predicted = (pair.ood_predictions(weights) + responses.centre).argmax(axis=1)
    error = math.nan
    if labels is not None:
        error = float(np.mean(predicted != _as_labels(_of_all(labels, len(predicted)), len(responses.centre))))
    return TargetPrediction(linear.value, linear.error_estimate, linear.theta_norm, ridge, predicted, error)


def _one_hot(labels: ArrayLike, classes: int) -> Floats:
    return (_as_labels(labels, classes)[:, None] == np.arange(classes)).astype(np.float64)


def _as_labels(labels: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Labels of shape ``(samples,)``, all of them whole numbers from 0 to ``classes - 1``."""
    array = np.asarray(labels)
    if array.ndim != 1 or not array.size or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"`labels` must be whole numbers, one per sample; got {form(array)}.")
    if array.min() < 0 or array.max() >= classes:
        raise InputError(f"`labels` must be from 0 to {classes - 1}; they run from {array.min()} to {array.max()}.")
    return array.astype(np.int64)


def _of_all(labels: ArrayLike, samples: int) -> NDArray[Any]:
    array = np.asarray(labels)
    if array.shape != (samples,):
        raise InputError(f"`labels` must be {samples:,}, one per sample of the target; got {form(array)}.")
    return array


def kernel_noise(K: Floats, accumulate: str, *, scale: float | None = None) -> float:
    r"""Error of products of the given precision against the largest eigenvalue: independent roundings of each entry.

    .. math:: \sqrt n\,\varepsilon \max_i K_{ii} / \lambda_1, \qquad \lambda_1 \ge \|K\|_F^2 / \mathrm{tr}\,K

    whose bound on the largest eigenvalue costs no decomposition. `scale` is the largest entry
    of the kernel that was rounded, where `K` was made from it by taking something off.
    """
    trace = float(K.trace())
    largest = float(np.sum(K**2)) / trace if trace > 0 else 0.0
    rounded = float(K.diagonal().max()) if scale is None else scale
    return math.sqrt(len(K)) * float(np.finfo(accumulate).eps) * rounded / largest if largest else 0.0


def _warning(K: Floats, space: GramSpace, accumulate: str) -> str:
    """Why the smallest eigenvalues of a kernel are not to be trusted; empty where they are."""
    remedy = "; products in double precision (`accumulate` float64) resolve more" if accumulate == "float32" else ""
    if space.rank < len(K):
        return f"numerical rank {space.rank} of {len(K)}: eigenvalues within rounding of zero count as zero{remedy}"
    floor = _TRUSTED_ROUNDINGS * math.sqrt(len(K)) * float(np.finfo(accumulate).eps) * float(K.diagonal().max())
    smallest = float(space.singular_values[-1] ** 2)
    if smallest >= floor:
        return ""
    return f"eigenvalues below {floor:.3g} may be due to rounding; the smallest is {smallest:.3g}{remedy}"


def _decay(eigenvalues: Floats) -> PowerLawFit | None:
    return fit_power_law(eigenvalues) if len(eigenvalues) >= _FEWEST_FOR_A_FIT else None
