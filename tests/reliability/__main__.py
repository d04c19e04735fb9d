"""Measures what docs/reliability.md says: ``python -m tests.reliability``, from a clone with the extras test and fuzz.

Writes results/reliability.json and the tables of docs/reliability.md. ``--quick`` takes minutes instead of half an hour
and writes nothing.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import write_result
from tests.reliability import fuzzing
from tests.reliability.confined import ROOT, examine
from tests.reliability.faults import DAMAGE, FAULTS, LostError, damaged_files, put_fault
from tests.reliability.readers import READERS
from tests.reliability.writers import WRITERS, Writer

RESULT = ROOT / "results" / "reliability.json"
DOCUMENT = ROOT / "docs" / "reliability.md"


def main() -> int:
    """Measure, write, and print the tables; exit code 1 if anything was lost or failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few trials, nothing written")
    parser.add_argument("--trials", type=int, default=50, help="trials of each fault")
    parser.add_argument("--fuzz", type=float, default=30.0, help="seconds of atheris for each binary reader")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn")
    options = parser.parse_args()
    trials, parts, inputs, seconds = (5, 4, 20, 0.0) if options.quick else (options.trials, 32, 300, options.fuzz)
    with ThreadPoolExecutor(1) as beside:  # readers are tried in processes of their own
        reading = beside.submit(measure_readers, list(READERS), inputs, seconds, options.seed)
        writers = [row for writer in WRITERS.values() for row in measure_writer(writer, trials, parts, options.seed)]
        readers = reading.result()
    tables = {"writers": writers_table(writers), "readers": readers_table(readers)}
    if not options.quick:
        measured = {"seconds_of_fuzzing_each": seconds, "writers": writers, "readers": readers}
        write_result(RESULT, " ".join(["python -m tests.reliability", *sys.argv[1:]]), measured)
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8"), tables), encoding="utf-8")
    sys.stdout.write("\n\n".join(tables.values()) + "\n")
    failures = [failure for row in (*writers, *readers) for failure in row["failures"]]
    sys.stdout.write("".join(f"{failure}\n" for failure in failures))
    return int(bool(failures))


def measure_writer(writer: Writer, trials: int, parts: int, seed: int) -> list[dict[str, Any]]:
    """Put every fault to a writer: a row for each, with the number of trials and what was lost."""
    rows = []
    for fault in FAULTS:
        lost = []
        for trial in range(trials):
            try:
                put_fault(fault, writer, seed + trial)
            except LostError as loss:
                lost.append(f"{writer.name}, {fault}: {loss}")
        rows.append({"writer": writer.name, "fault": fault, "trials": trials, "failures": lost})
    if writer.checked:
        tried, lost = 0, []
        with tempfile.TemporaryDirectory(prefix="projnorm-faults-") as folder:
            try:
                for _ in damaged_files(writer, Path(folder) / "job", random.Random(seed), parts=parts):
                    tried += 1
            except LostError as loss:
                lost = [f"{writer.name}, {DAMAGE}: {loss}"]
        rows.append({"writer": writer.name, "fault": DAMAGE, "trials": tried, "failures": lost})
    return rows


def measure_readers(names: list[str], inputs: int, seconds: float, seed: int) -> list[dict[str, Any]]:
    """A row for each reader: how many hostile inputs it was given, how many it read, and what failed.

    `inputs` is the number of hostile variants of whole files for each reader, `seconds` the time of the coverage-guided
    fuzzer for each binary one; there is none where it is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        rows = [{**row, "executions": 0} for row in examine(names, inputs, seed, Path(folder))]
    for row in rows:
        if seconds and READERS[row["reader"]].instrumented and fuzzing.is_installed():
            row["executions"], failures = fuzzing.fuzz(row["reader"], seconds, seed)
            row["failures"] += failures
    return rows


def writers_table(rows: list[dict[str, Any]]) -> str:
    """A line for each writer and a column for each fault: trials / losses."""
    faults = [*FAULTS, DAMAGE]
    cells = {(row["writer"], row["fault"]): f"{row['trials']:,} / {len(row['failures'])}" for row in rows}
    names = dict.fromkeys(row["writer"] for row in rows)
    return _markdown(
        ["writer", *faults], [[name, *(cells.get((name, fault), "") for fault in faults)] for name in names]
    )


def readers_table(rows: list[dict[str, Any]]) -> str:
    """A line for each reader: inputs, how many of them gave a result, executions of the fuzzer, failures."""
    header = ["reader", "hostile inputs", "of these read", "executions, coverage-guided", "failures"]
    keys = ("inputs", "results", "executions")
    cells = [[row["reader"], *(f"{row[key]:,}" for key in keys), str(len(row["failures"]))] for row in rows]
    return _markdown(header, cells)


def with_tables(text: str, tables: dict[str, str]) -> str:
    """A document with each table between its two marks."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=f"{begin}{table}\n{end}": t, text, flags=re.DOTALL)
    return text


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (header, *rows)]
    return "\n".join([lines[0], "|" + " --- |" * len(header), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main())
