"""The command line in this process, which saves the seconds that a new one takes to import everything."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from projnorm.cli import app


class Result(NamedTuple):
    """How a command ended, as a shell sees it: exit code, text on stdout, text on stderr."""

    code: int
    out: str
    err: str


def run_cli(
    *arguments: str,
    cwd: Path | None = None,
    pictures: bool = False,
    program: Callable[[Sequence[str]], int] = app.run,
) -> Result:
    """Run a command in this process; warnings are no errors, as in a shell, and long work prints no progress.

    The command is one of ``projnorm``, or of another `program`. Without `pictures` figures are built, and written as a
    few bytes instead of drawn three times.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        contextlib.chdir(cwd or Path.cwd()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        patch.setattr("projnorm.core.progress._LINE_SECONDS", math.inf)
        if not pictures:
            patch.setattr("figures.style._lay_out", lambda _: None)
            patch.setattr("figures.style.rendered", lambda figure, form, **_: f"{form} of {figure}".encode() * 20)
        code = program(arguments)
    return Result(code, out.getvalue(), err.getvalue())


def run_process(*arguments: str, cwd: Path | None = None, module: str = "projnorm") -> Result:
    """Run a command in a process of its own, where that is the point."""
    line = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(line, capture_output=True, text=True, cwd=cwd, check=False)
    return Result(ended.returncode, ended.stdout, ended.stderr)


def assert_refused(result: Result, *words: str) -> None:
    """A bad input is one line on stderr with all these words, nothing on stdout, and exit code 2."""
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    assert result.err.startswith("projnorm: ")
    for word in words:
        assert word in result.err
