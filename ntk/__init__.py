"""Gradient features and exact tangent kernels of networks, and the linear theory on them.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

_NAMES = {
    "Features": "ntk.gradient_features",
    "GramConfig": "ntk.config",
    "KernelConfig": "ntk.config",
    "Kernels": "ntk.kernels",
    "NtkConfig": "ntk.config",
    "Responses": "ntk.analysis",
    "SelfCheckError": "ntk.engine",
    "SubsampleConfig": "ntk.config",
    "TargetAnalysis": "ntk.analysis",
    "TargetPrediction": "ntk.analysis",
    "TrainAnalysis": "ntk.analysis",
    "UnsupportedNetworkError": "ntk.capture",
    "analyse_target": "ntk.analysis",
    "analyse_train": "ntk.analysis",
    "compute_kernels": "ntk.experiment",
    "features": "ntk.gradient_features",
    "gram": "ntk.kernels",
    "kernel_costs": "ntk.costs",
    "predict_target": "ntk.analysis",
    "reference_gradients": "ntk.reference",
    "reference_gram": "ntk.reference",
    "run_analysis": "ntk.experiment",
    "run_gram": "ntk.experiment",
    "run_subsample": "ntk.subsample",
}
__getattr__, __dir__ = attach(__name__, _NAMES)
__all__ = [*_NAMES]

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
