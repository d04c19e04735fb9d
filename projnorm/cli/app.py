"""The commands of ``projnorm``, and how they fail: one line on stderr for an error the user can fix."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import TypeAlias, get_type_hints

from projnorm import __version__
from projnorm.cli.options import Parser, in_flags, make_parser, parse
from projnorm.core.config import Config
from projnorm.core.errors import ProjnormError
from projnorm.core.experiments import EXPERIMENTS, Experiment, resolve
from projnorm.core.lazy import missing_extra

BAD_INPUT, BUG, INTERRUPTED, PIPE_CLOSED = 2, 70, 128 + signal.SIGINT, 141
# Interruptions of the command that is running.
_signals: list[int] = []
_Classes: TypeAlias = Callable[[], list[type[Config]]]  # the configuration classes of a command, when they are needed
_DESCRIPTION = "How wrong will a model be on new, unlabelled data? The Projection Norm, in theory and in practice."
# Words that commands share, with what they are about.
GROUPS = {
    "ntk": "Exact tangent kernels of a network, and the linear theory on them.",
    "deep": "Error estimators compared on trained networks.",
    "deep analyse": "Analyse a run: sweep, adversarial, label-shift or ntk.",
    "runs": "Earlier runs: list, show, remove, or compute one again and compare.",
}
# The commands as `projnorm --help` lists them.
SECTIONS = {
    "Your model": ("estimate", "label", "fit", "monitor"),
    "Theory": ("report", "toy", "bound", "intervals", "figures"),
    "Tangent kernels": ("ntk predict", "ntk gram", "ntk subsample"),
    "Comparison of error estimators": ("deep run", "deep analyse", "deep presets", "deep gallery"),
    "Earlier runs": ("runs", "runs show", "runs rm", "runs verify"),
    "This installation": ("env", "completion"),
}
# Commands that are no experiments: the function and one line for the list of commands. The docstring of the function is
# the help, its arguments are configurations whose settings become flags, and it returns the exit code, or None for 0.
COMMANDS = {
    "estimate": ("estimate:estimate", "Estimate the error of your model on your unlabelled data."),
    "label": ("label:label", "Choose which few samples to label."),
    "fit": ("fit:fit", "Fit an estimator of the error once, for many targets."),
    "monitor": ("monitor:monitor", "Watch the error of a model over batches, with alarms."),
    "report": ("report:report", "Put every theory figure and table on one page: start here."),
    "figures": ("report:figures", "Draw every theory figure."),
    "deep presets": ("deep:presets", "List the configurations that have a name."),
    "deep gallery": ("deep:gallery", "Draw one picture under every corruption."),
    "runs": ("runs:list_all", "List earlier runs."),
    "runs show": ("show_run:show", "Show one run: its record, table, figures, or more."),
    "runs rm": ("runs:remove", "Remove runs."),
    "runs verify": ("runs:verify", "Compute a run again and compare every array."),
    "env": ("installation:env", "Print what a bug report needs."),
    "completion": ("installation:completion", "Print a completion script for a shell."),
}
# Other words for a command, which the lists of commands leave out.
ALIASES = {"predict": "estimate"}
_EXPERIMENTS = {experiment.command: experiment for experiment in EXPERIMENTS if experiment.command}
SUMMARIES = {name: experiment.summary for name, experiment in _EXPERIMENTS.items()}
SUMMARIES |= {name: summary for name, (_, summary) in COMMANDS.items()}


def run(argv: Sequence[str]) -> int:
    """Run one command; returns its exit code.

    0 for success, 1 for an answer that is "no", 2 for bad input, 70 for a bug, 130 when interrupted.
    """
    name, rest = _split([word for word in argv if word != "--debug"])
    resumes = name in (*_EXPERIMENTS, "report", "figures")
    return _guarded(lambda: _dispatch(name, rest), lambda: _classes(name), resumes=resumes, debug="--debug" in argv)


def run_alone(experiment: Experiment, argv: Sequence[str]) -> int:
    """Run an experiment that is a program of its own, not a command of ``projnorm``; its options are alike."""
    from projnorm.cli.experiment import command_classes, run_experiment

    rest = [word for word in argv if word != "--debug"]
    return _guarded(
        lambda: run_experiment(experiment, rest),
        lambda: command_classes(experiment),
        resumes=True,
        debug="--debug" in argv,
    )


def _guarded(action: Callable[[], int], classes: _Classes, *, resumes: bool, debug: bool) -> int:
    """The exit code of an action; its errors are reported on stderr, with the flags of its configuration classes."""
    try:
        with _noting_interruptions(), _log_on_stderr(classes):
            return action()
    except SystemExit as error:  # argparse has printed its help
        return error.code if isinstance(error.code, int) else 0
    except BrokenPipeError:
        # Python would report it once more when it flushes the output at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return _interrupted(resumes=resumes)
    except Exception as error:  # noqa: BLE001 - the last place where a bug can be reported as one
        if debug:
            traceback.print_exc()
        return _interrupted(resumes=resumes) if _signals else _explained(error, classes)


def _interrupted(*, resumes: bool) -> int:
    return _fail("interrupted" + ("; the same command resumes where it stopped" if resumes else ""), INTERRUPTED)


@contextmanager
def _noting_interruptions() -> Iterator[None]:
    """Remember that Ctrl-C was pressed: libraries that are being loaded may turn it into errors of their own."""
    _signals.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, _: object) -> None:
        _signals.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _split(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The words of the command and what follows them."""
    for count in (3, 2, 1):
        name = " ".join(argv[:count])
        name = ALIASES.get(name, name)
        if len(argv) >= count and name in SUMMARIES:
            return name, list(argv[count:])
    return "", list(argv)


def _dispatch(name: str, rest: list[str]) -> int:
    if name in _EXPERIMENTS:
        from projnorm.cli.experiment import run_experiment

        return run_experiment(_EXPERIMENTS[name], rest)
    if name:
        function, classes = _function(name)
        documents = parse(command_parser(name), rest, classes)
        return function(*(cls.from_json(d) for cls, d in zip(classes, documents, strict=True))) or 0
    if rest[:1] == ["--version"]:
        sys.stdout.write(f"projnorm {__version__}\n")
        return 0
    group = next((" ".join(rest[:count]) for count in (2, 1) if " ".join(rest[:count]) in GROUPS), "")
    depth = len(group.split())
    if not rest[depth:] or rest[depth] in ("-h", "--help", "--help-all"):
        sys.stdout.write(_overview(group))
        return 0
    command = " ".join(rest[: depth + 1])
    near = difflib.get_close_matches(command, SUMMARIES, n=1)
    hint = f"; did you mean {near[0]}?" if near else "; `projnorm --help` lists the commands"
    return _fail(f"there is no command {command!r}{hint}", BAD_INPUT)


def command_parser(name: str) -> Parser:
    """The parser of a command."""
    if name in _EXPERIMENTS:
        from projnorm.cli.experiment import experiment_parser

        return experiment_parser(_EXPERIMENTS[name])
    function, classes = _function(name)
    return make_parser(f"projnorm {name}", (function.__doc__ or "").strip(), classes)


def _function(name: str) -> tuple[Callable[..., int | None], list[type[Config]]]:
    """The function of a command that is no experiment, and the configuration classes of its arguments."""
    function = resolve(f"projnorm.cli.{COMMANDS[name][0]}")
    hints = get_type_hints(function)
    return function, [hints[argument] for argument in inspect.signature(function).parameters]


def _classes(name: str) -> list[type[Config]]:
    """The configuration classes whose settings are the flags of a command."""
    if name in _EXPERIMENTS:
        from projnorm.cli.experiment import command_classes

        return command_classes(_EXPERIMENTS[name])
    return _function(name)[1] if name else []


def _overview(group: str) -> str:
    """The list of commands: all of them by section, or those of a group."""
    lines = [f"usage: projnorm {group + ' ' if group else ''}COMMAND [OPTIONS]", ""]
    lines += textwrap.wrap(GROUPS.get(group, _DESCRIPTION), 80)
    inside = tuple(name for name in SUMMARIES if f"{name} ".startswith(f"{group} "))
    sections = {"": inside} if group else SECTIONS
    width = max(len(name) for names in sections.values() for name in names) + 4
    for title, names in sections.items():
        lines += ["", f"{title}:"] if title else [""]
        for name in names:
            summary, start = SUMMARIES.get(name) or GROUPS[name], f"  {name}"
            lines += textwrap.wrap(summary, 79, initial_indent=start.ljust(width), subsequent_indent=" " * width)
    lines += [
        "",
        "`projnorm COMMAND --help` lists the options of a command, --debug shows the",
        "traceback of an error.",
    ]
    return "\n".join(lines) + "\n"


def _explained(error: Exception, classes: _Classes) -> int:
    """Report an error: in one line if the user can fix it, else with how to report the bug."""
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error)
    if isinstance(error, ProjnormError):
        return _fail(_in_flags(str(error), classes), BAD_INPUT)
    if isinstance(error, MemoryError):
        return _fail("not enough memory for these sizes", BAD_INPUT)
    if isinstance(error, BrokenExecutor):
        return _fail("a worker process was killed, perhaps for want of memory; the same command resumes", BAD_INPUT)
    if isinstance(error, OSError):
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), BAD_INPUT)
    return _fail(
        f"internal error ({type(error).__name__}: {error}). This is a bug: please report it with the output of the "
        "same command with --debug, and that of `projnorm env`",
        BUG,
    )


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"projnorm: {' '.join(message.split())}\n")
    return code


def _in_flags(message: str, classes: _Classes) -> str:
    try:
        return in_flags(message, classes())
    except ImportError:  # the extra that these configurations need is missing
        return message


class _FlagFormatter(logging.Formatter):
    """Log lines as the user of a command reads them."""

    def __init__(self, classes: _Classes) -> None:
        super().__init__("projnorm: %(message)s")
        self._classes = classes

    def format(self, record: logging.LogRecord) -> str:
        return _in_flags(super().format(record), self._classes)


@contextmanager
def _log_on_stderr(classes: _Classes) -> Iterator[None]:
    """Log lines of the library appear on stderr, with the flags of the command in place of arguments."""
    logger = logging.getLogger("projnorm")
    handler, propagate, level = logging.StreamHandler(), logger.propagate, logger.level
    handler.setFormatter(_FlagFormatter(classes))
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        logger.setLevel(level)
