"""The command line in this process, which saves the seconds that a new one takes to import everything."""

from __future__ import annotations

import contextlib
import io
import subprocess
import warnings
from pathlib import Path

import pytest

from projnorm.cli.app import main


def run_here(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Exit code, stdout and stderr as a shell would see them; warnings are no errors, as there."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        contextlib.chdir(cwd or Path.cwd()),
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
    ):
        warnings.simplefilter("default")
        patch.setattr("sys.argv", ["projnorm", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
    return subprocess.CompletedProcess(arguments, int(stop.value.code or 0), out.getvalue(), err.getvalue())


def without_pictures(patch: pytest.MonkeyPatch) -> None:
    """Figures are built, and written as a few bytes instead of drawn three times; tests of figures draw them."""
    patch.setattr("figures.style.settled", lambda figure: figure)
    patch.setattr("figures.style.rendered", lambda figure, extension: f"{extension} of {figure}".encode() * 20)
