"""Gradient features and exact tangent kernels of networks, and the linear theory on them."""

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
from ntk.config import KernelConfig
from ntk.engine import SelfCheckError
from ntk.features import Features, features
from ntk.gram import Kernels, gram
from ntk.reference import reference_gradients, reference_gram
from ntk.store import ChangedInputError

__all__ = [
    "ChangedInputError",
    "Features",
    "KernelConfig",
    "Kernels",
    "Responses",
    "SelfCheckError",
    "TargetAnalysis",
    "TargetPrediction",
    "TrainAnalysis",
    "UnsupportedNetworkError",
    "analyse_target",
    "analyse_train",
    "features",
    "gram",
    "predict_target",
    "reference_gradients",
    "reference_gram",
]
