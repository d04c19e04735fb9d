"""The linear theory on kernels: every number here is a call into `projnorm_theory` on a `LinearPair` of kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

Floats = NDArray[np.float64]

# A smallest eigenvalue within this many roundings of a single-precision product is not told from rounding.
_TRUSTED_ROUNDINGS = 100.0
_FEWEST_FOR_A_FIT = 3


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
    def of(cls, labels: NDArray[np.int64], classes: int) -> Responses:
        """From labels 0 to ``classes - 1``."""
        one_hot = _one_hot(labels, classes)
        centre = one_hot.mean(axis=0)
        return cls(one_hot - centre, centre)

    def ood(self, labels: NDArray[np.int64]) -> Floats:
        """The targets of other labels, with the same centre."""
        return _one_hot(labels, len(self.centre)) - self.centre


@dataclass(frozen=True, slots=True, eq=False)
class TrainAnalysis:
    """What the training block alone says, and what targets are analysed with.

    Attributes:
        eigenvalues: Eigenvalues of ``k_train``, descending.
        decay: Power law of the eigenvalues; None with fewer than three.
        space: Eigendecomposition of ``k_train``, for `analyse_target`.
        warning: Empty, or why the smallest eigenvalues are not to be trusted and what to do.
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
    """What needs no labels of the target, except to count the errors.

    Attributes:
        projnorm: Value of ProjNormLinear.
        projnorm_error: Largest error of its square through rounding.
        theta_norm: Norm of the fitted weights.
        ridge: Number added to the diagonals of both kernels.
        predicted: Labels by the largest output of the kernel regression.
        error: Share of the predicted labels that are wrong.
    """

    projnorm: float
    projnorm_error: float
    theta_norm: float
    ridge: float
    predicted: NDArray[np.int64]
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetAnalysis:
    r"""What the three blocks say about one target.

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
        sharp: The sharp interval with the measured `rho`; it must hold. None where it does not exist.
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
    generalised: LossInterval
    sharp: LossInterval | None
    joint: LossInterval
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
    """
    space = GramSpace.of(k_train, name="k_train", noise=kernel_noise(k_train, accumulate))
    eigenvalues = space.singular_values**2
    warning = _warning(k_train, space, accumulate)
    return TrainAnalysis(eigenvalues, _decay(eigenvalues), space, warning, responses, accumulate)


def analyse_target(
    train: TrainAnalysis,
    k_ood_train: Floats,
    k_ood: Floats,
    labels: NDArray[np.int64],
    *,
    ridge: float = 0.0,
    top: int = 300,
) -> TargetAnalysis:
    """Spectrum, alignment, assumptions, intervals, ProjNormLinear and predicted labels of one target.

    Args:
        train: From `analyse_train`.
        k_ood_train: Kernel of the target with the training set, shape ``(m, n)``.
        k_ood: Kernel of the target, shape ``(m, m)``.
        labels: True labels of the target set, shape ``(m,)``.
        ridge: Number added to the diagonals of both kernels for ProjNormLinear and the predicted labels; the intervals
            are those of the interpolating solution.
        top: Number of eigenvectors in the alignment, or as many as there are.

    Raises:
        ValueError: If the blocks do not belong together.
    """
    pair, warning = _pair(train, k_ood_train, k_ood)
    Y, Y_ood = train.responses.train, train.responses.ood(labels)
    rho = norm_assumption(pair, Y, Y_ood).rho
    eta = joint_ratio(pair, Y, Y_ood=Y_ood)
    generalised = generalised_bound(pair, Y, k=0, rho=rho)
    warnings = [warning] if warning else []
    sharp = sharp_interval(pair, Y, rho=rho)
    resolved = math.isfinite(sharp.upper)
    if not resolved:
        warnings.append(f"no sharp interval: {sharp.assumptions[0]}")
    return TargetAnalysis(
        eigenvalues=pair.ood_eigenvalues,
        decay=_decay(pair.ood_eigenvalues),
        alignment=alignment(pair, k=min(top, pair.train_rank, pair.ood_rank)),
        rho=rho,
        eta=eta,
        overlap=generalised.overlap,
        test_loss=pair.test_loss(pair.fit(Y), Y_ood),
        proposition=proposition_bound(pair, Y, k=0),
        generalised=generalised,
        sharp=sharp if resolved else None,
        joint=joint_interval(pair, Y, eta=eta),
        # Centred one-hot responses have one output less than there are classes.
        spherical=spherical_loss(pair, Y, independent_outputs=Y.shape[1] - 1).interval(0.9),
        prediction=_predict(pair, train.responses, labels, ridge),
        warnings=tuple(warnings),
    )


def predict_target(
    train: TrainAnalysis, k_ood_train: Floats, k_ood: Floats, labels: NDArray[np.int64], *, ridge: float = 0.0
) -> TargetPrediction:
    """ProjNormLinear and predicted labels alone; arguments as in `analyse_target`."""
    return _predict(_pair(train, k_ood_train, k_ood)[0], train.responses, labels, ridge)


def _pair(train: TrainAnalysis, k_ood_train: Floats, k_ood: Floats) -> tuple[LinearPair, str]:
    """Both sets under the kernel, and the warning about the target's eigenvalues."""
    ood = GramSpace.of(k_ood, name="k_ood", noise=kernel_noise(k_ood, train.accumulate))
    return LinearPair.of_gram_spaces(train.space, ood, k_ood_train), _warning(k_ood, ood, train.accumulate)


def _predict(pair: LinearPair, responses: Responses, labels: NDArray[np.int64], ridge: float) -> TargetPrediction:
    found = projnorm_linear_of_pair(pair, responses.train, ridge=ridge)
    weights = pair.ridge_coordinates(pair.fit(responses.train), ridge)
    predicted = (pair.ood_predictions(weights) + responses.centre).argmax(axis=1)
    return TargetPrediction(
        found.value, found.error_estimate, found.theta_norm, ridge, predicted, float(np.mean(predicted != labels))
    )


def _one_hot(labels: NDArray[np.int64], classes: int) -> Floats:
    return (labels[:, None] == np.arange(classes)).astype(np.float64)


def kernel_noise(K: Floats, accumulate: str, *, scale: float | None = None) -> float:
    """Error of products of the given precision against the largest eigenvalue: independent roundings of each entry.

    The largest eigenvalue is at least ``||K||_F^2 / tr K``, which costs no decomposition. `scale` is the largest entry
    of the kernel that was rounded, where `K` was made from it by taking something off.
    """
    trace = float(K.trace())
    largest = float(np.sum(K**2)) / trace if trace > 0 else 0.0
    rounded = float(K.diagonal().max()) if scale is None else scale
    return math.sqrt(len(K)) * float(np.finfo(accumulate).eps) * rounded / largest if largest else 0.0


def _warning(K: Floats, space: GramSpace, accumulate: str) -> str:
    """Said after every eigendecomposition whose smallest eigenvalues rounding may have made."""
    remedy = '; accumulate="float64" resolves more' if accumulate == "float32" else ""
    if space.rank < len(K):
        return f"numerical rank {space.rank} of {len(K)}: eigenvalues within rounding of zero were cut{remedy}"
    floor = _TRUSTED_ROUNDINGS * math.sqrt(len(K)) * float(np.finfo(accumulate).eps) * float(K.diagonal().max())
    smallest = float(space.singular_values[-1] ** 2)
    if smallest >= floor:
        return ""
    return f"eigenvalues below {floor:.3g} are not told from rounding; the smallest is {smallest:.3g}{remedy}"


def _decay(eigenvalues: Floats) -> PowerLawFit | None:
    return fit_power_law(eigenvalues) if len(eigenvalues) >= _FEWEST_FOR_A_FIT else None
