"""Networks with their weights: random, from a file, or the official ImageNet ones, checked before they are used."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import Tensor, nn

from projnorm.errors import InputError
from projnorm.files import locate, memory_ceiling, read_file
from projnorm.vision.networks import HEADS, IMAGENET_CLASSES, NETWORKS
from projnorm.vision.pickles import ORDERED_DICT, follow
from projnorm.vision.settings import IMAGENET, RANDOM

_HOST = "https://download.pytorch.org/models"
# The official files; the part of the name behind the dash is how the SHA-256 of the file begins.
_OFFICIAL = {
    "resnet18": "resnet18-f37072fd.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "vgg11": "vgg11-8a719046.pth",
}
# What torch raises on bytes that are no weight file.
_UNREADABLE = (
    pickle.UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    OverflowError,
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
_ZIP = b"PK\x03\x04"
# At the beginning of a file from before torch wrote zip files: a magic number, a version, the system, the document and
# the names of the storages.
_PICKLES = 5
_NEEDED = (
    ORDERED_DICT,
    "torch.device",
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state",
)
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True, eq=False)
class LoadedNetwork:
    """A network and where its weights come from.

    Attributes:
        model: In eval mode.
        architecture: Its name in `NETWORKS`.
        weights: "random", or the name of the file.
        sha256: Of the file; empty for random weights.
        seed: Of what was drawn.
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
        """Whether nothing in it was ever trained."""
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
    """A network in eval mode.

    Args:
        architecture: One of `NETWORKS`.
        weights: "random", seeded; "imagenet", the official file, downloaded once; or a path to a ``.pth`` or
            ``.safetensors`` file with torchvision's names.
        num_outputs: Outputs of the last layer.
        seed: Of every weight that is not loaded.
        drop_head: Do not load the last layer; it is drawn, as PyTorch draws a linear layer by default.
        cache: Where a download is kept; the hub folder of torch by default.

    Raises:
        InputError: If the file does not fit the network, is not a weight file, or cannot be had.
        OSError: If it cannot be read.
    """
    if architecture not in NETWORKS:
        raise InputError(f"`architecture` must be one of {', '.join(NETWORKS)}; got {architecture!r}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = NETWORKS[architecture](num_outputs).eval()
    head = HEADS[architecture]
    name, sha256 = RANDOM, ""
    if str(weights) != RANDOM:
        path = _path(architecture, weights, cache)
        data = _bytes(path)
        name, sha256 = path.name, hashlib.sha256(data).hexdigest()
        _load(model, read_state(data, path), path, head=head, drop_head=drop_head)
    last = model.get_submodule(head)
    assert isinstance(last, nn.Linear)
    return LoadedNetwork(model, architecture, name, sha256, seed, float(torch.linalg.norm(last.weight.detach())))


def weights_hash(architecture: str, weights: str | Path) -> str:
    """The SHA-256 of the file that `load_network` would read; empty for random weights.

    Raises:
        InputError: If there is no such file, or it cannot be had.
        OSError: If it cannot be read.
    """
    return "" if str(weights) == RANDOM else hashlib.sha256(_bytes(_path(architecture, weights))).hexdigest()


def download(architecture: str, cache: Path | None = None) -> Path:
    """The official ImageNet weights, from the cache if they are there.

    Raises:
        InputError: If they cannot be downloaded or arrive damaged.
    """
    if architecture not in _OFFICIAL:
        raise InputError(f"there are no ImageNet weights of {architecture}; pass a file, or {RANDOM!r}.")
    file = _OFFICIAL[architecture]
    folder = cache or Path(torch.hub.get_dir()) / "checkpoints"
    path = folder / file
    digest = file.rpartition("-")[2].removesuffix(".pth")
    if path.exists() and hashlib.sha256(read_file(path)).hexdigest().startswith(digest):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    url = f"{_HOST}/{file}"
    try:
        torch.hub.download_url_to_file(url, str(path), hash_prefix=digest, progress=False)
    except (URLError, TimeoutError) as error:
        raise InputError(
            f"cannot download {url} ({getattr(error, 'reason', error)}); fetch the file where there is a network and "
            "pass its path as the weights, or use random weights."
        ) from None
    except RuntimeError as error:
        raise InputError(f"the download of {url} is damaged ({error}); nothing was kept, try again.") from None
    return path


def read_state(data: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors by name in the bytes of a weight file.

    Args:
        data: What is in the file.
        path: Its name, which tells its format.

    Raises:
        InputError: If it is not a file of plain tensors.
    """
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(data)
        except (SafetensorError, *_UNREADABLE) as error:
            raise InputError(f"{path}: not a safetensors file ({_reason(error)}).") from None
    try:
        _require_plain(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a strange file is warned of is refused below
            document: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except _UNREADABLE as error:
        raise InputError(f"{path}: not a file of plain weights ({_reason(error)}).") from None
    if isinstance(document, Mapping) and isinstance(document.get("state_dict"), Mapping):
        document = document["state_dict"]
    if not isinstance(document, Mapping) or not all(isinstance(value, Tensor) for value in document.values()):
        raise InputError(f"{path}: holds no weights by name.")
    return {str(key).removeprefix("module."): value for key, value in document.items()}


def _require_plain(data: bytes) -> None:
    """Refuse what a file of weights need not do, before torch looks at it: it would reserve what memory is asked for.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, zipfile.BadZipFile, ...: If it is no such file.
    """
    if data[: len(_ZIP)] != _ZIP:
        stream = io.BytesIO(data)
        for _ in range(_PICKLES):
            follow(stream, _is_needed)
        return
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total, most = sum(member.file_size for member in archive.infolist()), memory_ceiling()
        if total > most:
            raise InputError(f"it unpacks to {total:,} bytes, at most {most:,} are read")
        described = [member for member in archive.infolist() if member.filename.endswith("data.pkl")]
        if len(described) != 1 or any(member.compress_type for member in archive.infolist()):
            raise InputError("it is a zip file, but not one that torch wrote")
        follow(archive.read(described[0]), _is_needed)


def _is_needed(name: str) -> bool:
    """Whether a file of weights may ask for this; `bytearray`, which torch admits, takes the size of what it makes."""
    module, _, last = name.rpartition(".")
    if module in ("torch", "torch.storage"):
        return last.endswith("Storage") or isinstance(getattr(torch, last, None), torch.dtype)
    return name in _NEEDED


def _reason(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")[:_LONGEST_REASON] or type(error).__name__


def _path(architecture: str, weights: str | Path, cache: Path | None = None) -> Path:
    return download(architecture, cache) if str(weights) == IMAGENET else locate(weights)


def _bytes(path: Path) -> bytes:
    if not path.exists():
        raise InputError(
            f"there are no weights at {path}; pass a .pth or .safetensors file, {IMAGENET!r} or {RANDOM!r}."
        )
    return read_file(path)


def _load(model: nn.Module, state: dict[str, Tensor], path: Path, *, head: str, drop_head: bool) -> None:
    if drop_head:
        state = {key: value for key, value in state.items() if not key.startswith(f"{head}.")}
    expected = {k: v for k, v in model.state_dict().items() if not (drop_head and k.startswith(f"{head}."))}
    for key, value in state.items():
        if key in expected and value.shape != expected[key].shape:
            advice = f"; pass num_outputs={len(value)} or drop_head=True" if key.startswith(f"{head}.") else ""
            raise InputError(
                f"{path}: {key!r} has shape {tuple(value.shape)}, not {tuple(expected[key].shape)}{advice}."
            )
    # Files from before PyTorch counted batches have no such entry, and nothing here uses it.
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unknown = [key for key in state if key not in expected]
    for what, keys in (("lacks", missing), ("has the unknown", unknown)):
        if keys:
            raise InputError(f"{path}: {what} {', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''}.")
    for key, value in state.items():
        if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_complex():
            raise InputError(f"{path}: {key!r} is not a plain tensor of real numbers.")
        if not bool(torch.isfinite(value.to(torch.float64)).all()):
            raise InputError(f"{path}: {key!r} is not finite.")
        if key.endswith("running_var") and bool((value < 0).any()):
            raise InputError(f"{path}: {key!r} is a variance and must not be negative.")
    model.load_state_dict(state, strict=False)
