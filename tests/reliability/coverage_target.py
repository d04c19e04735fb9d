"""What atheris runs: one reader on the bytes it is given. Started by `coverage_guided`, never imported."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import FunctionType

_CEILING_GB = "0.2"


def main() -> None:
    """``python -m tests.reliability.coverage_target READER WORK CORPUS [options of libFuzzer]``."""
    name, work, corpus = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    os.environ["PROJNORM_MAX_READ_GB"] = _CEILING_GB
    warnings.simplefilter("ignore")
    import atheris  # pytest imports this module where there is none

    from tests.reliability.readers import READERS

    reader = READERS[name]
    for function in (found for module in reader.modules for found in _functions(module)):
        atheris.instrument_func(function)  # in place
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


def _functions(module: str) -> list[FunctionType]:
    """The functions and methods of a module."""
    inside = [
        value
        for value in vars(importlib.import_module(module)).values()
        if getattr(value, "__module__", None) == module
    ]
    methods = [method for value in inside if isinstance(value, type) for method in vars(value).values()]
    return [found for found in (*inside, *methods) if isinstance(found, FunctionType)]


if __name__ == "__main__":
    main()
