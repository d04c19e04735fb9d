"""What atheris runs: one reader on the bytes it is given. Started by `coverage_guided`, never imported."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import FunctionType

import atheris

_CEILING_GB = "0.2"


def main() -> None:
    """``python -m tests.reliability.coverage_target READER WORK CORPUS [options of libFuzzer]``."""
    name, work, corpus = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    os.environ["PROJNORM_MAX_READ_GB"] = _CEILING_GB
    warnings.simplefilter("ignore")
    from tests.reliability.readers import READERS

    reader = READERS[name]
    for module in reader.modules:
        _instrument(module)
    for index, data in enumerate(reader.seeds()):
        (corpus / f"seed-{index}").write_bytes(data)
    folder = work / "read"

    def once(data: bytes) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        path = reader.place(folder, data)
        try:
            reader.read(path)
        except reader.refusals as error:
            message = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
            if "\n" in message or not message:
                raise RuntimeError(f"refused in several lines or none: {message!r}") from error

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[4:]], once)
    atheris.Fuzz()


def _instrument(module: str) -> None:
    """Instrument the functions and methods of a module that is there already."""
    found = importlib.import_module(module)
    inside = [value for value in vars(found).values() if getattr(value, "__module__", None) == module]
    methods = [method for value in inside if isinstance(value, type) for method in vars(value).values()]
    for function in (*inside, *methods):
        if isinstance(function, FunctionType):
            atheris.instrument_func(function)  # in place


if __name__ == "__main__":
    main()
