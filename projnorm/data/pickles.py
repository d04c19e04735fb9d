"""Pickles, decoded without unpickling them.

`pickle` would import and call whatever a file names, and allocate whatever memory it asks for. This decoder understands
the few instructions that files of data and weights consist of, and records calls instead of making them: nothing is
ever imported or called.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from projnorm.core.errors import InputError

ENCODE = "_codecs.encode"
NDARRAY = "numpy.ndarray"
ORDERED_DICT = "collections.OrderedDict"
_BYTES = "__builtin__.bytes"
# Instructions that push their argument.
# fmt: off
_PUSHES_ARGUMENT = frozenset((
    "INT", "BININT", "BININT1", "BININT2", "BINFLOAT", "LONG", "LONG1", "NONE", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
))
# fmt: on
_EMPTY: dict[str, type] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
_LONGEST_NAME = 80


@dataclass(slots=True, eq=False)
class PickledCall:
    """A call that was not made: the function's name, its arguments, and the state its result would have been given."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


def decode(data: bytes | BinaryIO, admitted: Callable[[str], bool]) -> Any:
    """The object in one pickle, built of dictionaries, lists, tuples, numbers, strings and `PickledCall`.

    A stream that begins with the pickle is left at its end. `admitted` says whether the file may name the function of
    a dotted name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unknown escapes in strings
        return _Decoder(admitted).decode(data)


def raw(value: Any) -> bytes:
    """Bytes, which Python 2 wrote as a string in Latin-1."""
    if not isinstance(value, str | bytes):
        raise InputError("it holds something else where bytes should be")
    return value.encode("latin-1") if isinstance(value, str) else value


class _Decoder:
    """The stack machine that a pickle is written for."""

    def __init__(self, admitted: Callable[[str], bool]) -> None:
        self._admitted = admitted
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._encoded = 0

    def decode(self, data: bytes | BinaryIO) -> Any:
        argument: Any
        stack, memo = self._stack, self._memo
        for opcode, argument, position in pickletools.genops(data):
            match opcode.name:
                case name if name in _PUSHES_ARGUMENT:
                    stack.append(argument)
                case "BINPUT" | "LONG_BINPUT" | "PUT":
                    memo[argument] = stack[-1]
                case "BINGET" | "LONG_BINGET" | "GET":
                    stack.append(memo[argument])
                case "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                case "MARK":
                    self._marks.append(len(stack))
                case "NEWTRUE" | "NEWFALSE":
                    stack.append(opcode.name == "NEWTRUE")
                case name if name in _EMPTY:
                    stack.append(_EMPTY[name]())
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    size = int(opcode.name[-1])
                    stack[-size:] = [tuple(stack[-size:])]
                case "TUPLE":
                    stack.append(tuple(self._since_mark()))
                case "LIST":
                    stack.append(self._since_mark())
                case "APPEND" | "APPENDS":
                    items = [stack.pop()] if opcode.name == "APPEND" else self._since_mark()
                    stack[-1].extend(items)
                case "DICT":
                    stack.append(_with_items({}, self._since_mark()))
                case "SETITEM" | "SETITEMS":
                    items = [stack.pop(-2), stack.pop()] if opcode.name == "SETITEM" else self._since_mark()
                    _with_items(stack[-1], items)
                case "GLOBAL":
                    stack.append(self._global(argument.replace(" ", ".", 1)))
                case "STACK_GLOBAL":
                    stack[-2:] = [self._global(".".join(stack[-2:]))]
                case "REDUCE":
                    stack[-2:] = [self._stand_in(stack[-2], stack[-1], position)]
                case "BINPERSID":
                    stack[-1] = PickledCall("", (stack[-1],))
                case "BUILD":
                    state = stack.pop()
                    if not isinstance(stack[-1], PickledCall):
                        raise InputError("it sets the state of something that has none")
                    stack[-1].state = state
                case "PROTO" | "FRAME" | "STOP":
                    pass
                case name:
                    raise InputError(f"it has the instruction {name}, which no such file needs")
        return stack.pop()

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _global(self, name: str) -> _Global:
        if not self._admitted(name):
            raise InputError(f"it asks for {name[:_LONGEST_NAME]!r}, which no such file needs; nothing in it was run")
        return _Global(name)

    def _stand_in(self, function: Any, arguments: Any, position: int | None) -> Any:
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise InputError("it calls something that is not a function")
        if function.name == _BYTES and not arguments:
            return b""
        if function.name == ENCODE and len(arguments) == 2 and arguments[1] == "latin1":
            # Encoding the same string over and over would exhaust the memory.
            encoded = raw(arguments[0])
            self._encoded += len(encoded)
            if self._encoded > (position or 0):
                raise InputError("it makes more bytes than it holds")
            return encoded
        # So would copying an object over and over.
        if function.name in (_BYTES, ENCODE, NDARRAY) or (function.name == ORDERED_DICT and arguments):
            raise InputError(f"it calls {function.name} in a way that no such file does")
        return PickledCall(function.name, arguments)


def _with_items(target: Any, items: list[Any]) -> Any:
    if isinstance(target, PickledCall):  # a subclass of dict, whose items become its state
        target.state = _with_items(target.state if isinstance(target.state, dict) else {}, items)
        return target
    # Hashing deeply nested tuples could take forever.
    keys = items[::2]
    if not isinstance(target, dict) or len(items) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise InputError("it holds a dictionary whose keys are not names")
    target.update(zip(keys, items[1::2], strict=True))
    return target
