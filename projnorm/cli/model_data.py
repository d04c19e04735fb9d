"""The model, the labelled source and other samples, as the commands that estimate an error take them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.tables import is_table_file, stem
from projnorm.estimate.settings import EstimateSettings

if TYPE_CHECKING:
    from projnorm.estimate.error_estimator import ErrorEstimator
    from projnorm.estimate.options import EstimateOptions
    from projnorm.models.preparation import Prepare

LOGGER = logging.getLogger("projnorm")
_SIZE = 224


@dataclass(frozen=True)
class SourceOptions(Config):
    """Labelled samples, or outputs of the model on them."""

    source: str = setting(
        "",
        "Labelled samples like those of training: an .npz, .npy, .csv, .csv.gz or .parquet file, or class folders.",
    )
    calibration: tuple[str, ...] = setting(
        (), "Labelled shifted sets, a file each; fog-1.npz and fog-3.npz are of one family.", repeat=True
    )
    label_column: str = setting(
        "",
        "Column of the labels in .csv and .parquet files; label, labels, y or target need not be named.",
    )


@dataclass(frozen=True)
class EstimatorOption(Config):
    """A fitted estimator instead of a source."""

    estimator: str = setting("", "File that `projnorm fit` wrote.")


@dataclass(frozen=True)
class ModelOptions(Config):
    """The model, unless the files hold its outputs."""

    model: str = setting("", "FILE.py:FUNCTION that builds the model, or an .onnx file.")
    weights: str = setting("", "Weights of the model: a .pth or .safetensors file.")
    init: str = setting("", "Weights that fine-tuning began with, for ProjNorm.")
    second: tuple[str, ...] = setting((), "Weights of another training, for GDE; two or more for ALine.", repeat=True)
    preprocess: str = setting(
        "auto",
        "Preparation of a batch: unit scales bytes to 0..1 with colours first; auto is the model's own, or unit.",
        choices=("auto", "unit", "imagenet", "none"),
    )
    size: int | None = setting(
        None, f"Pixels that a network sees with --preprocess imagenet; {_SIZE} by default.", least=1
    )
    device: str = setting("auto", "Device: auto, cpu, cuda or mps.")

    def check(self) -> None:
        """Refuse options that would be ignored."""
        if not self.model or self.model.endswith(".onnx"):
            for name in ("weights", "init", "second", "preprocess"):
                if getattr(self, name) not in ("", (), "auto"):
                    raise InputError(f"`{name}` needs `model` to be FILE.py:FUNCTION.")
        if self.size is not None and self.preprocess != "imagenet":
            raise InputError("`size` is for `preprocess` imagenet.")


@dataclass(frozen=True)
class EstimateFlags(EstimateSettings):
    """How the error is estimated."""

    class_shares: tuple[float, ...] = setting(
        (),
        "Class shares of the targets, where known, in the order of the columns (of a table: by name), as 0.3,0.7.",
    )
    calibrate: bool = setting(True, "Calibrate on shifted copies of the source, where there is a model.")


class ModelData:
    """The model of a command line, and readers of its files."""

    def __init__(self, model: ModelOptions, files: Iterable[str], *, label_column: str, seed: int) -> None:
        """Check that all files are there, before anything is computed, then build the model."""
        paths, script = list(files), model.model.rpartition(":")[0] or model.model
        for name in [*paths, script, model.weights, model.init, *model.second]:
            if name and not locate(name).exists():
                raise InputError(f"{name}: there is no such file or folder.")
        if label_column and not any(map(is_table_file, map(Path, paths))):
            raise InputError("`label_column` is for .csv and .parquet files.")
        if not model.model:
            # POT would import torch, jax and more for tensors that are not used here.
            os.environ.update({f"POT_BACKEND_DISABLE_{name}": "1" for name in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW")})
        self._built, self._device = _built(model, seed), model.device
        self.model = self._built.model
        self.label_column = label_column

    def read(self, path: str | Path) -> Any:
        """The samples in a file, with labels if they are there, or the outputs."""
        return self._built.read(Path(path), label_column=self.label_column)

    def labelled(self, path: str | Path) -> Any:
        """The same; a table must have labels, which is refused before anything is computed."""
        samples = self.read(path)
        is_labelled = isinstance(samples, tuple) or (isinstance(samples, dict) and "labels" in samples)
        if is_table_file(Path(path)) and not is_labelled:
            raise InputError(f"{path}: has no labels in a column called label; name the column as `label_column`.")
        return samples

    def of_table(self, table: Any, name: str) -> Any:
        """The samples in a DataFrame, or the outputs; labels are left out unless every row has one."""
        from projnorm.outputs.output_tables import arrays_of_table, label_column_of, labels_in

        column = label_column_of(table, self.label_column)
        if column and table[column].isna().any():
            table, column = table.drop(columns=column), ""
        if self.model is None:
            return arrays_of_table(table, name, label_column=column)
        labels = labels_in(table, name, column) if column else None
        return table if labels is None else (table.drop(columns=column), labels)

    def options(
        self, calibration: Iterable[str], settings: EstimateFlags, *, methods: str | tuple[str, ...] = "default"
    ) -> EstimateOptions:
        """The options of an estimate."""
        from projnorm.estimate.options import EstimateOptions

        sets = {name: self.labelled(path) for name, path in named(calibration).items()}
        if sets and not settings.calibrate:
            raise InputError("`calibration` and --no-calibrate exclude each other; leave one out.")
        return EstimateOptions(
            shift=settings.shift,
            class_shares=settings.class_shares or None,
            methods=methods,
            calibration=sets or ("auto" if settings.calibrate else "none"),
            level=settings.level,
            seed=settings.seed,
            device=self._device,
            prepare=self._built.prepare,
            init=self._built.init,
            others=self._built.others,
        )

    def load(self, estimator: str) -> ErrorEstimator:
        """The estimator in a file, with the model."""
        from projnorm.estimate.error_estimator import ErrorEstimator

        return ErrorEstimator.load(
            locate(estimator), model=self.model, prepare=self._built.prepare, device=self._device
        )


def require_source(data: SourceOptions, estimator: EstimatorOption) -> None:
    """One source, and nothing that an estimator would ignore."""
    if bool(data.source) == bool(estimator.estimator):
        raise InputError("give either `source` or `estimator`.")
    if estimator.estimator and data.calibration:
        raise InputError("`calibration` is for `source`; an estimator was calibrated when it was fitted.")


def named(paths: Iterable[str]) -> dict[str, Path]:
    """Files by their names without ending, each of which must be another."""
    paths_by_name: dict[str, Path] = {}
    for path in map(Path, paths):
        if stem(path) in paths_by_name:
            raise InputError(f"two sets are called {stem(path)!r}: {paths_by_name[stem(path)]} and {path}; rename one.")
        paths_by_name[stem(path)] = path
    return paths_by_name


@dataclass(frozen=True)
class _Built:
    """A model as `estimate_error` takes it, what belongs to it, and the function that reads its files."""

    model: Any
    read: Callable[..., Any]
    prepare: Prepare | None = None
    init: Any = None
    others: tuple[Any, ...] = ()


def _built(options: ModelOptions, seed: int) -> _Built:
    """The model that the options name; None where files hold its outputs."""
    if not options.model:
        return _Built(None, _read_outputs)
    from projnorm.models.model_files import build_model, initial_network, with_weights
    from projnorm.models.sample_files import preparation, read_samples

    if options.model.endswith(".onnx"):
        return _Built(locate(options.model), read_samples)

    built = build_model(options.model, Path(options.weights) if options.weights else None, seed=seed)
    if not options.weights:
        LOGGER.warning("no --weights were given: the model is used with the weights that %s gave it.", options.model)
    return _Built(
        built.model,
        read_samples,
        preparation(options.preprocess, options.size or _SIZE, built.prepare),
        initial_network(built, Path(options.init), seed=seed) if options.init else None,
        tuple(with_weights(built, Path(path)) for path in options.second),
    )


def _read_outputs(path: Path, *, label_column: str) -> Any:
    """The arrays in a table of outputs; for another file its path, which is read later."""
    path = locate(path)
    if not is_table_file(path):
        return path
    from projnorm.data.tables import read_table
    from projnorm.outputs.output_tables import arrays_of_table

    return arrays_of_table(read_table(path), str(path), label_column=label_column)
