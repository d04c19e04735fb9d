"""Pickles, read without unpickling them.

`pickle` would import what a file names, call it, and reserve what memory it asks for. Here the few instructions that
files of data and weights consist of are followed, and the functions they name are stood in for: nothing is ever
imported or called.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from projnorm.errors import InputError

ENCODE = "_codecs.encode"
NDARRAY = "numpy.ndarray"
ORDERED_DICT = "collections.OrderedDict"
_BYTES = "__builtin__.bytes"
_ARGUMENT_IS_VALUE = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "BINFLOAT",
        "LONG",
        "LONG1",
        "NONE",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINBYTES",
        "SHORT_BINBYTES",
    ]
)
_LONGEST_NAME = 80


@dataclass(slots=True, eq=False)
class Made:
    """What a call would have made of `arguments`, and the state it would have been given then."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


def follow(data: bytes | BinaryIO, admitted: Callable[[str], bool]) -> Any:
    """What the instructions of one pickle build: dictionaries, lists, tuples, numbers, strings, and `Made`.

    Args:
        data: The pickle, or a stream that begins with one and is left behind it.
        admitted: Whether a function of this name may be asked for; of a call nothing but its arguments is kept.

    Raises:
        InputError: If it asks for anything else.
        LookupError, TypeError, AttributeError: If the instructions make no sense.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of strange escapes in strings
        return _Follower(admitted).follow(data)


def raw(value: Any) -> bytes:
    """Python 2 wrote bytes as strings, which are read as Latin-1.

    Raises:
        InputError: If it is neither.
    """
    if not isinstance(value, str | bytes):
        raise InputError("it holds something else where bytes should be")
    return value.encode("latin-1") if isinstance(value, str) else value


class _Follower:
    """The stack and the memory of one pickle."""

    def __init__(self, admitted: Callable[[str], bool]) -> None:
        self._admitted = admitted
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._encoded = 0

    def follow(self, data: bytes | BinaryIO) -> Any:
        argument: Any
        stack, memo = self._stack, self._memo
        for opcode, argument, position in pickletools.genops(data):
            match opcode.name:
                case name if name in _ARGUMENT_IS_VALUE:
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
                case "EMPTY_TUPLE":
                    stack.append(())
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    size = int(opcode.name[-1])
                    stack[-size:] = [tuple(stack[-size:])]
                case "TUPLE":
                    stack.append(tuple(self._since_mark()))
                case "EMPTY_LIST":
                    stack.append([])
                case "LIST":
                    stack.append(self._since_mark())
                case "APPEND":
                    item = stack.pop()
                    stack[-1].append(item)
                case "APPENDS":
                    items = self._since_mark()
                    stack[-1].extend(items)
                case "EMPTY_DICT":
                    stack.append({})
                case "DICT":
                    stack.append(_with_items({}, self._since_mark()))
                case "SETITEM":
                    pair = [stack.pop(-2), stack.pop()]
                    _with_items(stack[-1], pair)
                case "SETITEMS":
                    items = self._since_mark()
                    _with_items(stack[-1], items)
                case "GLOBAL":
                    stack.append(self._global(argument.replace(" ", ".", 1)))
                case "STACK_GLOBAL":
                    stack[-2:] = [self._global(".".join(stack[-2:]))]
                case "REDUCE":
                    stack[-2:] = [self._stand_in(stack[-2], stack[-1], position)]
                case "BINPERSID":
                    stack[-1] = Made("", (stack[-1],))
                case "BUILD":
                    state = stack.pop()
                    if not isinstance(stack[-1], Made):
                        raise InputError("it gives a state to what has none")
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
            raise InputError("it calls what is no function")
        if function.name == _BYTES and not arguments:
            return b""
        if function.name == ENCODE and len(arguments) == 2 and arguments[1] == "latin1":
            # One string could be encoded time and again.
            self._encoded += len(found := raw(arguments[0]))
            if self._encoded > (position or 0):
                raise InputError("it makes more bytes than it holds")
            return found
        # A copy of what there is, made time and again, would be as bad.
        if function.name in (_BYTES, ENCODE, NDARRAY) or (function.name == ORDERED_DICT and arguments):
            raise InputError(f"it calls {function.name} in a way that no such file does")
        return Made(function.name, arguments)


def _with_items(target: Any, items: list[Any]) -> Any:
    if isinstance(target, Made):  # a dictionary of another kind; what is in it is kept as its state
        target.state = _with_items(target.state if isinstance(target.state, dict) else {}, items)
        return target
    # Hashing tuples that hold one another many times over could take for ever.
    keys = items[::2]
    if not isinstance(target, dict) or len(items) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise InputError("it holds a dictionary whose keys are not names")
    target.update(zip(keys, items[1::2], strict=True))
    return target
