"""Packages whose names are imported when they are first used, as in SPEC 1.

A name that needs a library of an extra which is not installed says which extra.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from projnorm.core.errors import MissingExtraError
from projnorm_theory import lazy

# Libraries of the extras, by the name they are imported under.
EXTRAS = {
    "torch": "nn",
    "sklearn": "nn",
    "safetensors": "nn",
    "PIL": "nn",
    "onnxruntime": "onnx",
    "dask": "cluster",
    "distributed": "cluster",
    "transformers": "text",
    "huggingface_hub": "text",
    "pandas": "tables",
    "pyarrow": "tables",
}


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names are imported when they are first used."""
    return lazy.attach(package, file, load)


def load(module: str) -> Any:
    """Import a module; `MissingExtraError` if it needs a library of an extra that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error


def version_of(name: str) -> str | None:
    """The version of a library that is installed; None for one that is not."""
    from importlib import metadata  # slow to import, and rarely needed

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def missing_extra(error: ModuleNotFoundError) -> Exception:
    """The error that names the extra; the given one where the library belongs to none."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return error
    install = f"pip install '.[{EXTRAS[library]}]' in a clone of the project"
    return MissingExtraError(f"this needs {library}, which is not installed: {install}", name=error.name)
