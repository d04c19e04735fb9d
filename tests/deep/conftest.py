"""The command line, run in an empty folder, and a small run that is finished."""

from __future__ import annotations

import pytest

from deep.experiments.comparison import run_comparison
from projnorm.cli.app import main
from tests.commands import without_pictures
from tests.deep.small import SMALL


@pytest.fixture
def projnorm(monkeypatch, capsys, tmp_path, request):
    """Run the command line in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROJNORM_DATA", raising=False)
    monkeypatch.setattr("projnorm.cli.options.WORKERS", 1)  # of kernels; a new process takes seconds to import torch
    if "pictures" not in request.fixturenames:
        without_pictures(monkeypatch)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["projnorm", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of the records and the record of a small run; a test adds to it and changes nothing."""
    root = tmp_path_factory.mktemp("finished")
    return root, run_comparison(SMALL, root=root)
