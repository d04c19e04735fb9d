"""Gradient features and exact tangent kernels of networks, and the linear theory on them.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from ntk.analysis import (
        Responses,
        TargetAnalysis,
        TargetPrediction,
        TrainAnalysis,
        analyse_target,
        analyse_train,
        predict_target,
    )
    from ntk.capture import UnsupportedNetworkError
    from ntk.config import GramConfig, KernelConfig, NtkConfig, SubsampleConfig
    from ntk.costs import kernel_costs
    from ntk.engine import SelfCheckError
    from ntk.experiment import compute_kernels, run_analysis, run_gram
    from ntk.gradient_features import Features, features
    from ntk.kernels import Kernels, gram
    from ntk.reference import reference_gradients, reference_gram
    from ntk.subsample import run_subsample
