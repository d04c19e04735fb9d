"""The error of your model on your unlabelled data, with an interval; torch is imported for networks of torch only."""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.estimate.error_estimator import ErrorEstimator
    from projnorm.estimate.estimate import estimate_error, estimate_errors
    from projnorm.estimate.options import EstimateOptions
    from projnorm.estimate.result import CalibrationSummary, ErrorEstimate, MethodResult
    from projnorm.outputs.outputs import Outputs, read_outputs
