"""Readers of CIFAR, CIFAR-C and image folders: small files of the published formats, and hostile ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import shutil
import struct
import tarfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock
from urllib.error import HTTPError

import numpy as np
import pytest
from PIL import Image

from projnorm.core import downloads
from projnorm.core.errors import InputError
from projnorm.data import cifar
from projnorm.data.cifar import download_cifar
from projnorm.data.cifar_c import open_cifar_c
from projnorm.data.datasets import load_splits, read_image_set
from tests.reliability import lies
from tests.reliability.samples import tarred as tar

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, size=(12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.int64) % 7
PLANES = IMAGES.transpose(0, 3, 1, 2).reshape(12, -1)
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]


def binary(rows: slice, *, coarse: bool = False) -> bytes:
    columns = [LABELS[rows, None].astype(np.uint8), PLANES[rows]]
    return np.hstack([np.full_like(columns[0], 99), *columns] if coarse else columns).tobytes()


def pickled(rows: slice, *, key: bytes = b"labels", protocol: int = 2) -> bytes:
    names = [b"%d.png" % row for row in range(12)[rows]]
    batch = {b"filenames": names, key: LABELS[rows].tolist(), b"data": PLANES[rows], b"coarse_labels": [99], b"x": b""}
    return pickle.dumps(batch, protocol=protocol)


def published(archive: str) -> dict[str, bytes]:
    """Ten training images and two test images, in the files that the archive holds."""
    hundred = "-100-" in archive
    batches = {name: slice(2 * i, 2 * i + 2) for i, name in enumerate([*BATCHES, "test_batch"])}
    parts = {"train": slice(10), "test": slice(10, 12)} if hundred else batches
    if "binary" in archive:
        return {f"{name}.bin": binary(rows, coarse=hundred) for name, rows in parts.items()}
    return {name: pickled(rows, key=b"fine_labels" if hundred else b"labels") for name, rows in parts.items()}


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, size
    return member


def claims(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, *, times: int = 1, more: int = 0) -> bytes:
    """An archive whose members claim a size, and what follows them."""
    return packed(tar_member(name, kind, size=size).tobuf(tarfile.GNU_FORMAT) * times + bytes(more))


def packed(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def written(folder: Path, source: bytes | dict[str, bytes]) -> Path:
    """An archive, or a folder of files."""
    if isinstance(source, bytes):
        path = folder / "x.tar.gz"
        path.write_bytes(source)
        return path
    for name, data in source.items():
        (folder / name).write_bytes(data)
    return folder


def assert_refused(path: Path, message: str, read=load_splits) -> None:
    """One line that matches, and not longer than a few lines of a terminal."""
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def assert_is_cifar(splits) -> None:
    for part, rows in ((splits.train, slice(10)), (splits.test, slice(10, 12))):
        np.testing.assert_array_equal(part.images, IMAGES[rows])
        np.testing.assert_array_equal(part.labels, LABELS[rows])


def python2_batch(rows: slice) -> bytes:
    """As cPickle of Python 2 wrote the published batches: strings are not told from bytes."""
    raw, count = PLANES[rows].tobytes(), len(PLANES[rows])
    return (
        b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labelsq\x04]q\x05("
        + b"".join(b"K%c" % label for label in LABELS[rows])
        + b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85q\tU\x01b\x87Rq\n"
        + b"(K\x01K%cM\x00\x0c\x86cnumpy\ndtype\nq\x0bU\x02u1K\x00K\x01\x87Rq\x0c(K\x03U\x01|NNN" % count
        + b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<i", len(raw)) + raw
        + b"tbU\tfilenamesq\r]q\x0e(U\x05a.pngq\x0fU\x05b.pngq\x10eu."
    )  # fmt: skip


BINARY, BINARY_100 = published("cifar-10-binary"), published("cifar-100-binary")
SETS = {archive: published(archive) for archive in cifar.PUBLISHED_MD5} | {
    "two versions, of which the binary one is read": dict.fromkeys([*BATCHES, "test_batch"], b"no pickle") | BINARY,
    "pickles of Python 2": {"data_batch_1": python2_batch(slice(10)), "test_batch": python2_batch(slice(10, 12))},
}


@pytest.mark.parametrize("name", SETS)
def test_an_archive_and_the_folder_it_unpacks_to_hold_the_same_images(tmp_path, name):
    (tmp_path / "unpacked").mkdir()
    path = written(tmp_path, packed(tar({"readme.html": b"<p>", **SETS[name]})))
    assert_is_cifar(load_splits(path))
    assert_is_cifar(load_splits(written(tmp_path / "unpacked", SETS[name])))
    assert not load_splits(path).verified
    assert sorted(p.name for p in tmp_path.iterdir()) == ["unpacked", "x.tar.gz"]


class Runs:
    """Runs a command when it is unpickled."""

    command = ""

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_would_run_a_command_is_refused_by_name(tmp_path, protocol):
    witness, hostile = tmp_path / "witness", Runs()
    hostile.command = f"touch {witness}"
    batch = pickle.dumps({b"data": hostile, b"labels": [0]}, protocol)
    written(tmp_path, {"train": batch, "test": pickled(slice(2))})
    assert_refused(tmp_path, r"train: not a pickled batch of CIFAR \(it asks for '(posix|nt)\.system'")
    assert not witness.exists()


def batch_of(*, protocol: int = 2, **entries: object) -> bytes:
    return pickle.dumps({name.encode(): entry for name, entry in entries.items()}, protocol)


PICKLES = [
    (b"", "exhausted|STOP"),
    (pickle.dumps([1, 2], 2), "it does not hold a dictionary"),
    (batch_of(data=PLANES[:1]), "`labels` or `fine_labels` must be a list of classes"),
    (batch_of(data=PLANES[:1], labels=[10**30]), "must be a list of classes"),
    (batch_of(data=PLANES[:1], labels=[0, 1]), "an array of bytes with 3,072 for each of the 2"),
    (batch_of(data=PLANES[:1] * 1.0, labels=[0]), "`data` must be an array of bytes"),
    (batch_of(data=PLANES[:0], labels=[]), "for each of the 0 labels"),
    (batch_of(protocol=5, data=PLANES[:1], labels=[0]), "it asks for 'numpy._core.numeric._frombuffer'"),
    (b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b".", "bytes"),
    (b"\x80\x02}}K\x00b.", "it sets the state of something that has none"),
    (b"\x80\x02K\x00)R.", "it calls something that is not a function"),
    (b"\x80\x02c_codecs\nencode\nK\x00X\x06\x00\x00\x00latin1\x86R.", "something else where bytes should be"),
    (b"(iposix\nsystem\n.", "it has the instruction INST"),
    (b"\x80\x02}(" + lies.laughs() + b"K\x00u.", "it holds a dictionary whose keys are not names"),
    (lies.typed_laughs(), "something else where a name should be"),
    (lies.encoded_again(2_000_000, 5_000), "it makes more bytes than it holds"),
]
WHOLE = packed(tar(BINARY))
BROKEN = (b"", b"text", WHOLE[:3], WHOLE[: len(WHOLE) // 2], WHOLE[:-1], WHOLE[:-8] + bytes(8), WHOLE + b"more")
TOO_LARGE = (tarfile.REGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        *(
            ({"train": data, "test": pickled(slice(2))}, rf"train: not a pickled batch of CIFAR \(.*({message})")
            for data, message in PICKLES
        ),
        (
            BINARY | {"test_batch.bin": b"\x0a" + binary(slice(1))[1:]},
            "test_batch.bin: has class 10; CIFAR-10 has 0 to 9",
        ),
        (BINARY | {"test_batch.bin": b""}, "test_batch.bin: 0 bytes are not a whole number of records of 3,073"),
        ({name: BINARY[name] for name in BINARY if name != "data_batch_3.bin"}, r"lacks data_batch_3\.bin\."),
        *(
            (data, r"x\.tar\.gz: not a whole archive of CIFAR \(")
            for data in (*BROKEN, packed(b""), packed(b"text" * 300))
        ),
        *((claims("x", kind, 2**60, more=1024), r"x\.tar\.gz: not a whole archive of CIFAR") for kind in TOO_LARGE),
        (claims("n", tarfile.GNUTYPE_LONGNAME, times=2000), r"x\.tar\.gz: not a whole archive of CIFAR"),
        (claims("x", times=100_000, more=1024), "it has more than 1,000 members"),
        (claims("data_batch_1.bin", size=10**12), "its data_batch_1.bin has 1,000,000,000,000 bytes, at most 35"),
        (packed(tar(BINARY_100, extra=(tar_member("other/test.bin", size=3),))), "it has two files called test.bin"),
    ],
    ids=lambda value: value if isinstance(value, str) else "a set",
)
def test_files_that_are_not_cifar_are_refused_in_one_line(tmp_path, source, message):
    assert_refused(written(tmp_path, source), message)


def test_a_set_of_full_size_must_have_all_its_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_IMAGES_IN_A_BATCH", 2)
    assert_is_cifar(load_splits(written(tmp_path, BINARY)))
    (tmp_path / "data_batch_5.bin").unlink()
    assert_refused(tmp_path, r"lacks data_batch_5\.bin\.")


def test_names_in_an_archive_lead_nowhere(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    extra = (
        tar_member("cifar/train.bin", tarfile.SYMTYPE, str(tmp_path / "secret")),
        tar_member("cifar/test.bin", tarfile.LNKTYPE, "../../secret"),
        tar_member("train.bin", tarfile.CHRTYPE),
        tar_member("test.bin", tarfile.FIFOTYPE),
        tar_member("train.bin", tarfile.DIRTYPE),
        tar_member("../../etc/passwd", size=3),
    )
    assert_is_cifar(load_splits(written(inside, packed(tar(BINARY_100, prefix="../../", extra=extra)))))
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["inside", "secret", "x.tar.gz"]
    path = written(inside, packed(tar({}, extra=extra)))
    assert_refused(path, r"x\.tar\.gz: contains no binary version of CIFAR-10 .* no Python version")


def test_bombs_are_refused_before_they_unpack(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_MOST_UNPACKED", 1_000_000)
    for kind in (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        path = written(tmp_path, claims("junk", kind, 10**12, more=2_000_000))
        assert_refused(path, r"x\.tar\.gz: .*it unpacks to more than 1,000,000 bytes")
    monkeypatch.setitem(cifar._LIMITS, "test.bin", 100)
    assert_refused(written(tmp_path, BINARY_100), r"test\.bin: has 6,148 bytes, at most 100 are read")


class Response(io.BytesIO):
    def __init__(self, data: bytes, url: str) -> None:
        super().__init__(data)
        self.url = url


@pytest.fixture
def server(monkeypatch) -> Mock:
    """A stand-in for the network that serves one archive."""
    archive = packed(tar(BINARY))
    urlopen = Mock(side_effect=lambda url, timeout: Response(archive, url if timeout else ""))
    monkeypatch.setattr(downloads, "urlopen", urlopen)
    md5 = hashlib.md5(archive, usedforsecurity=False).hexdigest()
    monkeypatch.setitem(cifar.PUBLISHED_MD5, "cifar-10-binary.tar.gz", md5)
    return urlopen


def test_a_download_is_kept_and_not_asked_for_again(tmp_path, server):
    path = download_cifar("cifar10", tmp_path / "new")
    assert path == tmp_path / "new" / "cifar-10-binary.tar.gz"
    assert download_cifar("cifar10", tmp_path / "new") == path
    (asked,) = server.call_args_list
    assert asked.args == ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",)
    assert load_splits(path).verified
    path.write_bytes(b"damaged later")
    assert load_splits(download_cifar("cifar10", tmp_path / "new")).verified
    assert server.call_count == 2


@pytest.mark.usefixtures("server")
def test_downloads_go_to_the_data_folder_or_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PROJNORM_DATA", raising=False)
    assert download_cifar("cifar10").parent == tmp_path / ".cache" / "projnorm"
    monkeypatch.setenv("PROJNORM_DATA", str(tmp_path / "data"))
    assert download_cifar("cifar10").parent == tmp_path / "data"


NOT_FOUND = HTTPError("https://x", 404, "Not Found", None, None)  # type: ignore[arg-type]
DAMAGED = r"cifar-100-binary\.tar\.gz is damaged \(.* nothing was stored, try again"


@pytest.mark.parametrize(
    ("name", "answer", "message"),
    [
        ("cifar100", Response(b"another file", "https://x"), DAMAGED),
        ("cifar10", NOT_FOUND, r"cannot download https://.*\(Not Found\); fetch the file .* save it as"),
        ("cifar10", ConnectionResetError(), r"cannot .*\(ConnectionResetError\); fetch the file .* save it as"),
        ("cifar10", Response(b"", "http://x"), "it leads to http://x, which is not https"),
        ("cifar", None, "`name` must be one of cifar10, cifar100; got 'cifar'"),
    ],
)
def test_a_download_that_fails_is_one_line_and_not_kept(tmp_path, monkeypatch, name, answer, message):
    monkeypatch.setattr(downloads, "urlopen", Mock(side_effect=[answer]))
    assert_refused(tmp_path, message, partial(download_cifar, name))
    assert not list(tmp_path.iterdir())


def save_image(path: Path, pixels: np.ndarray, **options) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def make_folders(root: Path, *parts: str) -> Path:
    """Two images of each of three classes in each part."""
    for part_number, part in enumerate(parts):
        for row in range(6):
            name = ("ant", "bee", "cat")[row // 2]
            save_image(root / part / name / f"{row}.png", IMAGES[6 * part_number + row])
    return root


@pytest.mark.parametrize("test", ["test", "val"])
def test_image_folders_number_classes_and_files_by_name(tmp_path, test):
    make_folders(tmp_path, "train", test)
    (tmp_path / "train" / "ant" / ".hidden.png").write_bytes(b"no image")
    (tmp_path / "train" / "ant" / "notes.txt").write_bytes(b"no image")
    (tmp_path / "train" / ".cache").mkdir()
    splits = load_splits(tmp_path)
    np.testing.assert_array_equal(splits.train.images, IMAGES[:6])
    np.testing.assert_array_equal(splits.test.images, IMAGES[6:])
    for part in (splits.train, splits.test, read_image_set(tmp_path / test)):
        assert part.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert not splits.verified


def test_grey_palette_and_transparent_images_become_rgb(tmp_path):
    folder = tmp_path / "class"
    rgb = Image.fromarray(IMAGES[0])
    palette = rgb.quantize(16)
    grey = rgb.convert("L")
    faint = rgb.copy()
    faint.putalpha(Image.fromarray(IMAGES[1, ..., 0]))
    expected = []
    folder.mkdir()
    for name, image, options in [
        ("0.png", rgb, {}),
        ("1.bmp", rgb, {}),
        ("2.WEBP", rgb, {"lossless": True, "format": "WEBP"}),
        ("3.png", grey, {}),
        ("4.png", palette, {}),
        ("5.png", palette, {"transparency": bytes(range(16))}),
        ("6.png", faint, {}),
        ("7.png", grey.convert("1"), {}),
    ]:
        image.save(folder / name, **options)
        expected.append(np.asarray(rgb if image is faint else image.convert("RGB")))
    rgb.save(folder / "8.jpeg", quality=100)
    found = read_image_set(tmp_path).images
    np.testing.assert_array_equal(found[:8], expected)
    with Image.open(folder / "8.jpeg") as image:
        np.testing.assert_array_equal(found[8], np.asarray(image))


def test_image_folders_that_do_not_fit_together_are_refused(tmp_path):
    make_folders(tmp_path, "train")
    assert_refused(tmp_path, "has train but no folder test or val beside it")
    make_folders(tmp_path, "train", "test")
    shutil.move(tmp_path / "test" / "bee", tmp_path / "test" / "wasp")
    assert_refused(tmp_path, "must have the same classes; only train has bee and only test has wasp")
    shutil.rmtree(tmp_path / "test" / "wasp")
    assert_refused(tmp_path, r"must have the same classes; only train has bee\.$")
    (tmp_path / "test" / "bee").mkdir()
    assert_refused(tmp_path, r"bee: has no images \(\.png, \.jpg, \.jpeg, \.bmp, \.webp\)")
    save_image(tmp_path / "test" / "bee" / "odd.png", IMAGES[0, :20])
    assert_refused(tmp_path, r"odd\.png: is 32 x 20 px, but .*0\.png is 32 x 32 px; resize the images")
    (tmp_path / "empty").mkdir()
    assert_refused(tmp_path / "empty", r"empty: has no folders, one for each class, and no images", read_image_set)


def test_images_without_class_folders_and_arrays_without_labels_are_unlabelled(tmp_path):
    make_folders(tmp_path, "train", "test")
    np.savez(tmp_path / "new.npz", images=IMAGES[6:8])
    for path in (tmp_path / "test" / "ant", tmp_path / "new.npz"):
        found = read_image_set(path)
        np.testing.assert_array_equal(found.images, IMAGES[6:8])
        assert found.known_labels is None
        assert found.take(np.array([1])).known_labels is None
        with pytest.raises(InputError, match=r"(ant|new\.npz): has no labels, which are needed here"):
            _ = found.labels
    shutil.rmtree(tmp_path / "test")
    save_image(tmp_path / "test" / "x.png", IMAGES[0])
    splits = load_splits(tmp_path)
    assert splits.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert splits.test.known_labels is None


def test_images_that_are_not_whole_or_too_large_are_refused(tmp_path, monkeypatch):
    file = tmp_path / "class" / "x.png"
    save_image(file, IMAGES[0])
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert_refused(tmp_path, r"x\.png: cannot be read as an image \(", read_image_set)
    for data in (b"", b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n"):
        file.write_bytes(data)
        assert_refused(tmp_path, r"x\.png: not a PNG, JPEG, BMP or WebP image", read_image_set)
    Image.fromarray(IMAGES[0, ..., 0].astype(np.uint16) * 256).save(file)
    assert_refused(tmp_path, r"x\.png: .*pixels of mode I;16; convert it to 8 bits first", read_image_set)
    file.write_bytes(whole)
    for most in (600, 300):  # more than once and more than twice what Pillow thinks safe
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        assert_refused(
            tmp_path, r"x\.png: cannot be read as an image \(Image size \(1024 pixels\) exceeds", read_image_set
        )


FOGGY = RNG.integers(0, 256, size=(20, 32, 32, 3), dtype=np.uint8)
NOISY = RNG.integers(0, 256, size=(20, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def corrupted(tmp_path) -> Path:
    """Four images in five severities, as in CIFAR-10-C."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(LABELS[:4], 5).astype(np.uint8))
    np.save(folder / "fog.npy", FOGGY)
    np.save(folder / "elastic_transform.npy", NOISY)
    return folder


def test_cifar_c_gives_the_asked_rows_of_a_severity(corrupted):
    found = open_cifar_c(corrupted)
    assert found.families == ("elastic_transform", "fog")
    assert found.per_severity == 4
    for severity in range(1, 6):
        images = found.images("fog", severity, np.array([3, 0]))
        np.testing.assert_array_equal(images.images, FOGGY[4 * (severity - 1) :][[3, 0]])
        np.testing.assert_array_equal(images.labels, LABELS[[3, 0]])
        assert images.name == f"CIFAR-10-C:fog-{severity}"
    assert type(images.images) is np.ndarray
    np.testing.assert_array_equal(found.images("elastic_transform", 5, np.arange(4)).images, NOISY[16:])


def test_images_that_cifar_c_does_not_have_are_refused(corrupted):
    found = open_cifar_c(corrupted)
    for family, severity, indices, message in (
        ("labels", 1, [0], "`family` must be one of elastic_transform, fog; got 'labels'"),
        *(("fog", severity, [0], f"`severity` must be 1 to 5; got {severity}") for severity in (0, 6)),
        *(("fog", 1, indices, "`indices` must be one or more integers") for indices in ([], [[0]], [0.0])),
        *(("fog", 1, indices, "`indices` must be 0 to 3; they run from") for indices in ([-1], [4])),
    ):
        with pytest.raises(ValueError, match=message):
            found.images(family, severity, np.array(indices, dtype=None if indices else int))


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (
            "labels.npy",
            np.zeros(20),
            r"must hold integers, the same number for each of 5 severities; got float64 of shape \(20,\)",
        ),
        ("labels.npy", np.zeros(19, int), r"must hold integers.*got int64 of shape \(19,\)"),
        ("labels.npy", np.arange(20), "the labels of the 5 severities differ"),
        ("labels.npy", np.array([{}] * 20), "not a whole NPY file of a plain array"),
        ("labels.npy", np.zeros(25, int), None),
        ("fog.npy", FOGGY / 255.0, r"must be uint8 of shape \(20, 32, 32, 3\), like labels.npy; got float64"),
        ("fog.npy", FOGGY[:, :16], r"got uint8 of shape \(20, 16, 32, 3\)"),
    ],
)
def test_cifar_c_of_another_format_is_refused(corrupted, file, array, message):
    np.save(corrupted / file, array, allow_pickle=True)
    culprit = file if message else "elastic_transform.npy"
    assert_refused(corrupted, rf"{culprit}: .*{message or 'must be uint8 of shape .25, 32, 32, 3.'}", open_cifar_c)


def test_a_folder_that_is_not_cifar_c_is_refused(corrupted):
    for file in ("fog.npy", "elastic_transform.npy"):
        (corrupted / file).unlink()
    assert_refused(corrupted, r"has labels\.npy, but no <family>\.npy beside it", open_cifar_c)
    (corrupted / "labels.npy").unlink()
    assert_refused(corrupted, r"has no labels\.npy; pass the unpacked folder", open_cifar_c)
