"""The command line with strange values for every option, in a process of its own; long work is never begun.

``python -m tests.reliability.command_line COUNT SEED`` prints a line of JSON: how many command lines were tried, and
which of them ended in anything but a result, or one line on stderr and exit code 2.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import typer
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.reliability import seeds

_SECONDS = 20
_ROOM = 2_000_000_000
# Where long work begins: module, and what is in it.
_LONG = (
    ("projnorm.runs.tasks", "run_tasks"),
    ("simulations.presets", "theory_records"),
    ("deep.experiments.comparison", "_require_same_inputs"),
    ("deep.predict", "estimate_errors"),
    ("ntk.experiment", "run_kernels"),
    ("ntk.experiment", "run_analysis"),
    ("ntk.subsample", "run_subsample"),
    ("figures.corruption_gallery", "draw"),
    ("projnorm.vision", "download_cifar"),
    ("projnorm.text", "download_checkpoint"),
)
STRANGE = (
    "", " ", "0", "1", "2", "-1", "-0.5", "0.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 30, "-" + "9" * 30,
    "9" * 5000, str(2**31), str(2**63), "1,2", ",", "1,,2", "none", "all", "auto", "cpu", "cuda:99", "x", "é☃",
    "\udcff", "a\nb", "x" * 5000, "..", "/", ".", "fifo", "/dev/null", "/dev/zero", "bad.npz", "ok.npz", "folder",
    "missing.npz", "ok.npz/x", "deep.json", "%s", "--", "-", "digits", "templates", "fog", "ATC", "True", "file.py:f",
    "bad.onnx", "text",
)  # fmt: skip


class Left(Exception):  # noqa: N818 - it is no error
    """The long work that would begin now."""


class TooSlowError(BaseException):
    """A command line that takes longer than it may."""


def commands() -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Every command with its parameters, as the help shows them."""
    from projnorm.cli.app import app

    def below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
        yield path, list(command.params)
        for name, inside in getattr(command, "commands", {}).items():
            yield from below(inside, (*path, name))

    yield from below(typer.main.get_command(app), ())


@st.composite
def command_lines(draw: st.DrawFn, known: list[tuple[tuple[str, ...], list[Any]]]) -> list[str]:
    """A command with some of its options, mostly ones that it has."""
    path, parameters = draw(st.sampled_from(known))
    line = list(path)
    required = [parameter for parameter in parameters if parameter.required]
    some = draw(st.lists(st.sampled_from(parameters), max_size=3)) if parameters else []
    for parameter in (*required, *some):
        value = draw(st.sampled_from(STRANGE))
        if parameter.param_type_name == "argument":
            line.append(draw(st.sampled_from((value, "digits", "templates"))))
        elif parameter.is_flag:
            line.append(parameter.opts[0])
        else:
            line += [parameter.opts[0], value]
    if draw(st.integers(0, 9)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(st.sampled_from(STRANGE)))
    return line


def run(line: list[str]) -> str:
    """What is wrong with how a command line ends; empty if nothing is."""
    from projnorm.cli.app import main

    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["projnorm", *line]
    signal.alarm(_SECONDS)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        return "it came back"
    except SystemExit as stop:
        code = stop.code
    except Left:
        return ""
    except BaseException as error:  # noqa: BLE001 - any other exception is what is looked for
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
        return f"{type(error).__name__}: {str(error)[:300]} {where}"
    finally:
        signal.alarm(0)
    if code in (0, 1):
        return ""
    if code != 2:
        return f"exit code {code}"
    said = err.getvalue()
    return "" if said.count("\n") == 1 and said.endswith("\n") else f"{said.count(chr(10))} lines: {said[:500]!r}"


def _leave(*_: object, **__: object) -> None:
    raise Left


def _too_slow(*_: object) -> None:
    raise TooSlowError(f"more than {_SECONDS} s")


def _prepare(folder: Path) -> None:
    """What the strange values name, and a folder of records of which one is damaged."""
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "ok.npz").write_bytes(seeds.outputs())
    (folder / "bad.npz").write_bytes(seeds.outputs()[:-5])
    (folder / "bad.onnx").write_bytes(b"\x08")
    (folder / "deep.json").write_bytes(b"[" * 100_000)
    (folder / "file.py").write_text("raise SystemExit('no')\n", encoding="utf-8")
    for name, data in (("toy-0", b"[" * 100_000), ("deep-0123456789", seeds.record()[0])):
        run_folder = folder / "projnorm-out" / "runs" / name
        run_folder.mkdir(parents=True)
        (run_folder / "record.json").write_bytes(data)
    (run_folder / "run.json").write_bytes(seeds.run_description())
    (run_folder / "ledger.jsonl").write_bytes(seeds.ledger())


def main(count: int, seed_number: int) -> dict[str, Any]:
    """Try so many command lines in a folder of their own."""
    import importlib

    for module, name in _LONG:
        setattr(importlib.import_module(module), name, _leave)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_slow)
    found: dict[str, Any] = {"inputs": 0, "failures": []}
    with tempfile.TemporaryDirectory() as name:
        _prepare(Path(name))
        os.chdir(name)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ROOM, -1))

        def once(line: list[str]) -> None:
            found["inputs"] += 1
            if problem := run(line):
                found["failures"].append({"line": line, "what": problem})

        profile = settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        seed(seed_number)(profile(given(command_lines(list(commands())))(once)))()
        os.chdir("/")
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))) + "\n")
