"""A fitted estimator as one file: an NPZ archive of plain arrays, versioned, with a checksum over all of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.arrays import Arrays, from_npz, to_npz
from projnorm.core.atomic import write_atomically
from projnorm.core.errors import InputError
from projnorm.core.files import decoding, parse_json, read_file
from projnorm.estimate.calibrated_mixture import CalibratedMixture
from projnorm.estimate.calibration_by_size import CalibrationAtSize, CalibrationBySize
from projnorm.estimate.fitted_source import FittedSource
from projnorm.estimate.options import EstimateOptions
from projnorm.estimate.recalibration import Recalibration
from projnorm.estimate.score_regression import ScoreRegression
from projnorm.estimators.base import Resources
from projnorm.outputs.outputs import Outputs

VERSION = 2
_DOCUMENT, _KIND = "document", "projnorm error estimator"
_FINGERPRINT_LENGTH = 16
_SOURCE, _REGRESSIONS = ("logits", "labels", "features", "predictions"), ("inputs", "both", "likeness")
_OF_DRAWS = ("own", "other", "accepted")


def write_estimator(
    path: Path, fitted: FittedSource, recalibration: Recalibration | None, probe: tuple[float, ...]
) -> None:
    """Write what was learnt, with the answers for a few samples of the source."""
    document, arrays = _described(fitted, recalibration)
    document["probe"] = list(probe)
    document["checksum"] = _checksum(document, arrays)
    arrays[_DOCUMENT] = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    write_atomically(path, to_npz({name.replace("/", "|"): value for name, value in arrays.items()}))


def fingerprint(fitted: FittedSource, recalibration: Recalibration | None) -> str:
    """A short text that differs for estimators that learnt something else."""
    return _checksum(*_described(fitted, recalibration))[:_FINGERPRINT_LENGTH]


def is_estimator_file(path: Path) -> bool:
    """Whether `write_estimator` wrote a file, perhaps in another version."""
    try:
        with decoding(f"{path}: is no such file"):
            return bool(parse_json(from_npz(read_file(path))[_DOCUMENT].tobytes())["kind"] == _KIND)
    except InputError:
        return False


def read_estimator(path: Path) -> tuple[FittedSource, Recalibration | None, NDArray[np.float64]]:
    """What `write_estimator` wrote; an `InputError` for any other file."""
    is_damaged = f"{path}: was not written by `projnorm fit`, or is damaged"
    with decoding(is_damaged):
        arrays = {name.replace("|", "/"): value for name, value in from_npz(read_file(path)).items()}
        document = parse_json(arrays.pop(_DOCUMENT).tobytes())
        if document["kind"] != _KIND:
            raise ValueError("it is of another kind")
        version = document["version"]
    if version != VERSION:
        raise InputError(f"{path}: has version {version}, and this one reads {VERSION}; fit it again.")
    with decoding(is_damaged):
        if document.pop("checksum") != _checksum(document, arrays):
            raise ValueError("its checksum differs")
        learnt = document["recalibration"]
        recalibration = None if learnt is None else Recalibration(float(learnt[0]), float(learnt[1]), int(learnt[2]))
        return _fitted(document, arrays, path), recalibration, np.array(document["probe"], dtype=np.float64)


def _described(
    fitted: FittedSource, recalibration: Recalibration | None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What was learnt, as plain values and arrays."""
    arrays: dict[str, NDArray[Any]] = {
        f"source/{name}": value for name in _SOURCE if (value := getattr(fitted.source, name)) is not None
    }
    if fitted.source.class_names:
        arrays["class_names"] = np.array(fitted.source.class_names)
    document: dict[str, Any] = {
        "kind": _KIND,
        "version": VERSION,
        "shift": fitted.options.shift,
        "level": float(fitted.level),
        "seed": int(fitted.seed),
        "slice_spread": fitted.slice_spread,
        "how_to_calibrate": fitted.how_to_calibrate,
        "recalibration": None if recalibration is None else list(astuple(recalibration)),
    }
    if fitted.class_shares is not None:
        arrays["class_shares"] = fitted.class_shares
    if isinstance(fitted.calibration, CalibrationBySize):
        document["origin"] = fitted.calibration.origin
        document["sizes"] = list(fitted.calibration.sizes)
        learnt = fitted.learnt_from
        arrays |= {f"learnt_from/{name}": value for name in _SOURCE if (value := getattr(learnt, name)) is not None}
        for size, at_size in fitted.calibration.sizes.items():
            arrays |= {f"{size}/{name}": value for name, value in _size_arrays(at_size).items()}
            document[f"methods of {size}"] = None if at_size.mixture is None else at_size.mixture.methods
    return document, arrays


def _fitted(document: Mapping[str, Any], arrays: Arrays, path: Path) -> FittedSource:
    source = _outputs(arrays, "source", path)
    calibration = None
    if "sizes" in document:
        sizes = {size: _size(arrays, size, document[f"methods of {size}"]) for size in document["sizes"]}
        calibration = CalibrationBySize(document["origin"], sizes)
    return FittedSource.fit(
        EstimateOptions(shift=document["shift"], level=float(document["level"]), seed=int(document["seed"])),
        source,
        source if calibration is None else _outputs(arrays, "learnt_from", path),
        calibration=calibration,
        class_shares=arrays.get("class_shares"),
        resources=Resources(seed=int(document["seed"])),
        how_to_calibrate=document["how_to_calibrate"],
        known_spread=float(document["slice_spread"]),
    )


def _outputs(arrays: Arrays, group: str, path: Path) -> Outputs:
    logits, labels, features, predictions = (arrays.get(f"{group}/{name}") for name in _SOURCE)
    if logits is None or labels is None:
        raise ValueError(f"it has no labelled outputs of the {group}")
    outputs = Outputs.from_logits(
        logits, labels=labels, features=features, predictions=predictions, name=f"the source in {path.name}"
    )
    return replace(outputs, class_names=tuple(map(str, arrays.get("class_names", np.empty(0)))))


def _size_arrays(at_size: CalibrationAtSize) -> dict[str, NDArray[Any]]:
    """What was learnt for one size as arrays."""
    arrays = {"names": at_size.names, "families": at_size.families, "errors": at_size.errors}
    arrays |= {f"scores/{method}": values for method, values in at_size.scores.items()}
    if at_size.mixture is not None:
        for name in _REGRESSIONS:
            regression = getattr(at_size.mixture, name)
            arrays |= {f"{name}/{field.name}": getattr(regression, field.name) for field in fields(ScoreRegression)}
        arrays |= {f"mixture/{name}": getattr(at_size.mixture, name) for name in _OF_DRAWS}
        arrays["mixture/widest"] = np.array(at_size.mixture.widest)
    return arrays


def _size(arrays: Arrays, size: int, methods: Any) -> CalibrationAtSize:
    own = {name.removeprefix(f"{size}/"): value for name, value in arrays.items() if name.startswith(f"{size}/")}
    scores = {name.removeprefix("scores/"): own[name] for name in own if name.startswith("scores/")}
    mixture = None
    if methods is not None:
        first, second = (tuple(map(str, names)) for names in methods)
        parts: dict[str, Any] = {name: own[f"mixture/{name}"] for name in _OF_DRAWS}
        for name in _REGRESSIONS:
            parts[name] = ScoreRegression(*(own[f"{name}/{field.name}"] for field in fields(ScoreRegression)))
        mixture = CalibratedMixture(methods=(first, second), widest=float(own["mixture/widest"]), **parts)
    return CalibrationAtSize(own["names"], own["families"], own["errors"], scores, mixture)


def _checksum(document: Mapping[str, Any], arrays: Arrays) -> str:
    """SHA-256 of everything in the file."""
    sha256 = hashlib.sha256(json.dumps(document, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        sha256.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return sha256.hexdigest()
