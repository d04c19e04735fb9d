"""Gradient features and exact tangent kernels of networks, and the linear theory on them.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from ntk.experiments.analysis import (
        Responses,
        TargetAnalysis,
        TargetPrediction,
        TrainAnalysis,
        analyse_target,
        analyse_train,
        predict_target,
    )
    from ntk.experiments.config import GramConfig, NtkConfig, SubsampleConfig
    from ntk.experiments.experiment import run_analysis, run_gram
    from ntk.experiments.plan import plan_kernels
    from ntk.experiments.subsample import run_subsample
    from ntk.features.gradient_features import Features, gradient_features
    from ntk.features.reference import reference_gradients, reference_gram
    from ntk.features.self_check import SelfCheckError
    from ntk.kernel_config import KernelConfig
    from ntk.tiles.gram import gram
    from ntk.tiles.kernels import Kernels
    from ntk.trace.requirements import UnsupportedNetworkError
