"""Hostile variants of whole files: damage of any kind, and lies that the format allows."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.reliability import arguments, lies

# Numbers at which sizes and offsets break.
EDGES = (0, 1, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**33, 2**40, 2**62, 2**63 - 1, 2**63)
_DEEP = 100_000
# Stands in a document for text that json.dumps would not write.
_HOLE = "@hole@"
_RAW = (
    "[" * _DEEP, "[" * _DEEP + "]" * _DEEP, '{"a":' * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP,
    "[" * 900 + "]" * 900, "9" * 5000, "-" + "9" * 4000, "1e400", "-1e400", "NaN", "Infinity", "-Infinity",
    '"\\ud800"', '"\\u0000"', '"a\\nb"', '"../../x"', "1.5e308", "",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 0.5, 2**31, 2**63, 2**64, 10**30, 10**400, "", "x", "1", [], {}, [[]], [None], [1.5],
    ["x", "x"], {"a": 1}, [[[[1]]]], "x" * 100_000,
)  # fmt: skip
_CELLS = (
    b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\t\t\t", b"{}", b"[]", b"{", b"x" * 20_000,
    b"\x85", b"\x1b[2J",
)  # fmt: skip


def hostile(form: str, whole: tuple[bytes, ...], marker: Path) -> st.SearchStrategy[bytes]:
    """Variants of whole files of a form; `marker` is a file that none of them may bring about."""
    if form == "arguments":
        return arguments.command_lines()
    ways = [damaged(whole), damaged(whole), st.binary(max_size=64), st.sampled_from([b"", *whole])]
    of_form = {
        "json": lambda: (documents(whole),),
        "jsonl": lambda: (lines(whole), documents(whole)),
        "text": lambda: (lines(whole),),
        "npy": lambda: (lies.lying_npy(),),
        "npz": lambda: (lies.lying_npz(whole), lies.lying_zip(whole, "images.npy")),
        "zip": lambda: (lies.lying_zip(whole, "x.jsonl"), lies.zips_of_text()),
        "tar.gz": lambda: (lies.lying_tar(), lies.damaged_inside_gzip(whole, damaged)),
        "pickle": lambda: (lies.evil(marker), lies.programs()),
        "pth": lambda: (lies.evil(marker), lies.evil_weights(marker), lies.lying_zip(whole, "a/data.pkl")),
        "safetensors": lambda: (lying_safetensors(),),
    }
    return st.one_of(*ways, *of_form.get(form, tuple)())


@st.composite
def damaged(draw: st.DrawFn, whole: tuple[bytes, ...]) -> bytes:
    """A few bytes changed, cut, repeated, moved or put in; places near either end are the likeliest."""
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 4))):
        last = max(0, len(data) - 1)
        low, high = draw(st.sampled_from(((0, 128), (-64, -1), (0, -1))))
        at = draw(st.integers(max(0, last + low) if low else 0, min(last, high) if high > 0 else last))
        span = draw(st.integers(1, 64))
        match draw(st.sampled_from(("bit", "byte", "cut", "delete", "repeat", "insert", "number", "splice"))):
            case "bit" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "byte" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at:]
            case "delete":
                del data[at : at + span]
            case "repeat":
                data[at:at] = bytes(data[at : at + span]) * draw(st.sampled_from((1, 2, 1000)))
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "number":
                width = draw(st.sampled_from((2, 4, 8)))
                number = draw(st.sampled_from(EDGES)) % 256**width
                data[at : at + width] = number.to_bytes(width, draw(st.sampled_from(("little", "big"))))
            case "splice":
                data[at:] = draw(st.sampled_from(whole))[draw(st.integers(0, last)) :]
    return bytes(data)


@st.composite
def documents(draw: st.DrawFn, whole: tuple[bytes, ...]) -> bytes:
    """A JSON document with a value taken out or replaced by what should not be there, or in no proper encoding."""
    document = json.loads(whole[0].split(b"\n")[0] if whole[0].count(b"}\n{") else whole[0])
    for _ in range(draw(st.integers(1, 2))):
        if not (places := list(_places(document))):
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(("replace", "replace", "raw", "raw", "delete"))):
            case "delete":
                del holder[key]
            case "raw":
                holder[key] = _HOLE
            case _:
                holder[key] = copy.deepcopy(draw(st.sampled_from(_VALUES)))  # the next change may be inside it
    text = json.dumps(document).replace(f'"{_HOLE}"', draw(st.sampled_from(_RAW)))
    return draw(st.sampled_from((b"", b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\0"))) + text.encode() + b"\n"


@st.composite
def lines(draw: st.DrawFn, whole: tuple[bytes, ...]) -> bytes:
    """Lines taken out, doubled, joined, or with a cell replaced."""
    rows = draw(st.sampled_from(whole)).split(b"\n")
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(rows) - 1))
        match draw(st.sampled_from(("strange", "double", "join", "cell", "many"))):
            case "strange":
                rows[at] = draw(st.sampled_from(_CELLS))
            case "double":
                rows[at:at] = rows[at:]
            case "join":
                rows[at : at + 2] = [b"\t".join(rows[at : at + 2])]
            case "cell":
                cells = rows[at].split(b"\t")
                cells[draw(st.integers(0, len(cells) - 1))] = draw(st.sampled_from(_CELLS))
                rows[at] = b"\t".join(cells)
            case "many":
                rows[at:at] = [b""] * 5000
    return b"\n".join(rows)


@st.composite
def lying_safetensors(draw: st.DrawFn) -> bytes:
    """Headers of any length, with any type, shape and place."""
    entry = {
        "dtype": draw(st.sampled_from(("F32", "F64", "BF16", "F8_E4M3", "F4", "I64", "BOOL", "C64", "U16", "X", ""))),
        "shape": draw(st.lists(st.sampled_from((0, 1, 2, 3, *EDGES[-6:], -1)), max_size=4)),
        "data_offsets": [draw(st.sampled_from((0, 4, 8, 24, *EDGES[-4:]))) for _ in range(2)],
    }
    header = json.dumps({draw(st.sampled_from(("w", "__metadata__", "", "a\nb"))): entry})
    if draw(st.integers(0, 4)) == 0:
        header = "[" * 1000
    length = draw(st.sampled_from((len(header), len(header), len(header), *EDGES))) % 2**64
    return length.to_bytes(8, "little") + header.encode() + bytes(draw(st.sampled_from((0, 4, 8, 24, 48))))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key or index of a document."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
