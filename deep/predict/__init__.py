"""The error of your model on your unlabelled data, with an interval."""

from deep.predict.answer import ErrorEstimate, Grounds, MethodResult
from deep.predict.estimate import estimate_error, estimate_errors
from deep.predict.methods import ALL_METHODS, CALIBRATED, UNCALIBRATED
from deep.predict.sets import OutputSet, output_set, read_outputs

__all__ = [
    "ALL_METHODS",
    "CALIBRATED",
    "UNCALIBRATED",
    "ErrorEstimate",
    "Grounds",
    "MethodResult",
    "OutputSet",
    "estimate_error",
    "estimate_errors",
    "output_set",
    "read_outputs",
]
