"""Predict how wrong a model will be on new, unlabelled data.

``import projnorm as pn`` gives the names people want most; everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    import deep as deep
    import figures as figures
    import ntk as ntk
    import projnorm_theory as theory
    import simulations as simulations
    from deep import (
        ATC as ATC,
        COT as COT,
        DoC as DoC,
        ErrorEstimate as ErrorEstimate,
        Outputs as Outputs,
        ProjNorm as ProjNorm,
        estimate_error as estimate_error,
        estimate_errors as estimate_errors,
    )
    from ntk import features as features, gram as gram
    from projnorm.backends import Backend as Backend
    from projnorm.records import RunContext as RunContext
    from projnorm_theory import (
        LinearPair as LinearPair,
        check_assumptions as check_assumptions,
        generalised_bound as generalised_bound,
        min_norm_solution as min_norm_solution,
        projnorm_linear as projnorm_linear,
        projnorm_linear_from_gram as projnorm_linear_from_gram,
        proposition_bound as proposition_bound,
        sharp_interval as sharp_interval,
    )
    from simulations import ToyConfig as ToyConfig, run_toy as run_toy
