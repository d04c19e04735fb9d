"""The command line, run in an empty folder."""

from __future__ import annotations

import pytest

from projnorm.cli.app import main


@pytest.fixture
def projnorm(monkeypatch, capsys, tmp_path):
    """Run the command line in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROJNORM_DATA", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["projnorm", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run
