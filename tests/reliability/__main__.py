"""Measures what docs/reliability.md says: ``python -m tests.reliability``, from a clone with the extras test and fuzz.

Writes results/reliability.json and the tables of docs/reliability.md. ``--quick`` takes minutes instead of half an hour
and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from benchmarks.harness import write_result
from tests.reliability.examination import measure_readers
from tests.reliability.measurement import measure_writers, readers_table, writers_table

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "results" / "reliability.json"
DOCUMENT = ROOT / "docs" / "reliability.md"


def main() -> int:
    """Measure, write, and print the tables; exit code 1 if anything was lost or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials, nothing written")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    trials, parts, inputs, lines, seconds = (5, 4, 20, 40, 0.0) if asked.quick else (50, 32, 300, 1000, 30.0)
    with ThreadPoolExecutor(1) as beside:  # readers are tried in processes of their own
        reading = beside.submit(measure_readers, inputs, seconds, asked.seed)
        writers = measure_writers(trials, parts, asked.seed, lambda line: _say(sys.stderr, line))
        readers = [*reading.result(), _command_line(lines, asked.seed)]
    tables = {"writers": markdown(writers_table(writers)), "readers": markdown(readers_table(readers))}
    if not asked.quick:
        result = {"seconds_of_fuzzing_each": seconds, "writers": writers, "readers": readers}
        write_result(RESULT, "python -m tests.reliability", result)
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8"), tables), encoding="utf-8")
    _say(sys.stdout, "\n\n".join(tables.values()))
    return int(any(row["losses"] for row in writers) or any(row["failures"] for row in readers))


def markdown(table: list[list[str]]) -> str:
    """A table of cells as Markdown."""
    header, *rows = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([header, "|" + " --- |" * len(table[0]), *rows])


def with_tables(text: str, tables: dict[str, str]) -> str:
    """A document with each table between its two marks."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=f"{begin}{table}\n{end}": t, text, flags=re.DOTALL)
    return text


def _say(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


def _command_line(lines: int, seed: int) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.reliability.command_line", str(lines), str(seed)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout)
    failures = found["failures"]
    return {
        "reader": "the command line",
        "form": "arguments",
        "inputs": found["inputs"],
        "results": None,
        "executions": 0,
        "failures": len(failures),
        "what": failures,
    }


if __name__ == "__main__":
    sys.exit(main())
