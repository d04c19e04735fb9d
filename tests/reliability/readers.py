"""Every reader of files from outside: whole files that it reads, where they stand, and how it is called."""

from __future__ import annotations

import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import safetensors.torch

from projnorm.core.arrays import from_npz, to_npz
from projnorm.core.config import read_toml
from projnorm.core.files import parse_json
from projnorm.core.records import list_runs, load_record
from projnorm.core.store import Store
from projnorm.data.cifar_c import open_cifar_c
from projnorm.data.datasets import load_splits, read_image_set
from projnorm.data.nli import read_pairs
from projnorm.data.texts import read_texts
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.estimator_file import _checksum
from projnorm.labels.plan import LabelPlan
from projnorm.models.batches import as_batches
from projnorm.models.classifiers import OnnxClassifier
from projnorm.models.sample_files import read_samples
from projnorm.models.text_networks import load_encode, load_pair_classifier
from projnorm.models.weights import read_state
from projnorm.outputs.outputs import Outputs, read_outputs
from simulations.bound_check import load_instance
from simulations.toy import ToyConfig
from tests.reliability import arguments, samples


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader and what it reads: `name` in docs/reliability.md, `form` of the file (`hostile.hostile`), whole files.

    It is read under the name `file`; or, with other whole files `beside` it, the folder is. `place`, if given, puts it
    into an empty folder instead and returns what is read. The fuzzer watches the modules that are `instrumented`: none
    for text, and for what other libraries read outside Python. A reader that `writes` may move or write files in the
    folder; one that is not `confined` may start processes and write elsewhere. The room is more bytes than the ceiling
    of `confined`, since what is read is unpacked and then checked or converted.
    """

    name: str
    form: str
    whole: bytes | tuple[bytes, ...] | Callable[[], bytes]
    file: str
    read: Callable[[Path], object]
    beside: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]] | None = None
    place: Callable[[Path, bytes], Path] | None = None
    instrumented: tuple[str, ...] = ()
    writes: bool = False
    confined: bool = True
    seconds: float = 4.0
    room: int = 250_000_000

    def seeds(self) -> tuple[bytes, ...]:
        """The whole files."""
        whole = self.whole() if callable(self.whole) else self.whole
        return whole if isinstance(whole, tuple) else (whole,)

    def put(self, folder: Path, data: bytes) -> Path:
        """Put a file into an empty folder; returns what is read."""
        if self.place is not None:
            return self.place(folder, data)
        beside = self.beside() if callable(self.beside) else self.beside or {}
        for name, content in {**beside, self.file: data}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        return folder / self.file if self.beside is None else folder


def _pairs(path: Path) -> object:
    return read_pairs(path, keep=["category"])


def _texts(path: Path) -> object:
    return read_texts(path, lambda texts: np.array([[len(text), 1] for text in texts]))


def _state(path: Path) -> object:
    return read_state(path.read_bytes(), path)


def _cifar_c(folder: Path) -> object:
    return open_cifar_c(folder).images("fog", 2, np.array([0]))


def _onnx(path: Path) -> object:
    return OnnxClassifier.from_file(path).outputs(as_batches(samples.LOGITS.astype(np.float32), "samples"))


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
        data = samples.checksummed(samples.IMAGE_SET, parse_json(data))
    return _place_document(folder, "toy-0/record", data, samples.IMAGE_SET)


def _place_document(folder: Path, key: str, document: bytes, arrays: bytes) -> Path:
    path = Store(folder).path(key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(document)
    path.with_name(f"{path.stem}-{hashlib.sha256(arrays).hexdigest()[:12]}.npz").write_bytes(arrays)
    return folder


@cache
def _estimator(name: str = "") -> bytes:
    """The file of an estimator that was fitted to a few outputs and calibration sets; or an array of it."""
    if name:
        return from_npz(_estimator())[name].tobytes()
    sets = [np.random.default_rng(number).standard_normal((40, 2)) for number in range(8)]
    source, *others = (Outputs(rows, rows, (rows.sum(axis=1) > 0).astype(np.int64), name="set") for rows in sets)
    fitted = ErrorEstimator.fit(None, source, calibration={f"f{number}-1": one for number, one in enumerate(others)})
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "estimator")
        return (Path(folder) / "estimator").read_bytes()


def _place_estimator(folder: Path, data: bytes) -> Path:
    """With the arrays and the checksum that belong to it, so that more than the checksum is looked at."""
    arrays = {name.replace("|", "/"): one for name, one in from_npz(_estimator()).items() if name != "document"}
    with suppress(ValueError, RecursionError, TypeError, AttributeError):
        document = parse_json(data)
        document.pop("checksum", None)
        data = json.dumps({**document, "checksum": _checksum(document, arrays)}).encode()
    members = {name.replace("/", "|"): one for name, one in arrays.items()}
    (folder / "estimator").write_bytes(to_npz({**members, "document": np.frombuffer(bytearray(data), np.uint8)}))
    return folder / "estimator"


def _record(folder: Path) -> object:
    return load_record(folder, "toy-0"), list_runs(folder)


def _settings(path: Path) -> object:
    return ToyConfig().updated(read_toml(path))


_CIFAR = ("projnorm.data.cifar", "tarfile", "gzip")
_PICKLES = ("projnorm.data.pickles", "pickletools")
_ARRAYS = ("projnorm.core.arrays", "zipfile", "numpy.lib._format_impl")
_LABELS, _FOG = samples.npy(np.zeros(5, np.uint8)), samples.npy(np.zeros((5, 32, 32, 3), np.uint8))
_LABEL_PLAN = (
    b"sample,stratum,stratum_size,expected_error,probability,label\n"
    b"5,0,30,0.1,0.0667,cat\n0,1,10,0.4,0.1,\n2,0,30,0.1,0.0667,\n"
)
_ZIP = samples.zipped({"readme.txt": b"no", "x.jsonl": samples.PAIRS_JSON})

_READERS = (
    Reader(
        *("entry of the store", "json", samples.ENTRY, "key.json", _entry),
        place=lambda folder, data: _place_document(folder, "key", data, samples.IMAGE_SET),
        writes=True,
    ),
    Reader("arrays of an entry", "npz", samples.IMAGE_SET, "key.npz", _entry, place=_place_arrays, writes=True),
    Reader("record", "json", samples.RECORD, "record.json", _record, place=_place_record, writes=True),
    Reader("settings .toml", "text", ToyConfig().to_toml().encode(), "config.toml", _settings),
    Reader("image set .npz", "npz", samples.IMAGE_SET, "x.npz", read_image_set, instrumented=_ARRAYS),
    Reader("outputs .npz", "npz", samples.OUTPUTS, "x.npz", read_outputs, instrumented=_ARRAYS),
    Reader("outputs .npy", "npy", samples.NPY_FILES, "x.npy", read_outputs, instrumented=_ARRAYS),
    Reader("samples .npz", "npz", samples.IMAGE_SET, "x.npz", read_samples),
    Reader("samples .npy", "npy", samples.NPY_FILES, "x.npy", read_samples),
    Reader(
        *("error estimator", "npz", _estimator, "estimator", ErrorEstimator.load),
        instrumented=("projnorm.estimate.estimator_file", *_ARRAYS),
    ),
    Reader(
        *("document of an estimator", "json", partial(_estimator, "document"), "estimator", ErrorEstimator.load),
        place=_place_estimator,
    ),
    Reader("samples to label .csv", "text", _LABEL_PLAN, "x.csv", LabelPlan.read),
    Reader("outputs .csv", "text", samples.OUTPUTS_TABLE, "x.csv", read_outputs),
    Reader("outputs .csv.gz", "bytes", gzip.compress(samples.OUTPUTS_TABLE, mtime=0), "x.csv.gz", read_outputs),
    Reader("outputs .parquet", "bytes", samples.parquet, "x.parquet", read_outputs),
    Reader("samples .csv", "text", samples.OUTPUTS_TABLE, "x.csv", read_samples),
    Reader("samples .parquet", "bytes", samples.parquet, "x.parquet", read_samples),
    Reader("instance .npz", "npz", samples.instance, "x.npz", load_instance, instrumented=_ARRAYS),
    Reader(
        *("CIFAR archive, binary", "tar.gz", samples.archive(samples.CIFAR_BINARY), "x.tar.gz", load_splits),
        instrumented=_CIFAR,
    ),
    Reader(
        *("CIFAR archive, Python", "tar.gz", samples.archive(samples.CIFAR_BATCHES), "x.tar.gz", load_splits),
        instrumented=(*_CIFAR, *_PICKLES),
    ),
    Reader(
        *("CIFAR folder, binary", "bytes", samples.CIFAR_BINARY["train.bin"], "train.bin", load_splits),
        beside=samples.CIFAR_BINARY,
        instrumented=_CIFAR[:1],
    ),
    Reader(
        *("CIFAR folder, Python", "pickle", tuple(samples.CIFAR_BATCHES.values()), "train", load_splits),
        beside=samples.CIFAR_BATCHES,
        instrumented=(*_CIFAR[:1], *_PICKLES),
    ),
    Reader(
        *("CIFAR-C labels", "npy", _LABELS, "labels.npy", _cifar_c),
        beside={"fog.npy": _FOG},
        instrumented=("projnorm.data.cifar_c", *_ARRAYS),
    ),
    Reader(
        *("CIFAR-C images", "npy", _FOG, "fog.npy", _cifar_c),
        beside={"labels.npy": _LABELS},
        instrumented=("projnorm.data.cifar_c", *_ARRAYS),
    ),
    Reader("pairs .jsonl", "jsonl", samples.PAIRS_JSON, "x.jsonl", _pairs),
    Reader("pairs .tsv", "text", samples.PAIRS_TABLE, "x.tsv", _pairs),
    Reader("texts .csv", "text", samples.TEXTS_TABLE, "x.csv", _texts),
    Reader("texts .jsonl", "jsonl", samples.TEXTS_JSON, "x.jsonl", _texts),
    Reader("texts .npz", "npz", samples.TEXTS, "x.npz", _texts),
    Reader("pairs .zip", "zip", _ZIP, "x.zip", read_pairs, instrumented=("projnorm.data.nli", "zipfile")),
    Reader(
        *("weights .pth", "pth", (samples.torch_file(), samples.torch_file(legacy=True)), "w.pth", _state),
        instrumented=("projnorm.models.weights", *_PICKLES, "zipfile", "torch._weights_only_unpickler"),
    ),
    Reader(
        *("weights .safetensors", "safetensors", safetensors.torch.save(samples.TENSORS), "w.safetensors", _state),
        instrumented=("projnorm.models.weights", "safetensors.torch"),
    ),
    Reader(
        "network .onnx", "bytes", samples.onnx_network, "n.onnx", _onnx, instrumented=("projnorm.models.classifiers",)
    ),
    *(
        Reader(
            *(f"image {form}", "image", samples.picture(form), f"class/x.{form.lower()}"),
            read=read_image_set,
            beside={},
            instrumented=("projnorm.data.image_folders", f"PIL.{plugin}ImagePlugin", "PIL.ImageFile", "PIL.Image"),
        )
        for form, plugin in (("PNG", "Png"), ("JPEG", "Jpeg"), ("BMP", "Bmp"), ("WEBP", "WebP"))
    ),
    Reader(
        *("text checkpoint", "json", lambda: samples.text_checkpoint()["config.json"], "config.json", _text_checkpoint),
        beside=samples.text_checkpoint,
    ),
    Reader(
        *("command line", "arguments", arguments.WHOLE, "arguments.json", arguments.run),
        place=arguments.place,
        confined=False,
        seconds=20.0,
        room=2_000_000_000,
        writes=True,
    ),
)
READERS = {reader.name: reader for reader in _READERS}
