"""Settings: each is declared once, as a field, and becomes a checked value, JSON, TOML and a flag.

A configuration is a frozen dataclass derived from `Config` whose fields are made by `setting`. Configurations nest.
"""

from __future__ import annotations

import json
import math
import tomllib
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from projnorm.core.errors import InputError
from projnorm.core.files import read_file

_RULE = "rule"
_LARGEST_INTEGER = 2**63
_LARGEST_FILE = 1_000_000
_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting is for and which values it may have."""

    help: str = ""  # as the command line and the documentation show it
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] | Callable[[], tuple[Any, ...]] = ()  # text is compared without regard to case
    all: bool = False  # whether the single entry "all" stands for every choice
    distinct: bool = False  # whether the entries of a tuple must differ from each other
    nonempty: bool = False  # whether a tuple must have an entry
    repeat: bool = False  # whether each entry of a tuple is given by a flag of its own, since entries may hold commas
    positional: bool = False  # whether the command line takes it by position instead of by a flag
    flat: bool = False  # whether the flags of a nested configuration have no prefix
    rare: bool = False  # whether only --help-all lists its flag; of a nested configuration, all its flags

    @property
    def allowed(self) -> tuple[Any, ...]:
        """The choices; empty where every value is allowed."""
        return self.choices() if callable(self.choices) else self.choices


def setting(default: Any = MISSING, help: str = "", **rules: Any) -> Any:  # noqa: A002 (the word users look for)
    """A field of a configuration.

    Args:
        default: Its default; without one the setting is required.
        help: Description of the setting.
        rules: Fields of `Rule`.
    """
    return field(default=default, metadata={_RULE: Rule(help, **rules)})


def seed_setting() -> Any:
    """The setting `seed` of every experiment that draws something."""
    return setting(0, "Seed of everything that is drawn.", least=0, below=2**32)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a configuration class: its type without `None`, and its default, `MISSING` if it is required."""

    name: str
    type: Any
    optional: bool
    default: Any
    rule: Rule

    @property
    def is_config(self) -> bool:
        """Whether it is a nested configuration."""
        return isinstance(self.type, type) and issubclass(self.type, Config)

    @property
    def entry_type(self) -> Any:
        """The type of an entry of a tuple; None where the setting is no tuple."""
        return get_args(self.type)[0] if get_origin(self.type) is tuple else None


class Config:
    """Base of every configuration: checked when it is made, and plain data."""

    _described: ClassVar[tuple[Setting, ...]]

    def __post_init__(self) -> None:
        """Check and normalise every setting, then what several of them must satisfy together."""
        for declared in settings(type(self)):
            object.__setattr__(self, declared.name, _checked(declared, getattr(self, declared.name)))
        self.check()

    def check(self) -> None:
        """Raise `InputError` if settings do not fit together; a subclass defines it where there is such a rule."""

    def to_json(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return {declared.name: _plain(getattr(self, declared.name)) for declared in settings(type(self))}

    def to_toml(self) -> str:
        """The settings as a TOML document that `read_toml` and the option ``--config`` take."""
        return "\n".join(_toml(self.to_json())) + "\n"

    def updated(self, document: Mapping[str, Any]) -> Self:
        """The same configuration with the settings of `document`, a nested mapping, in place of its own."""
        return self.from_json(document, self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any], base: Self | None = None) -> Self:
        """The configuration in a `document` of `to_json`; settings that it lacks are those of `base` or defaults."""
        if not isinstance(document, Mapping):
            raise InputError(f"settings must have names; got a {type(document).__name__}.")
        known = {declared.name: declared for declared in settings(cls)}
        if unknown := sorted(str(name)[:40] for name in document if name not in known):
            raise InputError(f"there is no setting `{unknown[0]}`; there are {', '.join(known)}.")
        start = {name: declared.default if base is None else getattr(base, name) for name, declared in known.items()}
        nested = {
            name: _nested(known[name], value, start[name]) for name, value in document.items() if known[name].is_config
        }
        values = {name: value for name, value in {**start, **document, **nested}.items() if value is not MISSING}
        if missing := [name for name in known if name not in values]:
            raise InputError(f"`{missing[0]}` must be given.")
        return cls(**values)


def settings(cls: type[Config]) -> tuple[Setting, ...]:
    """The settings of a configuration class, in the order of its fields."""
    if "_described" not in cls.__dict__:
        hints, described = get_type_hints(cls), []
        for declared in fields(cls):  # type: ignore[arg-type]
            kinds = (
                get_args(hints[declared.name]) if get_origin(hints[declared.name]) in (Union, types.UnionType) else ()
            )
            kind = next((k for k in kinds if k is not types.NoneType), hints[declared.name])
            rule = declared.metadata.get(_RULE, Rule())
            described.append(Setting(declared.name, kind, types.NoneType in kinds, declared.default, rule))
        cls._described = tuple(described)
    return cls._described


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, as `Config.updated` takes them."""
    try:
        return tomllib.loads(read_file(path, most=_LARGEST_FILE).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a TOML file ({str(error)[:200]}).") from None


def _nested(declared: Setting, value: Any, start: Any) -> Any:
    if isinstance(value, Config):
        return value
    try:
        return declared.type.from_json(value, start if isinstance(start, Config) else None)
    except InputError as error:
        # What the setting is called from outside.
        raise InputError(str(error).replace("`", f"`{declared.name}.", 1)) from None


def _checked(declared: Setting, value: Any) -> Any:
    if value is None and declared.optional:
        return None
    if declared.is_config:
        if not isinstance(value, declared.type):
            raise InputError(f"`{declared.name}` must be a {declared.type.__name__}; got a {type(value).__name__}.")
        return value
    if declared.entry_type is None:
        return _allowed(declared, _typed(declared.name, value, declared.type))
    if not isinstance(value, list | tuple):
        raise InputError(f"`{declared.name}` must be a list; got {repr(value)[:40]}.")
    if declared.rule.all and list(value) == ["all"]:
        value = declared.rule.allowed
    entries = tuple(_allowed(declared, _typed(declared.name, entry, declared.entry_type)) for entry in value)
    if declared.rule.nonempty and not entries:
        raise InputError(f"`{declared.name}` must have at least one entry.")
    if declared.rule.distinct and len(set(entries)) < len(entries):
        raise InputError(f"`{declared.name}` must name each one once; got {', '.join(map(str, entries))}.")
    return entries


def _typed(name: str, value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < _LARGEST_INTEGER else math.inf
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"`{name}` must be {_KINDS[kind]}; got {repr(value)[:40]}.")
    if kind is int and abs(value) >= _LARGEST_INTEGER:
        raise InputError(f"`{name}` is too large a number.")
    return value


def _allowed(declared: Setting, value: Any) -> Any:
    rule, wrong = declared.rule, ""
    if allowed := rule.allowed:
        spelt = {choice.lower() if isinstance(choice, str) else choice: choice for choice in allowed}
        key = value.lower() if isinstance(value, str) else value
        if key not in spelt:
            raise InputError(f"`{declared.name}` must be one of {', '.join(map(str, allowed))}; got {value!r}.")
        return spelt[key]
    if rule.least is not None and not value >= rule.least:
        wrong = f"at least {rule.least:g}"
    elif rule.above is not None and not value > rule.above:
        wrong = f"above {rule.above:g}" if rule.above else "positive"
    elif rule.most is not None and not value <= rule.most:
        wrong = f"at most {rule.most:,g}"
    elif rule.below is not None and not value < rule.below:
        wrong = f"below {rule.below:,g}"
    elif isinstance(value, float) and not math.isfinite(value):
        wrong = "finite"
    if wrong:
        raise InputError(f"`{declared.name}` must be {wrong}; got {value}.")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.to_json()
    return [_plain(entry) for entry in value] if isinstance(value, tuple) else value


def _toml(document: Mapping[str, Any], table: str = "") -> Iterator[str]:
    nested = {name: value for name, value in document.items() if isinstance(value, dict)}
    for name, value in document.items():
        if name not in nested and value is not None:
            yield f"{name} = {json.dumps(value)}"
    for name, value in nested.items():
        path = f"{table}.{name}" if table else name
        yield f"\n[{path}]"
        yield from _toml(value, path)
