"""`projnorm fit`: an estimator of the error, fitted once and kept in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from projnorm.cli.model_data import EstimateFlags, ModelData, ModelOptions, SourceOptions
from projnorm.cli.output import require_not_input, say
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.formatting import percent


@dataclass(frozen=True)
class FileOption(Config):
    """Where the estimator is written."""

    out: str = setting("estimator.projnorm", "File that the estimator is written to.")
    sizes: tuple[int, ...] = setting(
        (), "Numbers of samples of the targets to come, where there are calibration sets.", least=2, distinct=True
    )


def fit(data: SourceOptions, model: ModelOptions, settings: EstimateFlags, file: FileOption) -> None:
    """Fit an estimator of the error to labelled samples once, and write it to a file that other commands take.

    The file holds what was learnt, as plain arrays: the outputs on the source and, with --model and images, what
    calibration sets taught. It does not hold the model.
    """
    if not data.source:
        raise InputError("`source` must be given.")
    path = Path(file.out)
    require_not_input(path, "out", [data.source, *data.calibration])
    from projnorm.estimate.estimator_file import is_estimator_file

    if path.exists() and not is_estimator_file(path):
        raise InputError(f"{path}: exists, and `projnorm fit` did not write it; name another file as `out`.")
    opened = ModelData(model, [data.source, *data.calibration], label_column=data.label_column, seed=settings.seed)
    source, options = opened.labelled(data.source), opened.options(data.calibration, settings)
    from projnorm.estimate.error_estimator import ErrorEstimator

    fitted = ErrorEstimator.from_options(opened.model, source, options, sizes=file.sizes)
    path.parent.mkdir(parents=True, exist_ok=True)
    fitted.save(path)
    error = percent(fitted.source_error)
    say(f"{path}: fitted to {fitted.n_source:,} labelled samples; the error on them is {error}.")
