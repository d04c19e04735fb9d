"""An estimator of the error that is fitted once, kept in a file, and applied to target after target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from projnorm.core.errors import InputError
from projnorm.core.files import decoding
from projnorm.estimate.calibration_sets import CalibrationSets
from projnorm.estimate.estimate import estimator_of, with_labels
from projnorm.estimate.estimator_file import fingerprint, read_estimator, write_estimator
from projnorm.estimate.fitted_source import FittedSource
from projnorm.estimate.options import EstimateOptions, check_options, device_of, one_thread_for
from projnorm.estimate.recalibration import Recalibration
from projnorm.estimate.result import ErrorEstimate
from projnorm.estimate.source_and_model import SourceAndModel, as_outputs
from projnorm.labels.labelled import AUTO, Labelled
from projnorm.models.batches import as_batches
from projnorm.models.classifiers import ArrayClassifier, Classifier, as_classifier, outputs_of
from projnorm.outputs.outputs import Outputs, require_alike

if TYPE_CHECKING:
    from projnorm.models.preparation import Prepare

# Without other wishes, calibrated estimators learn for the size of the calibration sets and its halves down to this.
_SMALLEST = 60
# Samples of the source that a file is checked with when it is read.
_PROBE = 200


@dataclass(frozen=True, slots=True, eq=False)
class ErrorEstimator:
    """The error of one model on unlabelled data: fitted once to labelled samples, then applied to any target.

    Attributes:
        fitted: What was learnt from the source.
        classifier: The model; None where targets are outputs.
        model: The model as it was given, for the choice of threads.
        options: Options of the fit.
        recalibration: What labels of earlier batches correct; None where there were none.
    """

    fitted: FittedSource
    classifier: Classifier | None
    model: Any
    options: EstimateOptions
    recalibration: Recalibration | None = None

    @classmethod
    def fit(
        cls, source: Any, *, model: Any = None, sizes: Sequence[int] = (), **options: Unpack[EstimateOptions]
    ) -> Self:
        """Learn from labelled samples of the distribution that the model was trained on.

        Args:
            source: Labelled samples that the model was not trained on, or its outputs on them, as in `estimate_error`.
            model: The model, as in `estimate_error`; None where source and targets are outputs.
            sizes: Numbers of samples of the targets to come, where shifted copies of images serve to calibrate; by
                default that of the copies, its half, and so on. A target is judged by the nearest.
            options: As in `estimate_errors`.

        Raises:
            InputError: If something does not fit; the message says what.
        """
        check_options(options)
        wanted = _whole_sizes(sizes)
        with one_thread_for(model, options):
            samples = SourceAndModel.of_options(model, source, options)
            fitted = estimator_of(samples, options)
            if isinstance(fitted.calibration, CalibrationSets):
                fitted = fitted.for_sizes(wanted or _default_sizes(fitted.calibration.size))
            fitted.estimate(fitted.source)  # everything that is learnt lazily
        return cls(fitted, samples.classifier, model, options)

    @property
    def fingerprint(self) -> str:
        """A short text that differs for estimators that learnt something else; the same after saving and loading."""
        return fingerprint(self.fitted, self.recalibration)

    @property
    def n_source(self) -> int:
        """Number of labelled samples that it was fitted to."""
        return len(self.fitted.source)

    @property
    def source_error(self) -> float:
        """Error of the model on them."""
        return self.fitted.source.error

    def estimate(
        self,
        target: Any,
        *,
        labelled: Any = None,
        interval: str = AUTO,
        metrics: bool = False,
        name: str = "target",
    ) -> ErrorEstimate:
        """The estimate for one target, in the forms that `estimate_error` takes, as do the other arguments."""
        outputs = self.outputs_of(target, name)
        require_alike(self.fitted.source, outputs)
        with one_thread_for(self.model, self.options):
            if labelled is not None:
                return with_labels(self.fitted, outputs, Labelled.from_input(labelled), interval, metrics=metrics)
            estimate = self.fitted.estimate(outputs, metrics=metrics)
        return estimate if self.recalibration is None else self.recalibration.apply(estimate)

    def recalibrated(self, estimates: Sequence[ErrorEstimate]) -> Self:
        """The estimator corrected by labels of earlier batches or of other domains.

        Args:
            estimates: What this estimator said of them, with `labelled`; the targets to come are taken to be shifted
                like them. Earlier corrections are forgotten.
        """
        return replace(self, recalibration=Recalibration.of(estimates))

    def outputs_of(self, target: Any, name: str) -> Outputs:
        """What the model says of a target; outputs as they are."""
        if isinstance(target, Outputs):
            return target if target.name else replace(target, name=name)
        if self.model is None:
            return replace(as_outputs(target, name, needs_labels=False), name=name)
        samples = as_batches(target, name, collate=self.options.get("collate"))
        with one_thread_for(self.model, self.options):
            classifier = self.classifier or self._classifier(samples)
            outputs = outputs_of(classifier, samples, name, needs_labels=False)
        # A saved source has no inputs, so methods that look at them were refused when it was saved.
        return outputs if self.fitted.source.inputs is not None else replace(outputs, inputs=None)

    def save(self, path: str | Path) -> None:
        """Write the estimator to a file of plain arrays, without the model; an earlier file is replaced as a whole.

        Raises:
            InputError: If it was fitted with methods that look at more than the outputs of one model.
        """
        fitted = self.fitted
        if fitted.methods is not None or fitted.source.others:
            raise InputError("an estimator is saved with `methods` default and without `others`; fit it so.")
        kept = replace(fitted.source, inputs=None)
        saved = replace(fitted, source=kept, known_spread=fitted.slice_spread)
        write_estimator(Path(path), saved, self.recalibration, self._probe(kept))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        model: Any = None,
        prepare: Prepare | None = None,
        device: str = "auto",
        collate: Any = None,
    ) -> Self:
        """Read an estimator; pass the model, as in `fit`, if targets are to be its inputs and not its outputs.

        Raises:
            InputError: If the file is damaged, of another version, or gives other answers than when it was written.
            OSError: If it cannot be read.
        """
        fitted, recalibration, probe = read_estimator(Path(path))
        options: EstimateOptions = {"device": device, "prepare": prepare, "collate": collate}
        estimator = cls(fitted, None, model, options, recalibration)
        with decoding(f"{path}: is no whole file of an error estimator"):
            is_same = np.allclose(estimator._probe(fitted.source), probe, rtol=1e-9, atol=1e-12)
        if not is_same:
            raise InputError(f"{path}: gives other answers than when it was written; fit and save it again.")
        return estimator

    def _classifier(self, samples: Any) -> Classifier:
        device = device_of(self.model, self.options.get("device", "auto"))
        found = as_classifier(self.model, samples, prepare=self.options.get("prepare"), device=device)
        if isinstance(found, ArrayClassifier):  # as it was found on the source, not as it looks on these samples
            return replace(found, decides=self.fitted.source.predictions is not None)
        return found

    def _probe(self, source: Outputs) -> tuple[float, float, float]:
        """The answer for a few samples of the source, with which a file is checked."""
        with one_thread_for(None, {}):
            found = self.fitted.estimate(source.take(np.arange(min(_PROBE, len(source)))))
        return found.error, found.low, found.high


def _whole_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    found = np.asarray(sizes)
    if found.ndim != 1 or (len(found) and (found.dtype.kind not in "iu" or found.min() < 1)):
        raise InputError(f"`sizes` must be whole numbers, 1 or more; got {sizes!r}.")
    return tuple(found.tolist())


def _default_sizes(size: int) -> tuple[int, ...]:
    """The size of the calibration sets, and halves of it."""
    halvings = max(0, int(math.log2(max(1.0, size / _SMALLEST))))
    return tuple(size >> number for number in range(halvings + 1))
