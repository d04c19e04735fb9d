"""How every reader takes hostile inputs, counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.reliability import coverage_guided
from tests.reliability.readers import READERS

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Examined:
    """A reader after so many hostile inputs.

    Attributes:
        reader: Its name.
        inputs: How many it was given.
        results: How many of them it read; the others it refused properly, but for the failures.
        failures: What went wrong, each with the file that shows it.
    """

    reader: str
    inputs: int
    results: int
    failures: tuple[str, ...]


def examine(readers: Sequence[str], inputs: int, seed: int, kept: Path) -> list[Examined]:
    """Give each reader so many hostile inputs, in a process that a bad one may end.

    Args:
        readers: Names in `READERS`.
        inputs: For each.
        seed: Of what is drawn.
        kept: Folder for inputs that show a failure.
    """
    found: list[Examined] = []
    left = list(readers)
    while left:
        task = json.dumps({"readers": left, "inputs": inputs, "seed": seed, "kept": str(kept)})
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}
        ended = subprocess.run(
            [sys.executable, "-m", "tests.reliability.confined"],
            input=task,
            capture_output=True,
            text=True,
            env=environment,
            cwd=_ROOT,
            check=False,
        )
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        done = [_examined(line) for line in lines if "reader" in line]
        found += done
        left = left[len(done) :]
        if left:  # the process was ended, by what the next one was given
            reason = (ended.stderr.strip() or "nothing on stderr")[-2000:]
            found.append(Examined(left.pop(0), 0, 0, (f"the process ended with {ended.returncode}: {reason}",)))
    return found


def measure_readers(inputs: int, seconds: float, seed: int) -> list[dict[str, object]]:
    """A row a reader, for the table of docs: what was tried and what failed.

    Args:
        inputs: Hostile variants of whole files, for each reader.
        seconds: Of the coverage-guided fuzzer, for each binary reader; 0 for none, or where atheris is not installed.
        seed: Of what is drawn.
    """
    with tempfile.TemporaryDirectory() as folder:
        examined = examine(list(READERS), inputs, seed, Path(folder))
        rows = []
        for one in examined:
            fuzzed = (
                coverage_guided.fuzz(one.reader, seconds, seed) if READERS[one.reader].modules and seconds else None
            )
            rows.append(
                {
                    "reader": one.reader,
                    "form": READERS[one.reader].form,
                    "inputs": one.inputs,
                    "results": one.results,
                    "executions": 0 if fuzzed is None else fuzzed.executions,
                    "failures": len(one.failures) + (0 if fuzzed is None else len(fuzzed.failures)),
                    "what": [*one.failures, *(() if fuzzed is None else fuzzed.failures)],
                }
            )
    return rows


def _examined(line: dict[str, object]) -> Examined:
    failures = line["failures"]
    assert isinstance(failures, list)
    return Examined(
        str(line["reader"]),
        int(str(line["inputs"])),
        int(str(line["results"])),
        tuple(f"{failure['what']} ({failure['input']})" for failure in failures),
    )
