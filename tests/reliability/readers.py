"""Every reader of files from outside: whole files that it reads, where they stand, and how it is called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deep.estimate.batches import as_batches
from deep.estimate.classifiers import OnnxClassifier
from deep.estimate.model_files import read_samples
from deep.outputs import read_outputs
from projnorm.config import read_toml
from projnorm.files import parse_json
from projnorm.records import list_runs, load_record
from projnorm.store import Store
from projnorm.text import load_encode, load_pair_classifier, read_pairs
from projnorm.vision import load_splits, open_cifar_c
from projnorm.vision.datasets import read_image_set
from projnorm.vision.weights import read_state
from simulations.bound_check import load_instance
from simulations.toy import ToyConfig
from tests.reliability import arguments, samples


def _nothing() -> Mapping[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader and what it reads.

    Attributes:
        name: What is read, as in the table of docs/reliability.md.
        form: Format of the file, which says how hostile variants are made (`hostile.hostile`).
        whole: Whole files of the format.
        file: Name under which the file is read.
        read: Reads the file, or the folder that holds it if there are files beside it.
        beside: Other files in the folder, by name, which stay whole.
        place: Puts a file into an empty folder and returns what is read; by default under `file`, with `beside`.
        instrumented: Modules that the coverage-guided fuzzer watches; empty for formats of text, and for what other
            libraries read outside Python.
        writes: Whether reading may move or write files in the folder.
        confined: Whether it may neither start processes nor write elsewhere while it reads.
        seconds: Longest time that it may take.
        room: Most bytes of memory that it may use; more than the ceiling of `confined`, since what is read is unpacked
            and then checked or converted.
    """

    name: str
    form: str
    whole: Callable[[], bytes | tuple[bytes, ...]]
    file: str
    read: Callable[[Path], object]
    beside: Callable[[], Mapping[str, bytes]] | None = None
    place: Callable[[Path, bytes], Path] | None = None
    instrumented: tuple[str, ...] = ()
    writes: bool = False
    confined: bool = True
    seconds: float = 4.0
    room: int = 250_000_000

    def seeds(self) -> tuple[bytes, ...]:
        """The whole files."""
        whole = self.whole()
        return whole if isinstance(whole, tuple) else (whole,)

    def put(self, folder: Path, data: bytes) -> Path:
        """Put a file into an empty folder; returns what is read."""
        if self.place is not None:
            return self.place(folder, data)
        for name, content in {**(self.beside or _nothing)(), self.file: data}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / self.file if self.beside is None else folder


def _pairs(path: Path) -> object:
    return read_pairs(path, keep=["category"])


def _state(path: Path) -> object:
    return read_state(path.read_bytes(), path)


def _cifar_c(folder: Path) -> object:
    return open_cifar_c(folder).images("fog", 2, np.array([0]))


def _onnx(path: Path) -> object:
    return OnnxClassifier.of(path).outputs(as_batches(samples.LOGITS.astype(np.float32), "samples"))


def _text_checkpoint(folder: Path) -> object:
    return load_pair_classifier(str(folder), num_outputs=3, seed=0), load_encode(str(folder), 8)(["a"], ["b"], 8)


def _entry(folder: Path) -> object:
    return Store(folder).get("key")


def _place_arrays(folder: Path, data: bytes) -> Path:
    """Beside a document that says they are the right ones."""
    return _place_document(folder, "key", samples.checksummed(data, {}), data)


def _place_record(folder: Path, data: bytes) -> Path:
    """With the checksum that belongs to it, so that more than the checksum is looked at."""
    with suppress(ValueError):
        data = samples.checksummed(samples.image_set(), parse_json(data))
    return _place_document(folder, "toy-0/record", data, samples.image_set())


def _place_document(folder: Path, key: str, document: bytes, arrays: bytes) -> Path:
    path = Store(folder).path(key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(document)
    path.with_name(f"{path.stem}-{hashlib.sha256(arrays).hexdigest()[:12]}.npz").write_bytes(arrays)
    return folder


def _record(folder: Path) -> object:
    return load_record(folder, "toy-0"), list_runs(folder)


def _settings(path: Path) -> object:
    return ToyConfig().updated(read_toml(path))


_CIFAR = ("projnorm.vision.cifar", "tarfile", "gzip")
_PICKLES = ("projnorm.vision.pickles", "pickletools")
_ARRAYS = ("projnorm.arrays", "zipfile", "numpy.lib._format_impl")
_LABELS, _FOG = np.zeros(5, np.uint8), np.zeros((5, 32, 32, 3), np.uint8)

_READERS = (
    Reader(
        *("entry of the store", "json", samples.entry, "key.json", _entry),
        place=lambda folder, data: _place_document(folder, "key", data, samples.image_set()),
        writes=True,
    ),
    Reader("arrays of an entry", "npz", samples.image_set, "key.npz", _entry, place=_place_arrays, writes=True),
    Reader("record", "json", samples.record, "record.json", _record, place=_place_record, writes=True),
    Reader("settings .toml", "text", samples.settings, "config.toml", _settings),
    Reader("image set .npz", "npz", samples.image_set, "x.npz", read_image_set, instrumented=_ARRAYS),
    Reader("outputs .npz", "npz", samples.outputs, "x.npz", read_outputs, instrumented=_ARRAYS),
    Reader("outputs .npy", "npy", samples.npy_files, "x.npy", read_outputs, instrumented=_ARRAYS),
    Reader("samples .npz", "npz", samples.image_set, "x.npz", read_samples),
    Reader("samples .npy", "npy", samples.npy_files, "x.npy", read_samples),
    Reader("instance .npz", "npz", samples.instance, "x.npz", load_instance, instrumented=_ARRAYS),
    Reader(
        *("CIFAR archive, binary", "tar.gz", lambda: samples.archive(samples.cifar_binary()), "x.tar.gz", load_splits),
        instrumented=_CIFAR,
    ),
    Reader(
        *("CIFAR archive, Python", "tar.gz", lambda: samples.archive(samples.cifar_batches()), "x.tar.gz", load_splits),
        instrumented=(*_CIFAR, *_PICKLES),
    ),
    Reader(
        *("CIFAR folder, binary", "bytes", lambda: samples.cifar_binary()["train.bin"], "train.bin", load_splits),
        beside=samples.cifar_binary,
        instrumented=_CIFAR[:1],
    ),
    Reader(
        *("CIFAR folder, Python", "pickle", lambda: tuple(samples.cifar_batches().values()), "train", load_splits),
        beside=samples.cifar_batches,
        instrumented=(*_CIFAR[:1], *_PICKLES),
    ),
    Reader(
        *("CIFAR-C labels", "npy", lambda: samples.npy(_LABELS), "labels.npy", _cifar_c),
        beside=lambda: {"fog.npy": samples.npy(_FOG)},
        instrumented=("projnorm.vision.cifar_c", *_ARRAYS),
    ),
    Reader(
        *("CIFAR-C images", "npy", lambda: samples.npy(_FOG), "fog.npy", _cifar_c),
        beside=lambda: {"labels.npy": samples.npy(_LABELS)},
        instrumented=("projnorm.vision.cifar_c", *_ARRAYS),
    ),
    Reader("pairs .jsonl", "jsonl", samples.pairs_json, "x.jsonl", _pairs),
    Reader("pairs .tsv", "text", samples.pairs_table, "x.tsv", _pairs),
    Reader("pairs .zip", "zip", samples.pairs_zip, "x.zip", read_pairs, instrumented=("projnorm.text.nli", "zipfile")),
    Reader(
        *("weights .pth", "pth", lambda: (samples.torch_file(), samples.torch_file(legacy=True)), "w.pth", _state),
        instrumented=("projnorm.vision.weights", *_PICKLES, "zipfile", "torch._weights_only_unpickler"),
    ),
    Reader(
        *("weights .safetensors", "safetensors", samples.safetensors_file, "w.safetensors", _state),
        instrumented=("projnorm.vision.weights", "safetensors.torch"),
    ),
    Reader(
        "network .onnx", "bytes", samples.onnx_network, "n.onnx", _onnx, instrumented=("deep.estimate.classifiers",)
    ),
    *(
        Reader(
            *(f"image {form}", "image", lambda form=form: samples.picture(form), f"class/x.{form.lower()}"),
            read=read_image_set,
            beside=_nothing,
            instrumented=("projnorm.vision.image_folders", f"PIL.{plugin}ImagePlugin", "PIL.ImageFile", "PIL.Image"),
        )
        for form, plugin in (("PNG", "Png"), ("JPEG", "Jpeg"), ("BMP", "Bmp"), ("WEBP", "WebP"))
    ),
    Reader(
        *("text checkpoint", "json", lambda: samples.text_checkpoint()["config.json"], "config.json", _text_checkpoint),
        beside=samples.text_checkpoint,
    ),
    Reader(
        *("command line", "arguments", arguments.whole, "arguments.json", arguments.run),
        place=arguments.place,
        confined=False,
        seconds=20.0,
        room=2_000_000_000,
        writes=True,
    ),
)
READERS = {reader.name: reader for reader in _READERS}
