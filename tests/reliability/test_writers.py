"""Whatever happens to a writer, what it had finished is there; damage is detected, reported and recomputed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from projnorm.core.atomic import write_atomically
from projnorm.core.records import load_record
from tests.reliability.__main__ import DOCUMENT, RESULT, readers_table, with_tables, writers_table
from tests.reliability.faults import DAMAGE, FAULTS, KILL, LostError, damaged_files, put_fault, undisturbed
from tests.reliability.readers import READERS
from tests.reliability.writers import WRITERS, Writer, drawn

CHECKED = [writer for writer in WRITERS.values() if writer.checked]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != KILL])
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_that_was_finished_is_lost_and_the_job_goes_on(writer, fault):
    for trial in range(10):
        put_fault(fault, WRITERS[writer], trial)


@pytest.mark.slow
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_lost_whichever_line_is_the_last(writer):
    """Of the store; of what computes for long before it writes, a sample."""
    for trial in range(min(120, len(undisturbed(writer)[1]))):
        put_fault(KILL, WRITERS[writer], trial)


@pytest.mark.slow
@pytest.mark.parametrize("writer", CHECKED, ids=lambda writer: writer.name)
def test_damage_is_detected_reported_and_recomputed_and_costs_nothing_else(writer, tmp_path):
    assert len(list(damaged_files(writer, tmp_path / "job", random.Random(4), parts=3))) > 10


def test_a_writer_that_loses_something_is_caught(tmp_path):
    """The damage itself is tested with a writer that has no checksum."""

    def run(folder: Path, _told) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "file").write_bytes(drawn(0).tobytes())

    def there(folder: Path) -> dict[str, str]:
        return {"0": "right"} if (folder / "file").read_bytes() == drawn(0).tobytes() else {}

    with pytest.raises(LostError, match=r"a wrong value is read|not reported"):
        list(damaged_files(Writer("careless", run, there), tmp_path / "job", random.Random(0), parts=4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "toy --d1 100 --d2 50 --n 50 --m 50 --trials 6 --interval-trials 6",
        "deep run digits --families contrast --severities 5 --n 60 --m 30 --n-validation 30 --methods ATC",
    ],
    ids=lambda command: command.split(" --")[0],
)
def test_the_same_command_twice_at_once_gives_one_whole_record(tmp_path, command):
    line = [sys.executable, "-m", "projnorm", *command.split(), "--workers", "1", "--json", "--out", str(tmp_path)]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert "Traceback" not in "".join(error for _, error in said)
    records = [path.parent for path in tmp_path.glob("runs/*/record.json")]
    assert records
    for folder in records:
        load_record(folder.parent, folder.name)


def test_unfinished_files_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom projnorm.core.atomic import unfinished\n"
        "with unfinished(Path(sys.argv[1]) / 'file') as part:\n    part.write_bytes(b'half')\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (dead,) = tmp_path.glob(".*.part")
    living = tmp_path / dead.name.replace(f"-{dead.name.split('-')[1]}-", "-1-")
    living.write_bytes(b"of a process that runs")
    write_atomically(tmp_path / "file", b"whole")
    assert not dead.exists()
    assert living.exists()


def test_the_tables_of_the_document_are_those_of_the_campaign_and_nothing_was_lost():
    record, text = json.loads(RESULT.read_text(encoding="utf-8")), DOCUMENT.read_text(encoding="utf-8")
    tables = {"writers": writers_table(record["writers"]), "readers": readers_table(record["readers"])}
    assert with_tables(text, tables) == text
    assert all(table in text for table in tables.values())
    assert not [failure for row in (*record["writers"], *record["readers"]) for failure in row["failures"]]
    tried = {(row["writer"], row["fault"]): row["trials"] for row in record["writers"]}
    for writer in WRITERS.values():
        assert all(tried[writer.name, fault] >= 20 for fault in (*FAULTS, *((DAMAGE,) if writer.checked else ())))
    rows = {row["reader"]: row for row in record["readers"]}
    assert set(rows) == set(READERS)
    assert all(row["inputs"] >= 200 for row in rows.values())
