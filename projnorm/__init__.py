"""Predict how wrong a model will be on new, unlabelled data.

``import projnorm as pn`` gives the names people want most; everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    import deep
    import figures
    import ntk
    import projnorm_theory as theory
    import simulations
    from deep.estimators.projnorm import ProjNorm
    from ntk.features.gradient_features import gradient_features
    from ntk.tiles.gram import gram
    from projnorm.core.backends import Backend
    from projnorm.core.errors import InputError
    from projnorm.core.records import RunContext
    from projnorm.estimate.choose_labels import choose_labels
    from projnorm.estimate.error_estimator import ErrorEstimator
    from projnorm.estimate.estimate import estimate_error, estimate_errors
    from projnorm.estimate.result import ErrorEstimate
    from projnorm.estimators.atc import ATC
    from projnorm.estimators.cot import COT
    from projnorm.estimators.doc import DoC
    from projnorm.estimators.registry import ESTIMATORS
    from projnorm.labels.plan import LabelPlan
    from projnorm.models.recipe import Recipe
    from projnorm.monitor.monitor import Monitor
    from projnorm.outputs.outputs import Outputs, read_outputs
    from projnorm_theory import (
        LinearPair,
        check_assumptions,
        generalised_bound,
        joint_interval,
        min_norm_solution,
        projnorm_linear,
        projnorm_linear_from_gram,
        proposition_bound,
        sharp_interval,
    )
    from simulations import ToyConfig, run_toy
