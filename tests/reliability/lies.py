"""Archives, arrays and pickles that lie: sizes, types, names, links, bombs, and what would run, write or repeat."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from tests.reliability import samples

BOMB = 400_000_000
_SIDES = (0, 1, 2, 3, 5, 32, 2**31, 2**32, 2**62, 2**63, 10**30, -1, -(2**63))
_TYPES = (
    "'<f8'", "'|u1'", "'<i8'", "'|O'", "'O'", "[('a', '|O')]", "[('a', '<f8')]", "('<f4', (1000000000,))", "'<U0'",
    "'|S0'", "'|V0'", "'<U1000000000'", "'<U268435455'", "'|V8'", "'<M8[ns]'", "'>f8'", "'<c16'", "'|b1'", "'<U1'",
    "'nonsense'", "None", "1", "[]", "{}", "[('a', [('b', '|O')])]",
)  # fmt: skip
_HEADERS = (
    "(" * 5000, "[" * 200 + "]" * 200, "'''", "\\", "\t  x\n y", "1 if", "0777", "'\\d'", "9" * 5000,
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 2L)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2), 'x': __import__('os').system('true')}",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (3, 2)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': [3, 2]}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 2)}",
)  # fmt: skip
_NAMES = (
    "images.npy", "labels.npy", "logits.npy", "x.npy", "x", ".npy", "../x.npy", "/x.npy", "a\nb.npy", "a\x1b[2J.npy",
    "X.npy", "x/", "é.npy", "x.jsonl", "../x.jsonl", "/x.tsv", "data.pkl", "archive/data.pkl",
)  # fmt: skip
_MEMBERS = (
    "train.bin", "test.bin", "train", "test", "../test.bin", "/test.bin", "x", "a/" * 100 + "test.bin", "test.bin\0x",
    "é",
)  # fmt: skip
_COMPRESSIONS = (zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


@st.composite
def lying_npy(draw: st.DrawFn) -> bytes:
    """A header that rarely fits what follows it."""
    shape = tuple(draw(st.lists(st.sampled_from(_SIDES), max_size=5)))
    kind, order = draw(st.sampled_from(_TYPES)), draw(st.sampled_from(("True", "False")))
    text = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}}}"
    if draw(st.integers(0, 3)) == 0:
        text = draw(st.sampled_from(_HEADERS))
    version = draw(st.sampled_from(((1, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 0))))
    length = draw(st.sampled_from((len(text), len(text), len(text), 0, 65535)))
    packed = struct.pack("<H" if version == (1, 0) else "<I", length)
    held = draw(st.sampled_from((0, 1, 8, 16, 48, 96, 4096)))
    return b"\x93NUMPY" + bytes(version) + packed + text.encode() + bytes(held)


@st.composite
def lying_npz(draw: st.DrawFn, whole: tuple[bytes, ...]) -> bytes:
    """Members that lie about arrays, beside or instead of true ones."""
    files = list(samples.unzipped(draw(st.sampled_from(whole))).items())
    for _ in range(draw(st.integers(1, 2))):
        content = draw(lying_npy())
        if files and draw(st.booleans()):
            at = draw(st.integers(0, len(files) - 1))
            files[at] = files[at][0], content
        else:
            files.append((draw(st.sampled_from(_NAMES)), content))
    return samples.zipped(files, draw(st.sampled_from(_COMPRESSIONS)), draw(st.sampled_from((b"", b"a comment"))))


@st.composite
def lying_zip(draw: st.DrawFn, whole: tuple[bytes, ...], name: str) -> bytes:
    """A true archive whose directory lies about sizes, places, methods or flags; or a bomb called `name`."""
    if draw(st.integers(0, 7)) == 0:
        return bomb(name, zipfile.ZIP_DEFLATED, draw(st.sampled_from((None, 0, 100))))
    data = bytearray(draw(st.sampled_from(whole)))
    entries = [at for at in range(len(data) - 46) if data[at : at + 4] in (b"PK\x01\x02", b"PK\x03\x04")]
    for _ in range(draw(st.integers(1, 3)) if entries else 0):
        at = draw(st.sampled_from(entries))
        shift = 0 if data[at + 2] == 1 else -2
        # Flags, method, CRC, both sizes, lengths of name and extra; and in the directory, the place.
        offset, width = draw(
            st.sampled_from(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (24, 4), (28, 2), (30, 2), (42, 4)))
        )
        number = draw(st.sampled_from((0, 1, 2, 8, 9, 12, 14, 93, 99, 2**16 - 1, 2**31, 2**32 - 1, 300_000_000)))
        data[at + offset + shift : at + offset + shift + width] = (number % 256**width).to_bytes(width, "little")
    return bytes(data)


@st.composite
def zips_of_text(draw: st.DrawFn) -> bytes:
    """Some files of pairs and some of nothing, packed in any way."""
    some = (samples.PAIRS_JSON, samples.PAIRS_TABLE, b"", b"\0" * 100, samples.PAIRS_JSON[:40])
    files = draw(st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from(some)), min_size=1, max_size=3))
    return samples.zipped(files, draw(st.sampled_from(_COMPRESSIONS)))


@st.composite
def lying_tar(draw: st.DrawFn) -> bytes:
    """Links, devices, sparse files, sizes that cannot be, names that lead elsewhere, too many members."""
    buffer = io.BytesIO()
    whole = (*samples.CIFAR_BINARY.values(), samples.CIFAR_BATCHES["train"])
    contents = (b"", *whole, b"30 path=../../test.bin\n", b"x" * 600)
    for _ in range(draw(st.integers(1, 5))):
        member = tarfile.TarInfo(draw(st.sampled_from(_MEMBERS)))
        member.type = bytes([draw(st.sampled_from((*b"01234567LKSxgD", 0)))])
        member.linkname = draw(st.sampled_from(("", "test.bin", "../../x", "/etc/passwd")))
        content = draw(st.sampled_from(contents))
        member.size = draw(st.sampled_from((len(content), len(content), 0, 10**6, 2**33, 2**60)))
        header = member.tobuf(draw(st.sampled_from((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))))
        padded = content + bytes(-len(content) % 512)
        buffer.write((header + padded) * draw(st.sampled_from((1, 1, 1, 1, 2000))))
    return gzip.compress(buffer.getvalue() + bytes(1024), 1, mtime=0)


def damaged_inside_gzip(
    whole: tuple[bytes, ...], damaged: Callable[[tuple[bytes, ...]], st.SearchStrategy[bytes]]
) -> st.SearchStrategy[bytes]:
    """Damage that the checksum of gzip does not see."""
    return damaged(tuple(map(gzip.decompress, whole))).map(lambda data: gzip.compress(data, 1, mtime=0))


def bomb(name: str, method: int, declared: int | None = None) -> bytes:
    """A small zip file of one member that unpacks to 400 MB, though it may say otherwise."""
    data = _packed_zeros(name, method)
    return data if declared is None else data.replace(struct.pack("<I", BOMB), struct.pack("<I", declared))


@cache
def _packed_zeros(name: str, method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive, archive.open(name, "w") as member:
        for _ in range(BOMB // 1_000_000):
            member.write(bytes(1_000_000))
    return buffer.getvalue()


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
