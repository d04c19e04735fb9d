"""The error of your model on your unlabelled data, with an interval; torch is imported for networks of torch only."""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from deep.estimate.estimate import estimate_error, estimate_errors
    from deep.estimate.fitted import ErrorEstimator
    from deep.estimate.options import EstimateOptions
    from deep.estimate.result import CalibrationSummary, ErrorEstimate, MethodResult
    from deep.outputs import Outputs, read_outputs
