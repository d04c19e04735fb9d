"""The networks whose tangent kernels an experiment computes, and how they see its samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntk.experiments.config import NtkNetwork
from ntk.trace.inputs import Prepare, Values
from projnorm.core.errors import InputError
from projnorm.core.files import locate, read_file, reason
from projnorm.data.image_settings import RANDOM
from projnorm.data.images import ImageNetInput, unit_images
from projnorm.models.model_files import build_model
from projnorm.models.text_networks import TextClassifier, load_pair_classifier, named_tokens
from projnorm.models.weights import LoadedNetwork, load_network, weights_hash

# What every folder that transformers saved has.
_SAVED = "config.json"


@dataclass(frozen=True, slots=True, eq=False)
class Networks:
    """Networks whose kernels are averaged: one for each last layer drawn, or one as it is.

    Attributes:
        models: The networks, in eval mode.
        weights: Where their weights come from, as the record says it.
        sha256: Hash of the file of the weights; empty where there is none.
        head_norms: Norms of the last layers drawn; empty where none is.
        prepare: Function applied to a batch before the network; None where there is none.
        as_inputs: Function from the array of a `SampleSet` to what the networks, or `prepare`, take.
    """

    models: tuple[nn.Module, ...]
    weights: str
    sha256: str
    head_norms: tuple[float, ...]
    prepare: Prepare | None
    as_inputs: Callable[[NDArray[Any]], Values] = torch.from_numpy

    @classmethod
    def from_config(cls, network: NtkNetwork, *, seed: int) -> Networks:
        """The networks of a configuration; `seed` is that of the first last layer."""
        if network.is_text:
            return _text_networks(network, seed)
        if network.model:
            return _own_network(network, seed)
        heads = (
            load_network(network.architecture, network.weights, num_outputs=1, seed=seed + head, drop_head=True)
            for head in range(network.heads)
        )
        return cls.on_images(tuple(heads), network.size)

    @classmethod
    def on_images(cls, loaded: Sequence[LoadedNetwork], size: int) -> Networks:
        """Networks that see images of `size` pixels as those of ImageNet."""
        weights = "random (the network was never trained)" if loaded[0].is_random else loaded[0].weights
        norms = tuple(network.head_norm for network in loaded)
        return cls(tuple(network.model for network in loaded), weights, loaded[0].sha256, norms, ImageNetInput(size))


def network_hashes(network: NtkNetwork) -> dict[str, str]:
    """Hashes of the files that `Networks.from_config` reads."""
    if not network.model:
        return {"weights_sha256": weights_hash(network.architecture, network.weights)}
    path = model_path(network)
    if network.is_file:
        own_weights = "" if network.weights == RANDOM else _file_hash(_weights_file(network))
        return {"model_sha256": _file_hash(path), "weights_sha256": own_weights}
    digest = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        digest.update(f"{file.relative_to(path)} {_file_hash(file)}\n".encode())
    return {"model_sha256": digest.hexdigest()}


def model_path(network: NtkNetwork) -> Path:
    """The file or the folder of a network of the user's own."""
    file = network.model if network.model.endswith(".py") else network.model.rpartition(":")[0]
    path = locate(file if network.is_file else network.model)
    if network.is_file and not path.is_file():
        raise InputError(f"`model` must be FILE.py:FUNCTION; there is no file {path}.")
    if not network.is_file and not (path / _SAVED).is_file():
        raise InputError(
            f"`model` must be FILE.py:FUNCTION, or a folder that transformers saved, with a {_SAVED}; there is none at "
            f"{path}."
        )
    return path


def _own_network(network: NtkNetwork, seed: int) -> Networks:
    """The network that a user's function builds, as it is, in eval mode."""
    weights = None if network.weights == RANDOM else _weights_file(network)
    built = build_model(network.model, weights, seed=seed)
    model = built.model
    if not isinstance(model, nn.Module):
        raise InputError(f"{network.model} must return a torch network; it returned a {type(model).__name__}.")
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)

    def as_inputs(array: NDArray[Any]) -> Tensor:
        x = torch.from_numpy(array)
        return x.to(dtype) if x.is_floating_point() else x

    return Networks(
        (model.eval(),),
        f"as {network.model} built them" if weights is None else weights.name,
        "" if weights is None else _file_hash(weights),
        (),
        built.prepare or unit_images,
        as_inputs,
    )


def _text_networks(network: NtkNetwork, seed: int) -> Networks:
    """A checkpoint of `transformers` under last layers that are drawn."""
    heads = [load_pair_classifier(network.model, num_outputs=1, seed=seed + head) for head in range(network.heads)]
    norms = tuple(float(torch.linalg.norm(head.model.get_parameter(f"{head.last}.weight").detach())) for head in heads)
    models = tuple(TextClassifier(head.model.body).eval() for head in heads)
    has_types = heads[0].model.has_types
    return Networks(
        models, heads[0].weights, heads[0].sha256, norms, None, lambda array: named_tokens(array, has_types=has_types)
    )


def require_fitting(networks: Networks, sets: Mapping[str, Values]) -> None:
    """Refuse sets that the network fails on; what a user's network raises may be anything."""
    for name, inputs in sets.items():
        first: Values = {key: x[:1] for key, x in inputs.items()} if isinstance(inputs, Mapping) else inputs[:1]
        try:
            with torch.no_grad():
                x = first if networks.prepare is None else networks.prepare(first)
                networks.models[0](**x) if isinstance(x, Mapping) else networks.models[0](x)
        except Exception as error:  # noqa: BLE001 - as said above
            raise InputError(f"`model` fails on a sample of {name}, {_shown(first)}: {reason(error)}.") from None


def _shown(inputs: Values) -> str:
    """Type and shape of inputs, for error messages."""
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name} {_shown(x)}" for name, x in inputs.items())
    return f"{str(inputs.dtype).removeprefix('torch.')} of shape {tuple(inputs.shape)}"


def _weights_file(network: NtkNetwork) -> Path:
    path = locate(network.weights)
    if not path.exists():
        raise InputError(f"there are no weights at {path}; pass a .pth or .safetensors file.")
    return path


def _file_hash(path: Path) -> str:
    return hashlib.sha256(read_file(path)).hexdigest()
