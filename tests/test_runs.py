"""Whole files or none, and a description of the environment that names no place."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from projnorm.runs import current_environment, write_atomically


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_atomically(path, b"first")
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "file.bin"
    write_atomically(path, b"old")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.bin"]


def test_the_environment_is_plain_data_without_paths():
    text = json.dumps(asdict(current_environment()))
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text
    assert current_environment().cores >= 1
    assert "numpy" in current_environment().libraries
