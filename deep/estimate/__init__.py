"""The error of your model on your unlabelled data, with an interval; torch is imported for networks of torch only."""

from deep.estimate.estimate import EstimateOptions, estimate_error, estimate_errors
from deep.estimate.result import CalibrationSummary, ErrorEstimate, MethodResult
from deep.outputs import Outputs, read_outputs

__all__ = [
    "CalibrationSummary",
    "ErrorEstimate",
    "EstimateOptions",
    "MethodResult",
    "Outputs",
    "estimate_error",
    "estimate_errors",
    "read_outputs",
]
