"""Predict how wrong a model will be on new, unlabelled data.

``import projnorm as pn`` gives the names people want most; everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__version__ = "0.2.0"

_NAMES = {
    "theory": "projnorm_theory",
    "simulations": "simulations",
    "ntk": "ntk",
    "deep": "deep",
    "figures": "figures",
    "LinearPair": "projnorm_theory",
    "check_assumptions": "projnorm_theory",
    "generalised_bound": "projnorm_theory",
    "min_norm_solution": "projnorm_theory",
    "projnorm_linear": "projnorm_theory",
    "projnorm_linear_from_gram": "projnorm_theory",
    "proposition_bound": "projnorm_theory",
    "sharp_interval": "projnorm_theory",
    "ToyConfig": "simulations",
    "run_toy": "simulations",
    "features": "ntk",
    "gram": "ntk",
    "ATC": "deep",
    "COT": "deep",
    "DoC": "deep",
    "ErrorEstimate": "deep",
    "Outputs": "deep",
    "ProjNorm": "deep",
    "estimate_error": "deep",
    "estimate_errors": "deep",
    "Backend": "projnorm.backends",
    "RunContext": "projnorm.records",
}
__getattr__, __dir__ = attach(__name__, _NAMES)
__all__ = ["__version__", *_NAMES]

if TYPE_CHECKING:
    import deep
    import figures
    import ntk
    import projnorm_theory as theory
    import simulations
    from deep import ATC, COT, DoC, ErrorEstimate, Outputs, ProjNorm, estimate_error, estimate_errors
    from ntk import features, gram
    from projnorm.backends import Backend
    from projnorm.records import RunContext
    from projnorm_theory import (
        LinearPair,
        check_assumptions,
        generalised_bound,
        min_norm_solution,
        projnorm_linear,
        projnorm_linear_from_gram,
        proposition_bound,
        sharp_interval,
    )
    from simulations import ToyConfig, run_toy
