"""An estimator of the error that is fitted once, kept in a file, and applied to target after target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from threadpoolctl import threadpool_limits

from projnorm.core.errors import InputError
from projnorm.core.files import decoding
from projnorm.estimate.fitted_source import FittedSource, halves
from projnorm.estimate.options import DEFAULT, EstimateOptions, one_thread_for
from projnorm.estimate.result import ErrorEstimate
from projnorm.estimate.source_and_model import SourceAndModel, known_shares
from projnorm.estimate.target_estimate import estimate_target
from projnorm.models.batches import Collate
from projnorm.outputs.outputs import Outputs, require_alike

if TYPE_CHECKING:
    from torch import nn

    from projnorm.estimate.recalibration import Recalibration
    from projnorm.labels.labelled import Labelled
    from projnorm.models.preparation import Prepare
    from projnorm.models.recipe import Recipe

# Samples of the source that a file is checked with when it is read.
_PROBE = 200


@dataclass(frozen=True, slots=True, eq=False)
class ErrorEstimator:
    """The error of one model on unlabelled data: fitted once to labelled samples, then applied to any target.

    >>> import numpy as np
    >>> import projnorm as pn
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 3, 600)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(600, 3))
    >>> source, target = {"logits": logits[:400], "labels": labels[:400]}, {"logits": logits[400:]}
    >>> estimator = pn.ErrorEstimator.fit(None, source)
    >>> print(f"{estimator.estimate(target).error:.2f}")
    0.17

    Attributes:
        fitted: What was learnt from the source.
        samples: The source, and the reader of other samples.
        recalibration: What labels of earlier batches correct; None where there were none.
    """

    fitted: FittedSource
    samples: SourceAndModel
    recalibration: Recalibration | None = None

    @classmethod
    def fit(
        cls,
        model: Any,
        source: Any,
        *,
        sizes: Sequence[int] = (),
        shift: str = EstimateOptions.shift,
        class_shares: Sequence[float] | Mapping[Any, float] | None = EstimateOptions.class_shares,
        methods: str | Sequence[str] = EstimateOptions.methods,
        calibration: str | Mapping[str, Any] = EstimateOptions.calibration,
        level: float = EstimateOptions.level,
        seed: int = EstimateOptions.seed,
        device: str = EstimateOptions.device,
        prepare: Prepare | None = EstimateOptions.prepare,
        init: nn.Module | tuple[nn.Module, Recipe] | None = EstimateOptions.init,
        others: Sequence[Any] = EstimateOptions.others,
        collate: Collate | None = EstimateOptions.collate,
    ) -> Self:
        """Learn from labelled samples of the distribution that the model was trained on.

        Without calibration sets, `estimate` then gives the numbers of `estimate_error`. With calibration sets they
        differ a little: `estimate_error` calibrates on draws that are as large as the target, and this function, which
        has seen no target, on draws of a few fixed sizes, the nearest of which is used. With ``sizes=[len(target)]``
        the numbers are the same, as long as the target is not larger than the sets.

        Args:
            model: The model, as in `estimate_error`; None where source and targets are outputs.
            source: Labelled samples that the model was not trained on, or its outputs on them, as in `estimate_error`.
            sizes: Numbers of samples of the targets to come, where there are calibration sets; by default the median
                size of the sets, its half, and so on down to about 60. A target is compared with draws of the nearest
                size.
            shift: As in `estimate_error`, like all that follow.
            class_shares: Known class shares of the targets.
            methods: Methods to run besides the default.
            calibration: Labelled shifted sets, or whether to make some.
            level: Level of the intervals.
            seed: Seed of everything that is drawn.
            device: Device of networks of torch.
            prepare: Function from a batch of inputs to what a network takes.
            init: The network with its initial weights.
            others: More models of the same classes.
            collate: Function from a list of samples to a batch.

        Returns:
            The fitted estimator.

        Raises:
            InputError: If something does not fit; the message says what.
        """
        options = EstimateOptions(
            shift=shift,
            class_shares=class_shares,
            methods=methods,
            calibration=calibration,
            level=level,
            seed=seed,
            device=device,
            prepare=prepare,
            init=init,
            others=others,
            collate=collate,
        )
        return cls.from_options(model, source, options, sizes=sizes)

    @classmethod
    def from_options(cls, model: Any, source: Any, options: EstimateOptions, *, sizes: Sequence[int] = ()) -> Self:
        """As `fit`, with the options in one object.

        Args:
            model: The model, as `fit` takes it.
            source: Labelled samples, as `fit` takes them.
            options: The options.
            sizes: Numbers of samples of the targets to come, where there are calibration sets.

        Returns:
            The fitted estimator.
        """
        numbers = _whole_sizes(sizes)
        with one_thread_for(model, options):
            estimator = cls.from_samples(SourceAndModel(model, source, options))
            fitted = estimator.fitted
            if fitted.calibration is not None:
                from projnorm.estimate.learn_calibration import with_sizes

                fitted = with_sizes(fitted, numbers)
            _ = fitted.slice_spread  # learnt now and not with the first target
            if options.based_on is not None:
                estimate_target(fitted, fitted.source)  # refuses named methods that give no error
        return replace(estimator, fitted=fitted)

    @classmethod
    def from_samples(cls, samples: SourceAndModel) -> Self:
        """An estimator that learns from calibration sets when it sees a target, for targets of its size.

        Args:
            samples: The labelled source, with the model that reads other sets.
        """
        source, options = samples.source, samples.options
        learnt_from, held_out = halves(source, options.seed)
        calibration = samples.calibration_sets(held_out)
        fitted = FittedSource.fit(
            options,
            source,
            source if calibration is None else learnt_from,
            calibration=calibration,
            class_shares=known_shares(options.class_shares, source),
            resources=samples.resources(),
            how_to_calibrate=_how_to_calibrate(samples),
        )
        return cls(fitted, samples)

    @property
    def fingerprint(self) -> str:
        """A short text that differs for estimators that learnt something else; the same after saving and loading."""
        from projnorm.estimate.estimator_file import fingerprint

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
        interval: str = "auto",
        metrics: bool = False,
        name: str = "target",
    ) -> ErrorEstimate:
        """Estimate the error on one target.

        Args:
            target: Unlabelled samples, in the forms that `estimate_error` takes.
            labelled: Labels of some samples of the target, as in `estimate_error`.
            interval: Interval from labels, as in `estimate_error`.
            metrics: Whether to estimate recall and precision of the classes, balanced accuracy and more, too.
            name: Name of the target in the estimate and in messages.

        Returns:
            The error with its interval, corrected as `recalibrated` says unless the target has labels of its own.

        Raises:
            InputError: If the target does not fit to the source, or nothing can be estimated.
        """
        labels = read_labels(labelled)  # which are refused before the model is run
        with self.one_thread():
            outputs = self._read(target, name)
            require_alike(self.fitted.source, outputs)
            estimate = estimate_outputs(self.fitted, outputs, labels, interval, metrics=metrics)
        return estimate if self.recalibration is None else self.recalibration.apply(estimate)

    def recalibrated(self, estimates: Sequence[ErrorEstimate]) -> Self:
        """Correct the estimates to come by labels of earlier batches, or of other domains.

        Args:
            estimates: Estimates of this estimator for them, made with `labelled`; the targets to come are taken to be
                shifted like them.

        Returns:
            A new estimator whose estimates and intervals are corrected; corrections of this one are left out.

        Raises:
            InputError: If there is no estimate, or one of them has no labels.
        """
        from projnorm.estimate.recalibration import Recalibration

        return replace(self, recalibration=Recalibration.from_estimates(estimates))

    def outputs_of(self, target: Any, name: str) -> Outputs:
        """The outputs of the model on a target; outputs are returned as they are.

        Args:
            target: Samples, in the forms that `estimate` takes, or outputs.
            name: Name of the target in messages.
        """
        with self.one_thread():
            return self._read(target, name)

    def _read(self, target: Any, name: str) -> Outputs:
        outputs = self.samples.outputs(target, name)
        # A saved source has no inputs, so methods that look at them were refused when it was saved.
        return outputs if self.fitted.source.inputs is not None else replace(outputs, inputs=None)

    def one_thread(self) -> Any:
        """A context in which one thread of the CPU is used, so that numbers do not depend on the machine."""
        return one_thread_for(self.samples.model, self.samples.options)

    def save(self, path: str | Path) -> None:
        """Write the estimator to a file of plain arrays, without the model; an earlier file is replaced as a whole.

        Args:
            path: The file.

        Raises:
            InputError: If it was fitted with methods that look at more than the outputs of one model.
        """
        from projnorm.estimate.estimator_file import write_estimator

        fitted = self.fitted
        if fitted.options.methods != DEFAULT or fitted.source.others:
            raise InputError("an estimator is saved with `methods` default and without `others`; fit it so.")
        source = replace(fitted.source, inputs=None)
        with threadpool_limits(1):
            saved, probe = replace(fitted, source=source, known_spread=fitted.slice_spread), self._probe(source)
        write_estimator(Path(path), saved, self.recalibration, probe)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        model: Any = None,
        prepare: Prepare | None = None,
        device: str = "auto",
        collate: Collate | None = None,
    ) -> Self:
        """Read an estimator that `save` wrote.

        Args:
            path: The file.
            model: The model, as in `fit`, if targets are to be its inputs; None if they are to be its outputs.
            prepare: Function from a batch of inputs to what a network takes.
            device: Device of networks of torch.
            collate: Function from a list of samples to a batch.

        Returns:
            An estimator that gives the same estimates as the one that was saved.

        Raises:
            InputError: If the file is damaged, of another version, or gives other answers than when it was written.
            OSError: If it cannot be read.
        """
        from projnorm.estimate.estimator_file import read_estimator

        with threadpool_limits(1):
            fitted, recalibration, probe = read_estimator(Path(path))
            options = EstimateOptions(device=device, prepare=prepare, collate=collate)
            estimator = cls(fitted, SourceAndModel.from_outputs(model, fitted.source, options), recalibration)
            with decoding(f"{path}: was not written by `projnorm fit`, or is damaged"):
                is_same = np.allclose(estimator._probe(fitted.source), probe, rtol=1e-9, atol=1e-12)
        if not is_same:
            raise InputError(f"{path}: gives other answers than when it was written; fit and save it again.")
        return estimator

    def _probe(self, source: Outputs) -> tuple[float, float, float]:
        """The answer for a few samples of the source, with which a file is checked."""
        estimate = estimate_target(self.fitted, source.take(np.arange(min(_PROBE, len(source)))))
        return estimate.error, estimate.low, estimate.high


def estimate_outputs(
    fitted: FittedSource, outputs: Outputs, labels: Labelled | None, interval: str, *, metrics: bool
) -> ErrorEstimate:
    """The estimate for outputs that fit to the source; the other arguments as in `ErrorEstimator.estimate`."""
    if labels is None:
        return estimate_target(fitted, outputs, metrics=metrics)
    from projnorm.estimate.labelled_estimate import estimate_with_labels

    return estimate_with_labels(fitted, outputs, labels, interval, metrics=metrics)


def read_labels(labelled: Any) -> Labelled | None:
    """Labels in one of the forms that `estimate_error` takes; None for None."""
    if labelled is None:
        return None
    from projnorm.labels.labelled import Labelled

    return labelled if isinstance(labelled, Labelled) else Labelled.from_input(labelled)


def _whole_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    numbers = np.asarray(sizes)
    if numbers.ndim != 1 or (len(numbers) and (numbers.dtype.kind not in "iu" or numbers.min() < 1)):
        raise InputError(f"`sizes` must be whole numbers, 1 or more; got {sizes!r}.")
    return tuple(numbers.tolist())


def _how_to_calibrate(samples: SourceAndModel) -> str:
    """How a user could have calibration sets."""
    remedy = "pass labelled shifted sets as `calibration`"
    if samples.model is None:
        return f"{remedy}, or the model with its inputs"
    return f'{remedy}, or calibration="auto"' if samples.options.calibration == "none" else remedy
