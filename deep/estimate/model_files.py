"""Models and samples from files that a user names: the file of the model is the only code that is run."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from deep.estimate.torch_classifier import unit_images
from deep.output_tables import label_column_of, labels_in
from deep.training import Prepare
from projnorm.arrays import read_arrays
from projnorm.errors import InputError
from projnorm.files import locate, read_file
from projnorm.tables import is_table_file, read_table
from projnorm.vision import ImageNetInput
from projnorm.vision.image_folders import read_class_folders
from projnorm.vision.weights import load_state, read_state

_INPUTS = ("images", "inputs")


@dataclass(frozen=True, slots=True, eq=False)
class BuiltModel:
    """What a user's function built: a model and perhaps what prepares a batch for it; and the function."""

    model: Any
    prepare: Prepare | None
    build: Callable[[], Any]


def build_model(function: str, weights: Path | None, *, seed: int) -> BuiltModel:
    """Call a function of a user's file, ``FILE.py:NAME``, and load weights into what it returns.

    The function takes no argument and returns a model, or a pair of a model and what prepares a batch for it. Without
    `weights` it loads them itself; `seed` is that of what it draws.
    """
    file, _, name = function.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"`model` must be FILE.py:FUNCTION or an .onnx file; got {function!r}.")
    build = getattr(_module(Path(file)), name, None)
    if not callable(build):
        raise InputError(f"{file}: has no function {name!r}.")
    model, prepare = _built(build, function, seed)
    if weights is not None:
        load_weights(model, weights)
    return BuiltModel(model, prepare, build)


def with_weights(built: BuiltModel, weights: Path) -> nn.Module:
    """A copy of the network with other weights, all of them in the file."""
    model = copy.deepcopy(built.model)
    load_weights(model, weights)
    return model


def initial_network(built: BuiltModel, weights: Path, *, seed: int) -> nn.Module:
    """The network that fine-tuning began with; its last layer is drawn where the file has none of its shape."""
    model, _ = _built(built.build, "`model`", seed)
    modules = model.named_modules() if isinstance(model, nn.Module) else ()
    linear = [name for name, module in modules if isinstance(module, nn.Linear)]
    load_weights(model, weights, drawn=linear[-1] if linear else "")
    return model


def load_weights(model: Any, path: Path, *, drawn: str = "") -> None:
    """Put the weights of a ``.pth`` or ``.safetensors`` file into a network; nothing in the file is executed.

    The layer called `drawn` stays as it is where the file's has another shape.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"{path}: weights need `model` to build a torch network; it built a {type(model).__name__}.")
    path = locate(path)
    state, expected = read_state(read_file(path), path), model.state_dict()
    if drawn:
        inside = [key for key in expected if key.startswith(f"{drawn}.")]
        if all(key in state and state[key].shape == expected[key].shape for key in inside):
            drawn = ""
    load_state(model, state, path, drawn=drawn)


def read_samples(path: Path, *, label_column: str = "") -> Any:
    """Inputs, with labels if they are there.

    Args:
        path: An ``.npz`` with `images` or `inputs`; an ``.npy``; class folders; or a table, ``.csv``, ``.csv.gz`` or
            ``.parquet``, which a model sees as a DataFrame without the column of the labels.
        label_column: Column of a table that has the labels; by default the first of the usual names.
    """
    path = locate(path)
    if path.is_dir():
        return read_class_folders(path)
    if is_table_file(path):
        table = read_table(path)
        labels, column = labels_in(table, str(path), label_column), label_column_of(table, label_column)
        inputs = table.drop(columns=column) if column else table
        return inputs if labels is None else (inputs, labels)
    arrays = read_arrays(path, name=_INPUTS[-1])
    key = next((key for key in _INPUTS if key in arrays), None)
    if key is None:
        raise InputError(
            f"{path}: a model needs an array `images` or `inputs`; it has {', '.join(sorted(arrays)) or 'none'}."
        )
    inputs = _checked_inputs(arrays[key], path)
    if "labels" not in arrays:
        return inputs
    labels = arrays["labels"]
    if labels.ndim > 1 and labels.shape[1:] != (1,):
        remedy = "; if they are one-hot, save labels.argmax(axis=1)"
        raise InputError(f"{path}: `labels` must hold one per sample; got shape {labels.shape}{remedy}.")
    if labels.size != len(inputs):
        raise InputError(f"{path}: has {len(inputs):,} samples and {labels.size:,} labels.")
    return inputs, labels.reshape(-1)


def preparation(name: str, size: int, built: Prepare | None) -> Prepare:
    """The function of this name that is applied to a batch before the network; `built` is the model's own."""
    known: dict[str, Prepare] = {
        "auto": built or unit_images,
        "unit": unit_images,
        "imagenet": ImageNetInput(size),
        "none": lambda x: x,
    }
    if name not in known:
        raise InputError(f"`preprocess` must be auto, unit, imagenet or none; got {name!r}.")
    return known[name]


def _checked_inputs(inputs: NDArray[Any], path: Path) -> NDArray[Any]:
    if inputs.ndim < 2 or not inputs.size or inputs.dtype.kind not in "fiub":
        raise InputError(
            f"{path}: inputs must be numbers, one sample per row; got {inputs.dtype} of shape {inputs.shape}."
        )
    if inputs.dtype.kind == "f" and np.isinf(inputs).any():
        raise InputError(f"{path}: inputs must not be infinite.")
    return inputs


def _module(file: Path) -> ModuleType:
    if not file.exists():
        raise InputError(f"there is no file {file}.")
    name = f"projnorm_model_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file may raise anything
        raise InputError(f"{file}: {type(error).__name__}: {error}") from None
    return module


def _built(build: Callable[[], Any], function: str, seed: int) -> tuple[Any, Prepare | None]:
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built = build()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        raise InputError(f"{function} failed: {type(error).__name__}: {error}") from None
    is_pair = isinstance(built, tuple) and len(built) == 2 and callable(built[1])
    model, prepare = built if is_pair else (built, None)
    if model is None:
        raise InputError(f"{function} returned None; it must return the model.")
    return model, prepare
