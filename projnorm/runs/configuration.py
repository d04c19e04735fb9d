"""A configuration from what JSON made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

C = TypeVar("C")


def configuration(cls: type[C], document: Mapping[str, Any]) -> C:
    """The frozen dataclass that `dataclasses.asdict` and JSON turned into `document`; lists become tuples again.

    Raises:
        ValueError: If a field is missing or unknown, or has a value that it cannot have.
    """
    assert is_dataclass(cls)  # noqa: S101 (an invariant of ours)
    known = {field.name for field in fields(cls)}
    if unknown := sorted(set(document) - known):
        raise ValueError(f"a {cls.__name__} has no {', '.join(unknown)}.")
    hints = get_type_hints(cls)
    try:
        return cls(**{name: _value(hints[name], value) for name, value in document.items()})
    except TypeError as error:
        raise ValueError(f"not a {cls.__name__}: {error}.") from None


def _value(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return configuration(kind, value)
    return _plain(value)


def _plain(value: Any) -> Any:
    return tuple(_plain(entry) for entry in value) if isinstance(value, list) else value
