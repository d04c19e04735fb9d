"""A configuration from what JSON made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

C = TypeVar("C")


_LARGEST = 2**63
_PLAIN: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float)}


def configuration(cls: type[C], document: Mapping[str, Any]) -> C:
    """The frozen dataclass that `dataclasses.asdict` and JSON turned into `document`; lists become tuples again.

    Raises:
        ValueError: If a field is missing or unknown, or has a value that it cannot have.
    """
    assert is_dataclass(cls)  # noqa: S101 (an invariant of ours)
    known = {field.name for field in fields(cls)}
    if unknown := sorted(map(str, set(document) - known)):
        raise ValueError(f"a {cls.__name__} has no {', '.join(unknown)[:200]}.")
    hints = get_type_hints(cls)
    values = {name: _value(name, value, hints[name]) for name, value in document.items()}
    try:
        return cls(**values)
    except TypeError as error:  # a field is missing
        raise ValueError(f"not a {cls.__name__}: {error}.") from None


def _value(name: str, value: Any, kind: Any) -> Any:
    """A value from JSON as one of this kind."""
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ValueError(f"`{name}` must be an object; got a {type(value).__name__}.")
        return configuration(kind, value)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"`{name}` must be a list; got a {type(value).__name__}.")
        return tuple(_value(name, entry, get_args(kind)[0]) for entry in value)
    allowed = _PLAIN[kind]
    if not isinstance(value, allowed) or isinstance(value, bool):
        raise ValueError(f"`{name}` must be of type {kind.__name__}; got a {type(value).__name__}.")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"`{name}` is too large a number.")
    return value
