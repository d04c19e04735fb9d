"""Every reader of files from outside: what it reads when all is well, and how it is called."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep.checkpoints import load_checkpoint
from deep.config import DeepConfig
from deep.experiments.comparison import open_run
from deep.ledger import Ledger, Scores
from deep.predict.data import given
from deep.predict.files import read_samples
from deep.predict.models import OnnxClassifier
from deep.predict.sets import read_outputs
from ntk.store import TileStore
from projnorm.files import parse_json
from projnorm.runs import listing, load, record_id
from projnorm.text import load_encode, load_pair_classifier, read_pairs
from projnorm.vision import load_splits, open_cifar_c
from projnorm.vision.datasets import read_image_set
from projnorm.vision.weights import read_state
from simulations.bound_check import load_instance
from tests.reliability import seeds

RUN = "deep-0123456789"


@dataclass(frozen=True, slots=True)
class Reader:
    """One reader.

    Attributes:
        name: What it reads.
        form: Of the file, which tells how a hostile one is made.
        seeds: Whole files.
        place: Puts the bytes of a file where they are read, into an empty folder; returns what to read.
        read: Reads it.
        modules: What a coverage-guided fuzzer instruments; empty for formats of text, and for those that other
            libraries read outside Python.
        refusals: How it says no.
    """

    name: str
    form: str
    seeds: Callable[[], tuple[bytes, ...]]
    place: Callable[[Path, bytes], Path]
    read: Callable[[Path], object]
    modules: tuple[str, ...] = ()
    refusals: tuple[type[Exception], ...] = (ValueError, OSError)


def _as(name: str) -> Callable[[Path, bytes], Path]:
    """Under this name, in the folder or below it."""

    def place(folder: Path, data: bytes) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return place


def _beside(name: str, others: Callable[[], dict[str, bytes]]) -> Callable[[Path, bytes], Path]:
    """With other files, which are whole, in a folder that is read."""

    def place(folder: Path, data: bytes) -> Path:
        for file, content in {**others(), name: data}.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    return place


def _place_record(folder: Path, data: bytes) -> Path:
    """Under the name that belongs to its configuration, so that more than the name is looked at."""
    try:
        document = parse_json(data)
        name = record_id(document["kind"], document["config"])
        folder = folder / (name if document["kind"].isalnum() else "toy-0")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        folder = folder / "toy-0"
    arrays = seeds.record()[1]
    return _beside("record.json", lambda: {f"arrays-{hashlib.sha256(arrays).hexdigest()[:12]}.npz": arrays})(
        folder, data
    )


def _place_record_arrays(folder: Path, data: bytes) -> Path:
    """Beside a document that says they are the right ones."""
    document = json.loads(seeds.record()[0])
    document["arrays_sha256"] = hashlib.sha256(data).hexdigest()
    name = f"arrays-{document['arrays_sha256'][:12]}.npz"
    return _beside(name, lambda: {"record.json": json.dumps(document).encode()})(folder / document["id"], data)


def _read_record(path: Path) -> object:
    for entry in listing(path.parent):
        f"{entry.id} {entry.created} {entry.wall_seconds:.1f} {entry.problem}"
    record = load(path)
    return [record.meanings[name] for name in record.arrays], dict(record.facts), f"{record.wall_seconds:.1f}"


def _read_ledger(path: Path) -> Any:
    rows = Ledger(path).rows
    return Scores.of(rows) if rows else None


def _read_checkpoint(path: Path) -> Any:
    return load_checkpoint(path)


def _place_checkpoint_tensors(folder: Path, data: bytes) -> Path:
    sha256 = hashlib.sha256(data).hexdigest()
    (folder / f"c-{sha256[:12]}.safetensors").write_bytes(data)
    return _as("c.json")(folder, json.dumps({"sha256": sha256, "facts": {}}).encode())


def _read_cifar_c(folder: Path) -> object:
    return open_cifar_c(folder).images("fog", 2, np.array([0]))


def _read_onnx(path: Path) -> object:
    return OnnxClassifier.of(path).outputs(given(seeds.LOGITS.astype(np.float32), "samples"))


def _read_text_checkpoint(folder: Path) -> object:
    return load_pair_classifier(str(folder), num_outputs=3, seed=0), load_encode(str(folder), 8)(["a"], ["b"], 8)


def _one(data: Callable[[], bytes]) -> Callable[[], tuple[bytes, ...]]:
    return lambda: (data(),)


_CIFAR = ("projnorm.vision.cifar", "tarfile", "gzip")
_PICKLES = ("projnorm.vision.cifar", "projnorm.vision.cifar_pickles", "projnorm.vision.pickles", "pickletools")
_ARRAYS = ("projnorm.arrays", "zipfile", "numpy.lib._format_impl")

READERS = {
    reader.name: reader
    for reader in (
        Reader("record", "json", lambda: (seeds.record()[0],), _place_record, _read_record),
        Reader("arrays of a record", "npz", lambda: (seeds.record()[1],), _place_record_arrays, _read_record),
        Reader(
            "image set .npz",
            "npz",
            _one(seeds.image_set),
            _as("x.npz"),
            read_image_set,
            ("projnorm.vision.datasets", *_ARRAYS),
        ),
        Reader(
            "outputs .npz",
            "npz",
            lambda: (seeds.outputs(), seeds.probabilities()),
            _as("x.npz"),
            read_outputs,
            ("deep.predict.sets", *_ARRAYS),
        ),
        Reader(
            "outputs .npy",
            "npy",
            lambda: (seeds.npy(seeds.LOGITS), seeds.npy(np.asfortranarray(seeds.LOGITS), version=(2, 0))),
            _as("x.npy"),
            read_outputs,
            ("deep.predict.sets", *_ARRAYS),
        ),
        Reader("samples .npz", "npz", _one(seeds.image_set), _as("x.npz"), read_samples),
        Reader("samples .npy", "npy", lambda: (seeds.npy(seeds.LOGITS),), _as("x.npy"), read_samples),
        Reader(
            "instance .npz",
            "npz",
            _one(seeds.instance),
            _as("x.npz"),
            load_instance,
            ("simulations.bound_check", *_ARRAYS),
        ),
        Reader(
            "tiles",
            "json",
            _one(seeds.manifest),
            _beside("manifest.json", lambda: {"0-0.npy": seeds.npy(seeds.LOGITS)}),
            lambda folder: TileStore(folder, {"a": 1}).damaged,
        ),
        Reader("ledger", "jsonl", _one(seeds.ledger), _as("ledger.jsonl"), _read_ledger),
        Reader(
            "run", "json", _one(seeds.run_description), _beside(f"{RUN}/run.json", dict), lambda f: open_run(f / RUN)
        ),
        Reader(
            "configuration",
            "json",
            _one(seeds.configuration),
            _as("config.json"),
            lambda path: DeepConfig.from_json(parse_json(path.read_bytes())),
        ),
        Reader(
            "checkpoint .json",
            "json",
            _one(seeds.checkpoint),
            _beside(
                "c.json",
                lambda: {f"c-{json.loads(seeds.checkpoint())['sha256'][:12]}.safetensors": seeds.safetensors_file()},
            ),
            lambda folder: _read_checkpoint(folder / "c.json"),
        ),
        Reader(
            "checkpoint .safetensors",
            "safetensors",
            _one(seeds.safetensors_file),
            _place_checkpoint_tensors,
            _read_checkpoint,
        ),
        Reader(
            "CIFAR archive, binary",
            "tar.gz",
            lambda: (seeds.archive(seeds.cifar_binary()),),
            _as("x.tar.gz"),
            load_splits,
            _CIFAR,
        ),
        Reader(
            "CIFAR archive, Python",
            "tar.gz",
            lambda: (seeds.archive({"train": seeds.cifar_batch(), "test": seeds.cifar_batch(4)}),),
            _as("x.tar.gz"),
            load_splits,
            (*_CIFAR, *_PICKLES[1:]),
        ),
        Reader(
            "CIFAR folder, binary",
            "bytes",
            lambda: (seeds.cifar_binary()["train.bin"],),
            _beside("train.bin", seeds.cifar_binary),
            load_splits,
            ("projnorm.vision.cifar",),
        ),
        Reader(
            "CIFAR folder, Python",
            "pickle",
            lambda: (seeds.cifar_batch(), seeds.cifar_batch(4)),
            _beside("train", lambda: {"test": seeds.cifar_batch()}),
            load_splits,
            _PICKLES,
        ),
        Reader(
            "CIFAR-C labels",
            "npy",
            lambda: (seeds.npy(np.zeros(5, np.uint8)),),
            _beside("labels.npy", lambda: {"fog.npy": seeds.npy(np.zeros((5, 32, 32, 3), np.uint8))}),
            _read_cifar_c,
            ("projnorm.vision.cifar_c", *_ARRAYS),
        ),
        Reader(
            "CIFAR-C images",
            "npy",
            lambda: (seeds.npy(np.zeros((5, 32, 32, 3), np.uint8)),),
            _beside("fog.npy", lambda: {"labels.npy": seeds.npy(np.zeros(5, np.uint8))}),
            _read_cifar_c,
            ("projnorm.vision.cifar_c", *_ARRAYS),
        ),
        Reader(
            "pairs .jsonl", "jsonl", _one(seeds.pairs_json), _as("x.jsonl"), lambda p: read_pairs(p, keep=["category"])
        ),
        Reader("pairs .tsv", "text", _one(seeds.pairs_table), _as("x.tsv"), lambda p: read_pairs(p, keep=["category"])),
        Reader(
            "pairs .zip",
            "zip",
            lambda: (seeds.zipped({"readme.txt": b"no", "x.jsonl": seeds.pairs_json()}),),
            _as("x.zip"),
            read_pairs,
            ("projnorm.text.nli", "zipfile"),
        ),
        Reader(
            "weights .pth",
            "pth",
            lambda: (seeds.torch_file(), seeds.torch_file(legacy=True)),
            _as("w.pth"),
            lambda path: read_state(path.read_bytes(), path),
            (
                "projnorm.vision.weights",
                "projnorm.vision.pickles",
                "pickletools",
                "zipfile",
                "torch._weights_only_unpickler",
            ),
        ),
        Reader(
            "weights .safetensors",
            "safetensors",
            _one(seeds.safetensors_file),
            _as("w.safetensors"),
            lambda path: read_state(path.read_bytes(), path),
            ("projnorm.vision.weights", "safetensors.torch"),
        ),
        Reader(
            "network .onnx",
            "bytes",
            _one(seeds.onnx_network),
            _as("n.onnx"),
            _read_onnx,
            ("deep.predict.models",),
        ),
        *(
            Reader(
                f"image {form}",
                "image",
                lambda form=form: (seeds.picture(form),),
                _beside(f"class/x.{form.lower()}", dict),
                read_image_set,
                ("projnorm.vision.image_folders", f"PIL.{plugin}ImagePlugin", "PIL.ImageFile", "PIL.Image"),
            )
            for form, plugin in (("PNG", "Png"), ("JPEG", "Jpeg"), ("BMP", "Bmp"), ("WEBP", "WebP"))
        ),
        Reader(
            "text checkpoint, config.json",
            "json",
            lambda: (seeds.text_checkpoint()["config.json"],),
            _beside("config.json", seeds.text_checkpoint),
            _read_text_checkpoint,
        ),
    )
}
