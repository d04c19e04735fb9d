"""Small whole inputs of every format that is read, which the hostile ones are made from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from projnorm.core.arrays import to_npz
from projnorm.core.store import digest
from simulations.bound_check import BoundConfig, draw_instance, save_instance
from tests.models.checkpoints import save_bert


def npy(array: np.ndarray, *, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version)
    return buffer.getvalue()


def archive(files: Mapping[str, bytes]) -> bytes:
    return gzip.compress(tarred(files), 1, mtime=0)


def tarred(files: Mapping[str, bytes], *, prefix: str = "cifar/", extra: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    """A tar file of `files` under a prefix, behind `extra` members that hold zeros."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for member in extra:
            out.addfile(member, io.BytesIO(bytes(member.size)))
        for name, data in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zipped(
    files: dict[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b""
) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as out:
        warnings.simplefilter("ignore")  # about two members of one name
        out.comment = comment
        for name, data in files.items() if isinstance(files, dict) else files:
            out.writestr(name, data)
    return buffer.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def checksummed(arrays: bytes, document: Any) -> bytes:
    """A document of the store with the checksums that belong to it and to the arrays beside it."""
    if not isinstance(document, dict):
        return json.dumps(document).encode()
    document.pop("checksums", None)
    sha256 = {"arrays": hashlib.sha256(arrays).hexdigest()}
    return json.dumps({**document, "checksums": {**sha256, "document": digest([document, sha256], 64)}}).encode()


def parquet() -> bytes:
    """The table of outputs as Parquet, once packed and with a column of categories."""
    buffer = io.BytesIO()
    pd.read_csv(io.BytesIO(OUTPUTS_TABLE), dtype={"city": "category"}).to_parquet(buffer)
    return buffer.getvalue()


def torch_file(*, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    document = {"state_dict": TENSORS, "epoch": 3, "optimizer": {"state": {0: {"step": 1.5}}}}
    torch.save(document, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def torch_file_with(document: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    """A weight file of torch with another document inside."""
    return zipped({**unzipped(torch_file()), "archive/data.pkl": document}, method)


def picture(form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(buffer, form)
    return buffer.getvalue()


IMAGES = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
LOGITS = np.array([[1.0, -1.0], [0.5, 0.25], [-2.0, 2.0]])
TENSORS = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
IMAGE_SET = to_npz({"images": IMAGES, "labels": np.array([0, 1])})
NPY_FILES = npy(LOGITS), npy(np.asfortranarray(LOGITS), version=(2, 0))
# As logits with named classes, and as probabilities with those of another model.
_NAMES, _PROBABILITIES = np.array(["cat", "dog"]), np.full((3, 2), 0.5)
OUTPUTS = (
    to_npz({"logits": LOGITS, "features": LOGITS, "labels": _NAMES[[0, 1, 1]], "classes": _NAMES}),
    to_npz({"probabilities": _PROBABILITIES, "other_logits": LOGITS[None], "labels": np.array([0, 1, 1])}),
)
OUTPUTS_TABLE = (
    b"label,prob_a,prob_b,city,day\na,0.9,0.1,Rome,2026-01-01\nb,0.5,0.5,,2026-01-02\na,1,0,Bonn,2026-01-03\n"
)
# The documents of an entry of the store and of a record, whose arrays are those of the image set.
ENTRY = checksummed(IMAGE_SET, {"facts": {"steps": 3}, "names": ["x"]})
_FACTS = {
    "id": "toy-0", "kind": "toy", "config": {"n": 3}, "created": "2026-01-01T00:00:00+00:00", "wall_seconds": 1.5,
    "environment": {"python": "3"}, "facts": {"k": "v"}, "meanings": {"images": "pixels", "labels": "classes"},
}  # fmt: skip
RECORD = checksummed(IMAGE_SET, _FACTS)
_PIXELS = np.arange(3072, dtype=np.uint8)
_BATCH = {b"data": _PIXELS[None], b"fine_labels": [3], b"filenames": [b"a.png"]}
CIFAR_BINARY = dict.fromkeys(("train.bin", "test.bin"), bytes([1, 2]) + _PIXELS.tobytes())
CIFAR_BATCHES = {"train": pickle.dumps(_BATCH, 2), "test": pickle.dumps(_BATCH, 4)}
_PAIR = '{"sentence1": "A cat.", "sentence2": "A dog.", "gold_label": '
PAIRS_JSON = f'{_PAIR}"neutral"}}\n{_PAIR}"-"}}\n'.encode()
PAIRS_TABLE = b"gold_label\tsentence1\tsentence2\tcategory\nentailment\tA cat.\tA pet.\tx\ncontradiction\ta\tb\ty\n"
TEXTS_TABLE = b'text,label\n"A cat, asleep.",good\nA dog.,bad\n'
TEXTS_JSON = b'{"text": "A cat.", "label": "good"}\n{"text": "A dog.", "label": 1}\n'
TEXTS = to_npz({"text": np.array(["A cat.", "A dog."]), "label": np.array(["good", "bad"])})


@cache
def instance() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_instance(draw_instance(BoundConfig(instances=4, large=0), 0), Path(folder) / "x.npz")
        return (Path(folder) / "x.npz").read_bytes()


def onnx_network(weight: np.ndarray = np.eye(2), *, softmax: bool = False) -> bytes:
    """``y = x W``, perhaps under a softmax."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Gemm", ["x", "w"], ["z" if softmax else "y"])]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["z"], ["y"], axis=1))
    sizes = dict(zip("xy", weight.shape, strict=True))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in sizes.items()]
    held = helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.ravel())
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [held])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@cache
def text_checkpoint() -> dict[str, bytes]:
    """The files of a folder that `transformers` saved."""
    with tempfile.TemporaryDirectory() as folder:
        save_bert(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
