"""Gradient features and exact tangent kernels of networks, and the linear theory on them.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from ntk.analysis import (
        Responses as Responses,
        TargetAnalysis as TargetAnalysis,
        TargetPrediction as TargetPrediction,
        TrainAnalysis as TrainAnalysis,
        analyse_target as analyse_target,
        analyse_train as analyse_train,
        predict_target as predict_target,
    )
    from ntk.capture import UnsupportedNetworkError as UnsupportedNetworkError
    from ntk.config import (
        GramConfig as GramConfig,
        KernelConfig as KernelConfig,
        NtkConfig as NtkConfig,
        SubsampleConfig as SubsampleConfig,
    )
    from ntk.costs import kernel_costs as kernel_costs
    from ntk.engine import SelfCheckError as SelfCheckError
    from ntk.experiment import compute_kernels as compute_kernels, run_analysis as run_analysis, run_gram as run_gram
    from ntk.gradient_features import Features as Features, features as features
    from ntk.kernels import Kernels as Kernels, gram as gram
    from ntk.reference import reference_gradients as reference_gradients, reference_gram as reference_gram
    from ntk.subsample import run_subsample as run_subsample
