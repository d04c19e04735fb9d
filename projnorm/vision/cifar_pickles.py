"""The Python version of CIFAR: pickles, read without unpickling them.

`pickle` would import what a file names, call it, and reserve what memory it asks for. Here the few instructions that
these files consist of are followed, and the functions they name are stood in for: nothing is ever imported or called.
"""

from __future__ import annotations

import pickletools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from projnorm.vision.images import Images, Labels

_ENCODE, _BYTES = "_codecs.encode", "__builtin__.bytes"
_NDARRAY, _DTYPE = "numpy.ndarray", "numpy.dtype"
_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_ADMITTED = (_ENCODE, _BYTES, _NDARRAY, _DTYPE, *_RECONSTRUCT)
_ARGUMENT_IS_VALUE = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
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
_LONGEST_NAME, _LONGEST_REASON = 80, 200


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Images as the files of CIFAR hold them.

    Attributes:
        pixels: The red, green and blue plane of each image, shape ``(n, 3072)``.
        labels: Shape ``(n,)``.
    """

    pixels: Images
    labels: Labels


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


@dataclass(slots=True, eq=False)
class _Made:
    """What a call would have made of `arguments`, and the state it would have been given then."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


def read_batch(data: bytes, *, width: int) -> Batch:
    """The images and labels in the bytes of a batch.

    Args:
        data: A pickled dictionary with `data` and `labels` or `fine_labels`.
        width: Bytes of an image.

    Raises:
        ValueError: If it is anything else, or asks for what such a file does not need.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange escapes in strings
            batch = _follow(data)
        if not isinstance(batch, dict):
            raise ValueError("it holds no dictionary")
        found = {_text(key): value for key, value in batch.items()}
        labels = found.get("labels", found.get("fine_labels"))
        if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise ValueError("`labels` or `fine_labels` must be a list of classes")
        return Batch(_pixels(found.get("data"), (len(labels), width)), np.array(labels, dtype=np.int64))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a pickled batch of CIFAR ({str(error)[:_LONGEST_REASON]})") from None


def _follow(data: bytes) -> Any:
    """What the instructions build: dictionaries, lists, tuples, numbers, strings, and `_Made`."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    argument: Any

    def since_mark() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for opcode, argument, _ in pickletools.genops(data):
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
                marks.append(len(stack))
            case "NEWTRUE" | "NEWFALSE":
                stack.append(opcode.name == "NEWTRUE")
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(opcode.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "EMPTY_LIST":
                stack.append([])
            case "LIST":
                stack.append(since_mark())
            case "APPEND":
                item = stack.pop()
                stack[-1].append(item)
            case "APPENDS":
                items = since_mark()
                stack[-1].extend(items)
            case "EMPTY_DICT":
                stack.append({})
            case "DICT":
                stack.append(_with_items({}, since_mark()))
            case "SETITEM":
                pair = [stack.pop(-2), stack.pop()]
                _with_items(stack[-1], pair)
            case "SETITEMS":
                items = since_mark()
                _with_items(stack[-1], items)
            case "GLOBAL":
                stack.append(_admitted(argument.replace(" ", ".", 1)))
            case "STACK_GLOBAL":
                stack[-2:] = [_admitted(".".join(stack[-2:]))]
            case "REDUCE":
                stack[-2:] = [_stand_in(*stack[-2:])]
            case "BUILD":
                state = stack.pop()
                if not isinstance(stack[-1], _Made):
                    raise ValueError("it gives a state to what has none")
                stack[-1].state = state
            case "PROTO" | "FRAME" | "STOP":
                pass
            case name:
                raise ValueError(f"it has the instruction {name}, which no such file needs")
    return stack.pop()


def _admitted(name: str) -> _Global:
    if name not in _ADMITTED:
        raise ValueError(f"it asks for {name[:_LONGEST_NAME]!r}, which no such file needs; nothing in it was run")
    return _Global(name)


def _stand_in(function: Any, arguments: Any) -> Any:
    if not isinstance(function, _Global) or not isinstance(arguments, tuple):
        raise ValueError("it calls what is no function")
    if function.name == _BYTES and not arguments:
        return b""
    if function.name == _ENCODE and len(arguments) == 2 and arguments[1] == "latin1":
        return _raw(arguments[0])
    if function.name in (_DTYPE, *_RECONSTRUCT):
        return _Made(function.name, arguments)
    raise ValueError(f"it calls {function.name} in a way that no such file does")


def _with_items(target: Any, items: list[Any]) -> Any:
    # Hashing tuples that hold one another many times over could take for ever.
    if not isinstance(target, dict) or len(items) % 2 or not all(isinstance(key, str | bytes) for key in items[::2]):
        raise ValueError("it holds a dictionary whose keys are not names")
    target.update(zip(items[::2], items[1::2], strict=True))
    return target


def _pixels(array: Any, shape: tuple[int, int]) -> Images:
    if not isinstance(array, _Made) or array.name not in _RECONSTRUCT:
        raise ValueError("`data` must be an array")
    _, found, dtype, by_columns, raw = array.state
    if not isinstance(dtype, _Made) or _text(dtype.arguments[0]) != "u1" or found != shape or not shape[0]:
        raise ValueError(f"`data` must be an array of bytes with {shape[1]:,} for each of the {shape[0]:,} labels")
    return np.frombuffer(_raw(raw), dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _raw(value: Any) -> bytes:
    """Python 2 wrote bytes as strings, which are read as Latin-1."""
    if not isinstance(value, str | bytes):
        raise ValueError("it holds something else where bytes should be")
    return value.encode("latin-1") if isinstance(value, str) else value
