r"""The linear model behind the Projection Norm: every formula of the paper and of docs/theory.md as one function.

Everything is float64, pure and deterministic; docs/theory.md states and proves what is computed here. One file for each
quantity, with the section of that page:

The problem (1): `min_norm` (the solution, the test loss), `projection_norm` (ProjNormLinear), `linear_pair` (both
spectra and the angles between the row spaces; every function takes one in place of ``X, X_ood``) with its parts
`training_fit` and `ood_directions`.

Intervals for the test loss: `bounds` (2, 3: the paper's Proposition and our generalisation), `sharp` (4: the smallest
interval that can hold, and ground truths at its ends), `joint` (5: from the length of the truth in the rows of both).

Average case: `average_case` (6: the exact law for truths of random direction), `leave_one_out` (6: its scale from the
training responses).

What is fitted otherwise: `ridge`, `early_stopping` (7).

High dimension: `deterministic_equivalents`, `sign_labels`, `asymptotics` (8: closed forms for Gaussian inputs).

Measured on data: `assumptions` (9: every assumption, with labels), `spectra` (9: decay and alignment).

Numerics (10): `row_space`, `gram_space`, `factor` (factorisations), `trust_region`, `quadratic_forms`, `implicit_ridge`
(solvers), `norms`, `products`, `validation` (checked arguments), `results`, `errors`, `lazy`.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm_theory.lazy import attach

__getattr__, __dir__, _ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm_theory.assumptions import AssumptionReport, check_assumptions
    from projnorm_theory.asymptotics import (
        DeterministicProjNorm,
        ToyAsymptotics,
        deterministic_projnorm,
        toy_asymptotics,
    )
    from projnorm_theory.average_case import (
        AverageRatio,
        LossPrediction,
        PredictionInterval,
        SphericalLoss,
        average_ratio,
        spherical_loss,
    )
    from projnorm_theory.bounds import LossInterval, SpectralInterval, generalised_bound, proposition_bound
    from projnorm_theory.deterministic_equivalents import Equivalents, equivalents
    from projnorm_theory.early_stopping import StoppedProjNorm, projnorm_linear_after
    from projnorm_theory.errors import InputError
    from projnorm_theory.joint import JointInterval, joint_interval, joint_interval_from_gram, joint_ratio
    from projnorm_theory.leave_one_out import ScaledLoss, scaled_loss
    from projnorm_theory.linear_pair import LinearPair
    from projnorm_theory.min_norm import MinNormSolution, min_norm_solution, ood_loss
    from projnorm_theory.projection_norm import (
        PairProjNormLinear,
        ProjNormLinear,
        projnorm_linear,
        projnorm_linear_from_gram,
        projnorm_linear_of_pair,
    )
    from projnorm_theory.ridge import RidgeBalance, RidgeErrorBound, balancing_ridge, ridge_error_bound
    from projnorm_theory.row_space import RowSpace
    from projnorm_theory.sharp import (
        AttainingTruths,
        InfeasibleRatioError,
        SharpInterval,
        attaining_truths,
        sharp_ends,
        sharp_interval,
    )
    from projnorm_theory.sign_labels import SignEquivalents, sign_equivalents
    from projnorm_theory.spectra import (
        Alignment,
        PowerLawFit,
        Spectrum,
        alignment,
        fit_power_law,
        principal_angles,
        spectrum,
    )

__all__ = [
    "Alignment",
    "AssumptionReport",
    "AttainingTruths",
    "AverageRatio",
    "DeterministicProjNorm",
    "Equivalents",
    "InfeasibleRatioError",
    "InputError",
    "JointInterval",
    "LinearPair",
    "LossInterval",
    "LossPrediction",
    "MinNormSolution",
    "PairProjNormLinear",
    "PowerLawFit",
    "PredictionInterval",
    "ProjNormLinear",
    "RidgeBalance",
    "RidgeErrorBound",
    "RowSpace",
    "ScaledLoss",
    "SharpInterval",
    "SignEquivalents",
    "SpectralInterval",
    "Spectrum",
    "SphericalLoss",
    "StoppedProjNorm",
    "ToyAsymptotics",
    "alignment",
    "attaining_truths",
    "average_ratio",
    "balancing_ridge",
    "check_assumptions",
    "deterministic_projnorm",
    "equivalents",
    "fit_power_law",
    "generalised_bound",
    "joint_interval",
    "joint_interval_from_gram",
    "joint_ratio",
    "min_norm_solution",
    "ood_loss",
    "principal_angles",
    "projnorm_linear",
    "projnorm_linear_after",
    "projnorm_linear_from_gram",
    "projnorm_linear_of_pair",
    "proposition_bound",
    "ridge_error_bound",
    "scaled_loss",
    "sharp_ends",
    "sharp_interval",
    "sign_equivalents",
    "spectrum",
    "spherical_loss",
    "toy_asymptotics",
]
