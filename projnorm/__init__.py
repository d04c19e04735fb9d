"""Predict how wrong a model will be on new, unlabelled data.

``import projnorm as pn`` gives the names people want most; everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    import deep
    import figures
    import ntk
    import projnorm_theory as theory
    import simulations
    from deep import (
        ATC,
        COT,
        DoC,
        ErrorEstimate,
        ErrorEstimator,
        LabelPlan,
        Monitor,
        Outputs,
        ProjNorm,
        choose_labels,
        estimate_error,
        estimate_errors,
    )
    from ntk import features, gram
    from projnorm.backends import Backend
    from projnorm.errors import InputError
    from projnorm.records import RunContext
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
