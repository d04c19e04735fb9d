"""Whatever happens to a writer, what it had finished is there, and damage is noticed, named and mended."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from projnorm.runs import load, write_atomically
from tests.reliability.faults import FAULTS, LostError, damaged_files, killed_at_a_line, killed_at_a_moment
from tests.reliability.measurement import repeated
from tests.reliability.writers import WRITERS, Writer, drawn

every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.name)


@pytest.mark.parametrize("fault", FAULTS)
@every_writer
def test_nothing_that_was_finished_is_lost_and_the_job_goes_on(writer, fault):
    repeated(FAULTS[fault], writer, trials=2, seed=1)


@pytest.mark.slow
@every_writer
def test_nothing_is_lost_in_fifty_kills(writer):
    repeated(killed_at_a_line, writer, trials=25, seed=2)
    repeated(killed_at_a_moment, writer, trials=27, seed=3)


@pytest.mark.parametrize("writer", [writer for writer in WRITERS if writer.checked], ids=lambda writer: writer.name)
def test_damage_is_noticed_named_and_mended_and_costs_nothing_else(writer, tmp_path):
    assert len(list(damaged_files(writer, tmp_path / "job", random.Random(4), parts=4))) > 10


def test_a_writer_that_loses_something_is_caught(tmp_path):
    """The faults themselves are tested with a writer that writes in place and has no checksum."""

    def run(folder: Path, told) -> None:
        folder.mkdir(exist_ok=True)
        for number in range(5):
            (folder / "file").write_bytes(b"")
            (folder / "file").write_bytes(drawn(number).tobytes())
            told(str(number))

    def there(folder: Path) -> dict[str, str]:
        data = (folder / "file").read_bytes() if (folder / "file").exists() else b""
        return {str(number): data.hex() for number in range(5) if data == drawn(number).tobytes()}

    careless = Writer("careless", run, there)
    with pytest.raises(LostError, match=r"a wrong value is read|unnamed"):
        list(damaged_files(careless, tmp_path / "job", random.Random(0), parts=4))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("toy", "--d1", "100", "--d2", "50", "--n", "50", "--m", "50", "--trials", "6", "--interval-trials", "6"),
        (
            *("deep", "run", "digits", "--families", "contrast", "--severities", "5", "--n-train", "60", "--m", "30"),
            *("--n-validation", "30", "--epochs", "1", "--T", "2", "--methods", "ATC,ProjNorm"),
        ),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_the_same_command_twice_at_once_gives_one_whole_record(tmp_path, command):
    line = [sys.executable, "-m", "projnorm", *command, "--workers", "1", "--json", "--out", str(tmp_path)]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    told = "".join(error for _, error in said)
    assert told.count("another process is working on") <= 1
    assert "Traceback" not in told
    records = [path.parent for path in tmp_path.glob("runs/*/record.json")]
    assert records
    for folder in records:
        load(folder)


def test_unfinished_files_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom projnorm.runs import unfinished\n"
        "with unfinished(Path(sys.argv[1]) / 'file') as part:\n    part.write_bytes(b'half')\n    os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (dead,) = tmp_path.glob(".*.part")
    living = tmp_path / dead.name.replace(f"-{dead.name.split('-')[1]}-", "-1-")
    living.write_bytes(b"of a process that runs")
    write_atomically(tmp_path / "file", b"whole")
    assert not dead.exists()
    assert living.exists()
