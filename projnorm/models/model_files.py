"""Networks that a function of a user's file builds: that file is the only code that is run."""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from projnorm.core.errors import InputError
from projnorm.core.files import locate, read_file
from projnorm.models.weights import load_state, read_state

Prepare = Callable[[Tensor], Tensor]


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
        raise InputError(f"`model` must be FILE.py:FUNCTION; got {function!r}.")
    module = _module(locate(file))
    if not callable(getattr(module, name, None)):
        raise InputError(f"{file}: has no function {name!r}.")

    def build() -> Any:
        with _importable(module):
            return getattr(module, name)()

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


def _module(file: Path) -> ModuleType:
    if not file.exists():
        raise InputError(f"there is no file {file}.")
    name = f"projnorm_model_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        with _importable(module):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's file may raise anything
        raise InputError(f"{file}: {type(error).__name__}: {error}") from None
    return module


@contextmanager
def _importable(module: ModuleType) -> Iterator[None]:
    """Let the code of a module be imported by its name while it runs, as dataclasses do.

    Not longer: other processes could not import it, and what they are sent then carries the code itself.
    """
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]


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
