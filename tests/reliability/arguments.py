"""The command line as a reader: strange values for every option of every command; long work is never begun."""

from __future__ import annotations

import argparse
import io
import json
import os
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st

from tests.reliability import samples

# Where long work begins.
_LONG = (
    "projnorm.core.experiments.Experiment.compute",
    "projnorm.core.experiments.recompute",
    "projnorm.estimate.estimate.estimate_errors",
)
_STRANGE = (
    "", " ", "0", "1", "2", "-1", "-0.5", "0.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 30, "-" + "9" * 30,
    "9" * 5000, str(2**31), str(2**63), "1,2", ",", "1,,2", "none", "all", "auto", "cpu", "cuda:99", "x", "é☃",
    "\udcff", "a\nb", "x" * 5000, "..", "/", ".", "fifo", "/dev/null", "/dev/zero", "bad.npz", "ok.npz", "folder",
    "missing.npz", "ok.npz/x", "deep.json", "%s", "--", "-", "digits", "templates", "fog", "ATC", "True", "file.py:f",
    "bad.onnx", "text", "--help", "-h", "--config",
)  # fmt: skip


class _BegunError(BaseException):
    """The long work that would begin now."""


# Command lines that end well.
WHOLE = b"[]", b'["--version"]', b'["toy", "--help"]', b'["runs"]', b'["env", "--json"]'


def place(folder: Path, data: bytes) -> Path:
    """The arguments as JSON, and what the strange values name: files, a pipe, and records of which one is damaged."""
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    files = {
        "arguments.json": data,
        "ok.npz": samples.OUTPUTS[0],
        "bad.npz": samples.OUTPUTS[0][:-5],
        "bad.onnx": b"\x08",
        "deep.json": b"[" * 100_000,
        "file.py": b"raise SystemExit('no')\n",
        "projnorm-out/runs/toy-0123456789ab/record.json": b"[" * 100_000,
        "projnorm-out/runs/deep-0123456789ab/record.json": samples.RECORD,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def run(folder: Path) -> object:
    """Run a command line in its folder; a ValueError has what stderr says of a refusal, any other error is a bug."""
    from projnorm.cli import app

    out, err = io.StringIO(), io.StringIO()
    with ExitStack() as stack:
        for name in _LONG:
            stack.enter_context(patch(name, side_effect=_BegunError))
        stack.enter_context(chdir(folder))
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(err))
        try:
            code = app.run(json.loads((folder / "arguments.json").read_bytes()))
        except _BegunError:
            return "it would begin"
    if code == 2 and err.getvalue().endswith("\n"):
        raise ValueError(err.getvalue()[:-1])
    if code not in (0, 1):
        raise RuntimeError(f"exit code {code}: {err.getvalue()[:500]}")
    return out.getvalue()


@st.composite
def command_lines(draw: st.DrawFn) -> bytes:
    """A command with some of its options, mostly ones that it has."""
    name = draw(st.sampled_from(tuple(_parsers())))
    line, actions = name.split(), _parsers()[name]._actions
    required = [action for action in actions if action.required]
    for action in (*required, *draw(st.lists(st.sampled_from(actions), max_size=3))):
        line += action.option_strings[-1:]
        if action.nargs != 0:
            line.append(draw(st.sampled_from(_STRANGE)))
    if draw(st.integers(0, 9)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(st.sampled_from(_STRANGE)))
    return json.dumps(line).encode()


@cache
def _parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command."""
    from projnorm.cli.app import SUMMARIES, command_parser

    return {name: command_parser(name) for name in SUMMARIES}
