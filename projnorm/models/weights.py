"""Networks with weights that are random, from a file, or the official ones for ImageNet; files are checked first."""

from __future__ import annotations

import hashlib
import io
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from projnorm.core.downloads import download
from projnorm.core.errors import InputError
from projnorm.core.files import decoding, locate, memory_ceiling, read_file
from projnorm.data.image_settings import IMAGENET, RANDOM
from projnorm.data.pickles import ORDERED_DICT, decode
from projnorm.models.networks import HEADS, IMAGENET_CLASSES, NETWORKS

_HOST = "https://download.pytorch.org/models"
# The official files; the part of the name after the dash is the beginning of the SHA-256 of the file.
_OFFICIAL = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "vgg11": "vgg11-8a719046.pth",
}
_ZIP = b"PK\x03\x04"
# A file in the format before zip files begins with five pickles: a magic number, a version, a description of the
# system, the state dictionary, and the names of the storages.
_LEGACY_PICKLES = 5
_NEEDED_FUNCTIONS = (
    ORDERED_DICT,
    "torch.device",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
)


@dataclass(frozen=True, slots=True, eq=False)
class LoadedNetwork:
    """A network with the origin of its weights.

    Attributes:
        model: The network in eval mode.
        architecture: Name of the network in `NETWORKS`.
        weights: Name of the weight file, or "random".
        sha256: Hash of the weight file; empty for random weights.
        seed: Seed of the weights that were not loaded.
        head_norm: Norm of the weights of the last layer.
    """

    model: nn.Module
    architecture: str
    weights: str
    sha256: str
    seed: int
    head_norm: float

    @property
    def is_random(self) -> bool:
        """Whether all weights are random."""
        return not self.sha256


def load_network(
    architecture: str,
    weights: str | Path,
    *,
    num_outputs: int = IMAGENET_CLASSES,
    seed: int = 0,
    drop_head: bool = False,
    cache: Path | None = None,
) -> LoadedNetwork:
    """Build a network in eval mode and load its weights.

    Args:
        architecture: One of `NETWORKS`.
        weights: "random"; "imagenet", the official file, downloaded once; or the path of a ``.pth`` or
            ``.safetensors`` file with torchvision's names.
        num_outputs: Number of outputs of the last layer.
        seed: Seed of all weights that are not loaded.
        drop_head: Do not load the last layer; it keeps PyTorch's random initialisation.
        cache: Folder for downloads; torch's hub folder by default.
    """
    if architecture not in NETWORKS:
        raise InputError(f"`architecture` must be one of {', '.join(NETWORKS)}; got {architecture!r}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = NETWORKS[architecture](num_outputs).eval()
    head = HEADS[architecture]
    name, sha256 = RANDOM, ""
    if str(weights) != RANDOM:
        path, data = _read_weights(architecture, weights, cache)
        name, sha256 = path.name, hashlib.sha256(data).hexdigest()
        load_state(model, read_state(data, path), path, head=head, drawn=head if drop_head else "")
    last = model.get_submodule(head)
    assert isinstance(last, nn.Linear)
    return LoadedNetwork(model, architecture, name, sha256, seed, float(torch.linalg.norm(last.weight.detach())))


def weights_hash(architecture: str, weights: str | Path) -> str:
    """The SHA-256 of the file that `load_network` would read; empty for random weights."""
    return "" if str(weights) == RANDOM else hashlib.sha256(_read_weights(architecture, weights)[1]).hexdigest()


def download_weights(architecture: str, cache: Path | None = None) -> Path:
    """Download the official ImageNet weights unless they are in the cache; returns their path."""
    if architecture not in _OFFICIAL:
        raise InputError(f"there are no ImageNet weights of {architecture}; pass a file, or {RANDOM!r}.")
    file = _OFFICIAL[architecture]
    path = (cache or Path(torch.hub.get_dir()) / "checkpoints") / file
    digest = file.rpartition("-")[2].removesuffix(".pth")
    return download(f"{_HOST}/{file}", path, algorithm="sha256", digest=digest)


def read_state(data: bytes, path: Path) -> dict[str, Tensor]:
    """Decode the bytes of a weight file to tensors by name; the suffix of `path` tells the format."""
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load

        with decoding(f"{path}: not a safetensors file", SafetensorError, AssertionError, MemoryError):
            return load(data)
    plain = decoding(f"{path}: not a file of plain weights", AssertionError, MemoryError)
    with plain, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about unusual files, which are refused below
        _require_plain(data)
        document: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if isinstance(document, Mapping) and isinstance(document.get("state_dict"), Mapping):
        document = document["state_dict"]
    if not isinstance(document, Mapping) or not all(isinstance(value, Tensor) for value in document.values()):
        raise InputError(f"{path}: does not hold weights by name.")
    return {str(key).removeprefix("module."): value for key, value in document.items()}


def _require_plain(data: bytes) -> None:
    """Refuse unusual instructions and sizes before torch, which would allocate any amount of memory, reads the file."""
    if data[: len(_ZIP)] != _ZIP:
        stream = io.BytesIO(data)
        for _ in range(_LEGACY_PICKLES):
            decode(stream, _is_needed)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total, most = sum(member.file_size for member in archive.infolist()), memory_ceiling()
        if total > most:
            raise InputError(f"it unpacks to {total:,} bytes, at most {most:,} are read")
        pickles = [member for member in archive.infolist() if member.filename.endswith("data.pkl")]
        if len(pickles) != 1 or any(member.compress_type for member in archive.infolist()):
            raise InputError("it is a zip file, but not one that torch wrote")
        decode(archive.read(pickles[0]), _is_needed)


def _is_needed(name: str) -> bool:
    """Whether a weight file may name this function; not `bytearray`, whose argument could be any size."""
    module, _, last = name.rpartition(".")
    if module in ("torch", "torch.storage"):
        return last.endswith("Storage") or isinstance(getattr(torch, last, None), torch.dtype)
    return name in _NEEDED_FUNCTIONS


def _read_weights(architecture: str, weights: str | Path, cache: Path | None = None) -> tuple[Path, bytes]:
    path = download_weights(architecture, cache) if str(weights) == IMAGENET else locate(weights)
    if not path.exists():
        raise InputError(
            f"there are no weights at {path}; pass a .pth or .safetensors file, {IMAGENET!r} or {RANDOM!r}."
        )
    return path, read_file(path)


def load_state(model: nn.Module, state: dict[str, Tensor], path: Path, *, drawn: str = "", head: str = "") -> None:
    """Put the weights of a file into a network, once they all fit.

    The layer called `drawn` is left as it is; for the layer called `head` a message says how to do so.
    """
    expected = model.state_dict()
    if drawn:
        state, expected = (
            {key: value for key, value in tensors.items() if not key.startswith(f"{drawn}.")}
            for tensors in (state, expected)
        )
    for key, value in state.items():
        if key in expected and value.shape != expected[key].shape:
            is_head = head and key.startswith(f"{head}.")
            advice = f"; pass num_outputs={len(value)} or drop_head=True" if is_head else ""
            raise InputError(
                f"{path}: {key!r} has shape {tuple(value.shape)}, not {tuple(expected[key].shape)}{advice}."
            )
    # Files written before PyTorch counted batches lack this entry, and nothing here uses it.
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unknown = [key for key in state if key not in expected]
    for problem, keys in (("lacks", missing), ("has the unknown", unknown)):
        if keys:
            raise InputError(f"{path}: {problem} {', '.join(sorted(keys)[:3])}{', ...' if len(keys) > 3 else ''}.")
    for key, value in state.items():
        if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_complex():
            raise InputError(f"{path}: {key!r} is not a plain tensor of real numbers.")
        if not bool(torch.isfinite(value.to(torch.float64)).all()):
            raise InputError(f"{path}: {key!r} is not finite.")
        if key.endswith("running_var") and bool((value < 0).any()):
            raise InputError(f"{path}: {key!r} is a variance and must not be negative.")
    model.load_state_dict(state, strict=False)
