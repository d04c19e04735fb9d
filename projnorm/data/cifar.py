"""CIFAR-10 and CIFAR-100 as published: the binary and the Python version, as an archive or an unpacked folder.

An archive is read in memory and never unpacked to disk; members other than the regular files named below are ignored.
Pickled batches are decoded without unpickling them.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from projnorm.core.downloads import download
from projnorm.core.errors import InputError
from projnorm.core.files import DATA_VARIABLE, decoding, memory_ceiling, open_file, read_file
from projnorm.data.images import Images, ImageSet, Splits
from projnorm.data.pickles import ENCODE, NDARRAY, PickledCall, decode, raw
from projnorm.data.samples import Labels

ARCHIVE_ENDINGS = (".tar.gz", ".tgz")
# MD5 as the authors publish it at https://www.cs.toronto.edu/~kriz/cifar.html.
PUBLISHED_MD5 = {
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
}
DOWNLOADS = {"cifar10": "cifar-10-binary.tar.gz", "cifar100": "cifar-100-binary.tar.gz"}
_HOST = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 3 * 32 * 32
_IMAGES_IN_A_BATCH = 10_000
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
# A file has 31.0 MB, one with all training images of CIFAR-100 155.2 MB; a whole archive unpacks to 186.3 MB.
_MOST_BYTES, _MOST_TRAIN_BYTES, _MOST_UNPACKED = 35_000_000, 160_000_000, 256_000_000
# The archives have at most ten members; reading a million headers would take too long.
_MOST_MEMBERS = 1_000
_MOST_READS_AT_END = 100
_RECONSTRUCT = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
_ADMITTED = (ENCODE, "__builtin__.bytes", NDARRAY, "numpy.dtype", *_RECONSTRUCT)


@dataclass(frozen=True, slots=True)
class _Version:
    """File names and format of one of the four published versions; `label_bytes` is None for pickles."""

    train: tuple[str, ...]
    test: str
    classes: int
    label_bytes: int | None


_VERSIONS = (
    _Version(tuple(f"{name}.bin" for name in _BATCHES), "test_batch.bin", 10, 1),
    _Version(("train.bin",), "test.bin", 100, 2),
    _Version(_BATCHES, "test_batch", 10, None),
    _Version(("train",), "test", 100, None),
)
_LIMITS = {
    name: _MOST_TRAIN_BYTES if len(version.train) == 1 and name != version.test else _MOST_BYTES
    for version in _VERSIONS
    for name in (*version.train, version.test)
}


def read_cifar(path: Path) -> Splits:
    """Read CIFAR-10 or CIFAR-100 from an archive or an unpacked folder; the binary version is preferred."""
    if path.is_dir():
        present = [name for name in _LIMITS if (path / name).is_file()]
        version = _version(present, path)
        names = [name for name in present if name in (*version.train, version.test)]
        files = {name: read_file(path / name, most=min(_LIMITS[name], memory_ceiling())) for name in names}
        return _splits(version, files, path, verified=False)
    with open_file(path, most=_MOST_UNPACKED) as file:
        md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        file.seek(0)
        damaged = decoding(f"{path}: not a whole archive of CIFAR", gzip.BadGzipFile, tarfile.TarError)
        with _BoundedGzip(fileobj=file) as stream, damaged:
            files = _members(stream)
    return _splits(_version(files, path), files, path, verified=md5 in PUBLISHED_MD5.values())


def download_cifar(name: str, cache: Path | None = None) -> Path:
    """Download the published binary archive unless it is in the cache; returns its path.

    Args:
        name: "cifar10" or "cifar100".
        cache: Folder for the archive; by default the folder that PROJNORM_DATA names, else ``~/.cache/projnorm``.
    """
    if name not in DOWNLOADS:
        raise InputError(f"`name` must be one of {', '.join(DOWNLOADS)}; got {name!r}.")
    path = cached_archive(name, cache)
    return download(f"{_HOST}/{path.name}", path, algorithm="md5", digest=PUBLISHED_MD5[path.name])


def cached_archive(name: str, cache: Path | None = None) -> Path:
    """Path under which `download_cifar` stores the archive."""
    return (cache or Path(os.environ.get(DATA_VARIABLE) or Path.home() / ".cache" / "projnorm")) / DOWNLOADS[name]


@dataclass(frozen=True, slots=True, eq=False)
class CifarBatch:
    """Images, red, green and blue plane of each in a row of shape ``(3072,)``, and their classes."""

    pixels: Images
    labels: Labels


def read_batch(data: bytes, path: Path) -> CifarBatch:
    """Decode a pickled dictionary with `data`, 3072 bytes for each image, and with `labels` or `fine_labels`."""
    with decoding(f"{path}: not a pickled batch of CIFAR"):
        batch = decode(data, _ADMITTED.__contains__)
        if not isinstance(batch, dict):
            raise InputError("it does not hold a dictionary")
        entries = {_text(key): value for key, value in batch.items()}
        labels = entries.get("labels", entries.get("fine_labels"))
        if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
            raise InputError("`labels` or `fine_labels` must be a list of classes")
        return CifarBatch(_pixels(entries.get("data"), (len(labels), _PIXELS)), np.array(labels, dtype=np.int64))


class _BoundedGzip(gzip.GzipFile):
    """A gzip stream that refuses to unpack more than a whole archive, or to be read again and again at its end."""

    _reads_at_end = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._reads_at_end += not data
        if self._reads_at_end > _MOST_READS_AT_END:  # tarfile reads on for as long as a member claims to be
            raise InputError("it ends too early")
        if self.tell() > _MOST_UNPACKED:
            raise InputError(f"it unpacks to more than {_MOST_UNPACKED:,} bytes")
        return data


def _members(stream: _BoundedGzip) -> dict[str, bytes]:
    """The files of CIFAR in a tar stream; links, devices and other files are skipped."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, member in enumerate(archive, start=1):
            if count > _MOST_MEMBERS:
                raise InputError(f"it has more than {_MOST_MEMBERS:,} members")
            name = PurePosixPath(member.name).name
            if name not in _LIMITS or not member.isreg() or member.issparse():
                continue
            if name in files:
                raise InputError(f"it has two files called {name}")
            if member.size > _LIMITS[name]:
                raise InputError(f"its {name} has {member.size:,} bytes, at most {_LIMITS[name]:,} are possible")
            content = archive.extractfile(member)
            assert content is not None
            files[name] = content.read()
    while stream.read(1 << 20):  # up to the checksum at the end
        pass
    return files


def _version(names: Collection[str], path: Path) -> _Version:
    for version in _VERSIONS:
        if version.train[0] in names and version.test in names:
            return version
    raise InputError(
        f"{path}: contains no binary version of CIFAR-10 (data_batch_1.bin, ... and test_batch.bin) or CIFAR-100 "
        "(train.bin and test.bin), and no Python version (the same without .bin); put other images into train/<class> "
        "and test/<class>."
    )


def _splits(version: _Version, files: dict[str, bytes], path: Path, *, verified: bool) -> Splits:
    """The training and test set; smaller sets may have fewer batches, but none missing in between."""
    names = [name for name in version.train if name in files]
    missing = next((name for name in version.train if name not in files), None)
    if missing and (missing in version.train[: len(names)] or len(files[names[0]]) >= _IMAGES_IN_A_BATCH * _PIXELS):
        raise InputError(f"{path}: lacks {missing}.")
    train, test = (
        _image_set([_batch(files[name], version, path / name) for name in part], path)
        for part in (names, [version.test])
    )
    return Splits(train, test, verified)


def _batch(data: bytes, version: _Version, path: Path) -> CifarBatch:
    """A record of the binary version is one or two labels, the last of which is the class, then the colour planes."""
    if version.label_bytes is None:
        batch = read_batch(data, path)
    else:
        length = version.label_bytes + _PIXELS
        if not data or len(data) % length:
            raise InputError(f"{path}: {len(data):,} bytes are not a whole number of records of {length:,}.")
        records = np.frombuffer(data, dtype=np.uint8).reshape(-1, length)
        batch = CifarBatch(records[:, version.label_bytes :], records[:, version.label_bytes - 1].astype(np.int64))
    if batch.labels.max() >= version.classes:
        raise InputError(
            f"{path}: has class {batch.labels.max()}; CIFAR-{version.classes} has 0 to {version.classes - 1}."
        )
    return batch


def _image_set(batches: list[CifarBatch], path: Path) -> ImageSet:
    images = [batch.pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for batch in batches]
    return ImageSet(
        str(path), np.ascontiguousarray(np.concatenate(images)), np.concatenate([batch.labels for batch in batches])
    )


def _pixels(array: Any, shape: tuple[int, int]) -> Images:
    if not isinstance(array, PickledCall) or array.name not in _RECONSTRUCT or not isinstance(array.state, tuple):
        raise InputError("`data` must be an array")
    _, stored_shape, dtype, by_columns, pixels = array.state
    if not isinstance(dtype, PickledCall) or _text(dtype.arguments[0]) != "u1" or stored_shape != shape or not shape[0]:
        raise InputError(f"`data` must be an array of bytes with {shape[1]:,} for each of the {shape[0]:,} labels")
    return np.frombuffer(raw(pixels), dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


def _text(value: Any) -> str:
    """A key written by Python 2 or 3; anything else is refused, since converting it to text could take forever."""
    if not isinstance(value, str | bytes):
        raise InputError("it holds something else where a name should be")
    return value.decode("latin-1") if isinstance(value, bytes) else value
