"""Pickles that would run, write, reserve or repeat, were they unpickled."""

from __future__ import annotations

import pickle
import struct
import zipfile
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from tests.reliability import samples

_OPCODES = (
    b"(", b"0", b"1", b"2", b")", b"]", b"}", b"\x85", b"\x86", b"\x87", b"t", b"l", b"d", b"a", b"e", b"s", b"u",
    b"R", b"b", b"Q", b"N", b"\x88", b"\x94", b"\x93", b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"K\x03",
    b"X\x04\x00\x00\x00data", b"X\x06\x00\x00\x00labels", b"U\x02u1", b"\x81", b"cnumpy\ndtype\n",
    b"cnumpy\nndarray\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"c_codecs\nencode\n",
    b"X\x06\x00\x00\x00latin1", b"c__builtin__\nbytes\n", b"cos\nsystem\n", b"ccollections\nOrderedDict\n",
    b"ctorch\nFloatStorage\n", b"\x8a\xff" + b"\x7f" * 255, b".", b"I" + b"9" * 5000 + b"\n",
    b"L" + b"9" * 5000 + b"L\n", b"G\x7f\xf0\x00\x00\x00\x00\x00\x00", b"\x8e" + struct.pack("<Q", 2**62),
)  # fmt: skip


def evil(marker: Path) -> st.SearchStrategy[bytes]:
    """Pickles that call, each in another way, what would leave `marker` behind or never come back."""
    touch = f"touch {marker}".encode()
    calls = [
        b"\x80\x02cposix\nsystem\nX" + struct.pack("<I", len(touch)) + touch + b"\x85R.",
        b"(S'" + touch + b"'\niposix\nsystem\n.",
        b"\x80\x02cbuiltins\nexec\nX" + _string(f"open({str(marker)!r}, 'w')") + b"\x85R.",
        b"\x80\x02cio\nopen\nX" + _string(str(marker)) + b"X" + _string("w") + b"\x86R.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93X" + struct.pack("<I", len(touch)) + touch + b"\x85R.",
        b"\x80\x02cbuiltins\nbytearray\n" + long(10**10) + b"\x85R.",
        b"\x80\x02ctorch\nTensor\n" + long(10**11) + b"\x85R.",
        b"\x80\x02" + laughs() + b".",
        b"\x80\x02}X\x04\x00\x00\x00data" + laughs() + b"s.",
        b"\x80\x02}X\x06\x00\x00\x00labels" + laughs() + b"s.",
        typed_laughs(),
        encoded_again(2_000_000, 5_000),
        copied_again(2_000, 20_000),
    ]
    return st.sampled_from(calls)


@st.composite
def programs(draw: st.DrawFn) -> bytes:
    """Instructions in any order."""
    return b"\x80\x02" + b"".join(draw(st.lists(st.sampled_from(_OPCODES), max_size=24))) + b"."


@st.composite
def evil_weights(draw: st.DrawFn, marker: Path) -> bytes:
    """A weight file of torch whose document is another, or whose sizes and places are."""
    if draw(st.booleans()):
        document = draw(st.one_of(evil(marker), programs()))
    else:
        content = bytearray(samples.unzipped(samples.torch_file())["archive/data.pkl"])
        numbers = [at for at in range(len(content) - 1) if content[at] == 0x4B]
        for _ in range(draw(st.integers(1, 3))):
            content[draw(st.sampled_from(numbers)) + 1] = draw(st.integers(0, 255))
        document = bytes(content)
    return samples.torch_file_with(document, draw(st.sampled_from((zipfile.ZIP_STORED,) * 2 + (zipfile.ZIP_DEFLATED,))))


def laughs(depth: int = 60) -> bytes:
    """A tuple that holds another twice, which holds another twice, ...; to write it out takes for ever."""
    return b")" + b"q\x01h\x01\x86" * depth


def typed_laughs() -> bytes:
    """A batch whose array has such a tuple for its type."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\n"
        + laughs()
        + b"\x85R\x89U\x00tb"
    )
    return b"\x80\x02}(X\x06\x00\x00\x00labels](K\x00eX\x04\x00\x00\x00data" + array + b"u."


@cache
def encoded_again(length: int, times: int) -> bytes:
    """One long string, encoded time and again: 5,000 times as much memory as the file is large."""
    text = (
        b"c_codecs\nencode\nq\x00X" + struct.pack("<I", length) + b"x" * length + b"q\x01X\x06\x00\x00\x00latin1q\x02"
    )
    return b"\x80\x02](" + text + b"h\x00h\x01h\x02\x86R" * times + b"e."


@cache
def copied_again(length: int, times: int) -> bytes:
    """One large dictionary, copied time and again."""
    pairs = b"".join(b"U\x04%04dN" % index for index in range(length))
    return b"\x80\x02](ccollections\nOrderedDict\nq\x00}(" + pairs + b"uq\x01" + b"h\x00h\x01\x85R" * times + b"e."


def _string(text: str) -> bytes:
    return struct.pack("<I", len(text.encode())) + text.encode()


def long(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]
