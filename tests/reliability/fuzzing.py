"""A coverage-guided fuzzer, atheris, on the binary readers, in a process of its own for each; needs the extra `fuzz`.

`fuzz` starts the process, which is this module: ``python -m tests.reliability.fuzzing READER CORPUS [options]``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from types import FunctionType

from tests.reliability.confined import placed, refusal, run_module

_LIMITS = ("-rss_limit_mb=3000", "-timeout=5", "-report_slow_units=5", "-max_len=200000", "-print_final_stats=1")


def is_installed() -> bool:
    """Whether there is a fuzzer."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(reader: str, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Fuzz one reader, with whole files to begin with: number of inputs, and what went wrong, too slow or too large."""
    with tempfile.TemporaryDirectory() as name:
        corpus, found = Path(name) / "corpus", Path(name) / "found"
        corpus.mkdir()
        found.mkdir()
        options = (f"-max_total_time={max(1, round(seconds))}", f"-seed={seed + 1}", f"-artifact_prefix={found}/")
        ended = run_module(__spec__.name, reader, str(corpus), *_LIMITS, *options)
        said = ended.stdout + ended.stderr
        failures = [f"{path.name}: {path.read_bytes()[:2000].hex()}" for path in sorted(found.iterdir())]
    if ended.returncode or failures:
        reason = " | ".join([line for line in said.splitlines() if "error" in line.lower()][:3])[:600]
        failures.append(f"ended with {ended.returncode}: {reason or said[-300:]}")
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    return int(executions[1]) if executions else 0, failures


def main() -> None:
    """Let atheris run one reader on the bytes it makes."""
    import atheris

    from projnorm.core.files import CEILING_VARIABLE
    from tests.reliability.readers import READERS

    reader, corpus = READERS[sys.argv[1]], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    os.environ[CEILING_VARIABLE] = "0.2"
    for function in (found for module in reader.instrumented for found in _functions(module)):
        atheris.instrument_func(function)  # in place
    for index, data in enumerate(reader.seeds()):
        (corpus / f"seed-{index}").write_bytes(data)
    folder = corpus.with_name("read")

    def once(data: bytes) -> None:
        try:
            reader.read(placed(reader, data, folder))
        except (ValueError, OSError) as error:
            if problem := refusal(error):
                raise RuntimeError(problem) from error

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], once)
    atheris.Fuzz()


def _functions(module: str) -> list[FunctionType]:
    """The functions and methods of a module."""
    values = vars(importlib.import_module(module)).values()
    inside = [found for found in values if getattr(found, "__module__", None) == module]
    methods = [method for found in inside if isinstance(found, type) for method in vars(found).values()]
    return [found for found in (*inside, *methods) if isinstance(found, FunctionType)]


if __name__ == "__main__":
    main()
