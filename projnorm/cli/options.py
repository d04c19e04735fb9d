"""Flags made from the settings of configurations: names, types, defaults, help and checks are those of the fields."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from projnorm.core.config import Config, Setting, setting, settings
from projnorm.core.errors import InputError

NONE = "none"
_WIDTH = 80
# Options this similar to one that does not exist are suggested; --fresh is .67 similar to --preset.
_ALIKE = 0.75


@dataclass(frozen=True)
class OutOption(Config):
    """Where results are written."""

    out: str = setting("projnorm-out", "Folder for records, figures and the report.")
    json: bool = setting(False, "Print machine-readable output only.")

    @property
    def root(self) -> Path:
        """Folder of the records."""
        return Path(self.out) / "runs"

    @property
    def figures(self) -> Path:
        """Folder of figures that belong to no record."""
        return Path(self.out) / "figures"


@dataclass(frozen=True)
class RunOptions(Config):
    """How tasks are run; the numbers do not depend on it."""

    workers: int = setting(0, "Number of processes; 0 for as many as there are cores, and memory for.", least=0)
    backend: str = setting(
        "local", "Processes of this machine, or a Dask cluster.", choices=("local", "dask"), rare=True
    )
    scheduler: str = setting("", "Address of the Dask scheduler, such as tcp://127.0.0.1:8786.", rare=True)
    fresh: bool = setting(False, "Compute again what is already there.")

    def check(self) -> None:
        """Refuse a cluster without an address, and an address without a cluster."""
        if self.backend == "dask" and not self.scheduler:
            raise InputError("`backend` dask needs `scheduler`, the address that `dask scheduler` prints.")
        if self.scheduler and self.backend != "dask":
            raise InputError("`scheduler` is for `backend` dask; add it, or leave the address out.")


@dataclass(frozen=True)
class DeviceOption(Config):
    """Where networks run."""

    device: str = setting("auto", "Device: auto, cpu, cuda or mps.")


@dataclass(frozen=True)
class MemoryOption(Config):
    """How much memory tangent kernels may take."""

    memory: float = setting(4.0, "Largest memory of each process, in GB.", above=0.0)


@dataclass(frozen=True)
class FigureOptions(Config):
    """How figures are written."""

    formats: tuple[str, ...] = setting(("pdf", "svg", "png"), "File formats of figures.", choices=("pdf", "svg", "png"))
    width: str = setting("", "Width of figures: column, page, or a number of inches; as drawn by default.", rare=True)

    def check(self) -> None:
        """Refuse a width that is none, before anything is computed."""
        if self.width:
            from figures.style import inches

            inches(self.width)


@dataclass(frozen=True)
class DownloadOption(Config):
    """What may be fetched from the network."""

    download: bool = setting(False, "Fetch data or weights that have a name and are not there, checked by their hash.")


@dataclass(frozen=True)
class AnalyseOption(Config):
    """What is shown of a record."""

    analyse: bool = setting(False, "Show the theory's assumptions and intervals on every target, too.")


@dataclass(frozen=True)
class ReplayOption(Config):
    """Whether one saved design is checked instead."""

    replay: str = setting("", "Check the intervals on this design, which a run saved, and compute nothing else.")


@dataclass(frozen=True)
class PlanOption(Config):
    """Whether a run is only planned."""

    dry_run: bool = setting(False, "Print the plan of the run, with its multiply-adds and bytes, and compute nothing.")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, and whose help fits 80 columns."""

    def __init__(self, **options: Any) -> None:
        """As `argparse.ArgumentParser`."""
        super().__init__(**options, allow_abbrev=False, formatter_class=_Formatter)
        self._rare: dict[argparse.Action, str | None] = {}
        if self.add_help:
            self._help_all = self.add_argument("--help-all", action=_HelpAll, help=argparse.SUPPRESS)

    def hide(self, action: argparse.Action) -> None:
        """Leave an option out of ``--help``; ``--help-all`` shows it."""
        self._help_all.help = "show every option, rare ones too, and exit"
        self._rare[action] = action.help
        action.help = argparse.SUPPRESS

    def show_all(self) -> None:
        """Show what was hidden."""
        for action, description in self._rare.items():
            action.help = description

    def error(self, message: str) -> NoReturn:
        """Raise an `InputError` instead of printing the usage."""
        if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
            known = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[1], known, n=1, cutoff=_ALIKE)
            positional = unknown[1].removeprefix("--").upper()
            hint = f"; did you mean {near[0]}?" if near else ""
            if any(action.dest == positional for action in self._actions):
                hint = f"; {positional} is given without a flag, before the options"
            message = f"there is no option {unknown[1]}{hint}"
        raise InputError(f"{message} (`{self.prog} --help` lists the options)")


class _HelpAll(argparse.Action):
    """Print the help with the rare options, and exit."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.show_all()
        parser.print_help()
        raise SystemExit(0)


class _Formatter(argparse.HelpFormatter):
    """Help of at most 80 columns that keeps the lines of descriptions."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=min(_WIDTH, shutil.get_terminal_size().columns))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(super(_Formatter, self)._fill_text(part, width, indent) for part in text.split("\n\n"))


def make_parser(prog: str, description: str, classes: Sequence[type[Config]], base: Config | None = None) -> Parser:
    """A parser with the flags of several configurations: a group for each, and one for each nested configuration.

    The defaults of the first class are those of `base`, where it is given.
    """
    parser = Parser(prog=prog, description=description)
    for cls, defaults in zip_longest(classes, [base]):
        group = parser.add_argument_group((cls.__doc__ or "").strip().split("\n")[0].partition(";")[0].rstrip("."))
        for flag in _flags_of(cls, defaults):
            if flag.group is not None:
                group = parser.add_argument_group(flag.group)
            action = flag.add(group)
            if flag.is_rare:
                parser.hide(action)
    return parser


def parse(parser: Parser, argv: Sequence[str], classes: Sequence[type[Config]]) -> list[dict[str, Any]]:
    """The settings given on a command line, as a nested mapping for each configuration class."""
    values = vars(parser.parse_args(list(argv)))
    documents = []
    for cls in classes:
        document: dict[str, Any] = {}
        for flag in _flags_of(cls):
            if flag.destination in values:
                inside = document
                for name in flag.path[:-1]:
                    inside = inside.setdefault(name, {})
                inside[flag.path[-1]] = values[flag.destination]
        documents.append(document)
    return documents


def in_flags(message: str, classes: Sequence[type[Config]]) -> str:
    """A message of the library with the flags of these configurations in place of its arguments."""
    spellings: dict[str, str] = {}
    for flag in (flag for cls in classes for flag in _flags_of(cls)):
        spelling = flag.path[-1].upper() if flag.setting.rule.positional else flag.name
        spellings[".".join(flag.path)] = spelling
        spellings.setdefault(flag.path[-1], spelling)  # as functions call it
    message = re.sub(r"`([\w.]+)`", lambda match: spellings.get(match[1], match[0]), message)
    if "download" in spellings:
        message = re.sub(r"download_\w+\([^)]*\)", "--download", message)
    return message.replace("fresh=True", "--fresh")


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag of a setting."""

    path: tuple[str, ...]
    name: str
    setting: Setting
    default: Any
    group: str | None
    is_rare: bool = False

    @property
    def destination(self) -> str:
        return "__".join(self.path)

    def add(self, group: Any) -> argparse.Action:
        """Add it to a group of a parser."""
        declared, rule = self.setting, self.setting.rule
        options: dict[str, Any] = {"dest": self.destination, "default": argparse.SUPPRESS}
        description = rule.help + self._default_text()
        if declared.type is bool:
            action = argparse.BooleanOptionalAction if self.default is True else "store_true"
            return group.add_argument(self.name, action=action, help=description.replace("%", "%%"), **options)
        if rule.allowed and len(rule.allowed) <= _FEW_CHOICES:
            description += f" Choices: {', '.join(map(str, rule.allowed))}."
        options |= {
            "help": description.replace("%", "%%"),
            "metavar": _METAVARS[declared.entry_type or declared.type],
        }
        if declared.entry_type is not None and rule.repeat:
            options |= {"action": _Extend, "nargs": "+"}
        else:
            options["type"] = _reader(declared)
        if rule.positional:
            required = self.default is MISSING
            nargs = ("+" if required else "*") if rule.repeat else (None if required else "?")
            del options["dest"]
            return group.add_argument(self.destination, **{**options, "nargs": nargs, "metavar": self.path[-1].upper()})
        return group.add_argument(self.name, required=self.default is MISSING, **options)

    def _default_text(self) -> str:
        if self.default is MISSING or self.default is False or self.default in ("", None, ()):
            return ""
        shown = ", ".join(map(_spelt, self.default)) if isinstance(self.default, tuple) else _spelt(self.default)
        return f" Default: {shown}."


_FEW_CHOICES = 8
_METAVARS = {int: "N", float: "X", str: "TEXT", bool: ""}


class _Extend(argparse.Action):
    """Values of a repeatable option, one after the other; "none" for no value at all."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ARG002
        known = getattr(namespace, self.dest, ())
        setattr(namespace, self.dest, () if list(values) == [NONE] else (*known, *values))


def _flags_of(
    cls: type[Config],
    base: Config | None = None,
    path: tuple[str, ...] = (),
    prefix: str = "",
    group: str | None = None,
    is_rare: bool = False,
) -> Iterator[_Flag]:
    """Flags of a configuration class, the first of which begins `group`; those of nested ones are behind its own."""
    defaults = [(entry, entry.default if base is None else getattr(base, entry.name)) for entry in settings(cls)]
    for entry, default in defaults:
        if not entry.is_config:
            name = f"--{prefix}{entry.name}".replace("_", "-")
            yield _Flag((*path, entry.name), name, entry, default, group, is_rare or entry.rule.rare)
            group = None
    for entry, default in defaults:
        if entry.is_config:
            rule, inner = entry.rule, default if isinstance(default, Config) else None
            prefix = "" if rule.flat else f"{entry.name}-"
            title = rule.help.rstrip(".")
            yield from _flags_of(entry.type, inner, (*path, entry.name), prefix, title, is_rare or rule.rare)


def _reader(declared: Setting) -> Any:
    """A function from the text of an option to its value."""
    kind = declared.entry_type or declared.type

    def read(text: str) -> Any:
        if declared.entry_type is None:
            return None if declared.optional and text == NONE else _number(text, kind)
        return () if text == NONE else tuple(_number(part.strip(), kind) for part in text.split(","))

    read.__name__ = {int: "whole number", float: "number", str: "text"}[kind]
    return read


def _number(text: str, kind: type) -> Any:
    if kind is int and re.fullmatch(r"[+-]?\d+(\.0*)?|[+-]?\d+e\d", text):
        return int(float(text)) if not text.lstrip("+-").isdigit() else int(text)
    return kind(text)


def _spelt(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
