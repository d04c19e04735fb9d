"""Small whole inputs of every format that is read, which the hostile ones are made from."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import tarfile
import tempfile
import zipfile
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image

from deep.config import DeepConfig
from deep.ledger import Row
from ntk.store import FORMAT as TILES_FORMAT
from projnorm.runs import new_record, save, to_npz
from simulations.bound_check import BoundConfig, draw_instance, save_instance
from tests.text.checkpoints import save_bert

PIXELS = np.arange(3072, dtype=np.uint8)
IMAGES = np.arange(2 * 8 * 8 * 3, dtype=np.uint8).reshape(2, 8, 8, 3)
LOGITS = np.array([[1.0, -1.0], [0.5, 0.25], [-2.0, 2.0]])


def npy(array: np.ndarray, *, version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version)
    return buffer.getvalue()


def image_set() -> bytes:
    return to_npz({"images": IMAGES, "labels": np.array([0, 1])})


def outputs() -> bytes:
    names = np.array(["cat", "dog"])
    return to_npz({"logits": LOGITS, "features": LOGITS, "labels": names[[0, 1, 1]], "classes": names})


def probabilities() -> bytes:
    return to_npz({"probabilities": np.full((3, 2), 0.5), "other_logits": LOGITS[None], "labels": np.array([0, 1, 1])})


@cache
def instance() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_instance(draw_instance(BoundConfig(instances=4, large=0), 0), Path(folder) / "x.npz")
        return (Path(folder) / "x.npz").read_bytes()


@cache
def record() -> tuple[bytes, bytes]:
    """The document and the arrays."""
    meanings = {"a": "numbers", "b": "letters"}
    made = new_record("toy", {"n": 3, "sigmas": [0.5]}, {"a": LOGITS, "b": np.array(["x"])}, meanings, 1.5, {"k": "v"})
    with tempfile.TemporaryDirectory() as folder:
        saved = save(made, Path(folder))
        return (saved / "record.json").read_bytes(), next(saved.glob("*.npz")).read_bytes()


def manifest() -> bytes:
    digest = hashlib.sha256(npy(LOGITS)).hexdigest()
    return json.dumps({"format": TILES_FORMAT, "identity": {"a": 1}, "tiles": {"0-0": digest}}).encode()


def ledger() -> bytes:
    rows = (Row("fog-1", "fog", 1, "made", 5, 0.25, method, 0.5) for method in ("ATC", "AC"))
    return b"".join(json.dumps(asdict(row)).encode() + b"\n" for row in rows)


def run_description() -> bytes:
    return json.dumps({"config": asdict(DeepConfig(n_validation=5, m=5)), "inputs": {"torch": "2"}}).encode()


def configuration() -> bytes:
    return json.dumps(asdict(DeepConfig())).encode()


def tensors() -> dict[str, torch.Tensor]:
    return {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}


def safetensors_file() -> bytes:
    return safetensors.torch.save(tensors())


def torch_file(*, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    document = {"state_dict": tensors(), "epoch": 3, "optimizer": {"state": {0: {"step": 1.5}}}}
    torch.save(document, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def checkpoint() -> bytes:
    return json.dumps({"sha256": hashlib.sha256(safetensors_file()).hexdigest(), "facts": {"steps": 3}}).encode()


def cifar_binary() -> dict[str, bytes]:
    record = bytes([1, 2]) + PIXELS.tobytes()
    return {"train.bin": record, "test.bin": record}


def cifar_batch(protocol: int = 2) -> bytes:
    return pickle.dumps({b"data": PIXELS[None], b"fine_labels": [3], b"filenames": [b"a.png"]}, protocol)


def archive(files: dict[str, bytes]) -> bytes:
    return gzip.compress(tarred(files), 1, mtime=0)


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar/{name}")
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return buffer.getvalue()


def pairs_json() -> bytes:
    rows = ({"sentence1": "A cat.", "sentence2": "A dog.", "gold_label": label} for label in ("neutral", "-"))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def pairs_table() -> bytes:
    return b"gold_label\tsentence1\tsentence2\tcategory\nentailment\tA cat.\tA pet.\tx\ncontradiction\ta\tb\ty\n"


def picture(form: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(IMAGES[0]).save(buffer, form)
    return buffer.getvalue()


@cache
def onnx_network() -> bytes:
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 0.0, 0.0, 1.0])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@cache
def text_checkpoint() -> dict[str, bytes]:
    """The files of a folder that `transformers` saved."""
    with tempfile.TemporaryDirectory() as folder:
        save_bert(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
