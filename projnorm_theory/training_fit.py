"""The minimum-norm solution of a training set, and what rounding leaves uncertain of it."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm_theory.validation import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class TrainingFit:
    r"""The minimum-norm solution in the coordinates of a `LinearPair`.

    Attributes:
        coordinates: :math:`U^\top\hat\theta`, shape ``(train_rank, c)``.
        norm: :math:`\|\hat\theta\|_F`.
        residual: :math:`\|X\hat\theta - Y\|_F`.
        interpolates: Whether the residual is rounding only.
        norm_error: How far rounding of the data may move `norm`; infinite where eigenvalues that rounding may hide
            leave the fit undecided.
        prediction_error: How far it may move the predictions :math:`\tilde X\hat\theta`, in Frobenius norm.
    """

    coordinates: FloatArray
    norm: float
    residual: float
    interpolates: bool
    norm_error: float
    prediction_error: float
