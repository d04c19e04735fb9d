"""The one training loop: fine-tuning, references, pseudo-labels and heads differ in what is passed to it.

A training depends on its arguments and seed alone. Batches are drawn anew from the seed at every epoch and noise at
every step, so a training that was interrupted goes on to the same weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from projnorm.core.arrays import Arrays
from projnorm.core.errors import InputError
from projnorm.core.store import Store
from projnorm.models.preparation import Prepare, placed, prepared
from projnorm.models.recipe import Recipe, batches_per_epoch

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
Watch = Callable[[int, nn.Module], None]

_SAVE_SECONDS = 30.0
# The state of an optimiser stands in a checkpoint under this, its own name and the parameter's.
_OPTIMISER = "optimiser"
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The store and key under which an unfinished training is saved every half minute and resumed from."""

    store: Store
    key: str


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[np.generic]]:
    """Tensors as arrays that a store takes."""
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Arrays) -> dict[str, Tensor]:
    """The tensors again."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape) for name, array in arrays.items()}


def batch_indices(count: int, batch: int, step: int, seed: int) -> NDArray[np.intp]:
    """Which samples a step sees: every epoch goes through all of them once, in an order of its own."""
    per_epoch = batches_per_epoch(count, batch)
    epoch, position = divmod(step, per_epoch)
    start = position * batch
    stop = count if position == per_epoch - 1 else start + batch
    return _order(count, epoch, seed)[start:stop]


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of the outputs."""
    return functional.cross_entropy(model(x), y)


def train(
    model: nn.Module,
    inputs: NDArray[np.generic],
    labels: NDArray[np.int64],
    recipe: Recipe,
    *,
    seed: int,
    prepare: Prepare | None = None,
    device: str = "cpu",
    loss: Loss = cross_entropy,
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
) -> nn.Module:
    """Train a network in place and return it, in eval mode.

    Args:
        model: Network to train, with the weights that training starts from.
        inputs: Training samples, one per row.
        labels: Classes of the samples, shape ``(n,)``.
        recipe: Optimiser, learning rate, batches and length of the training.
        seed: Seed of the batches and of what layers draw.
        prepare: Function applied to every batch before the network, for example `projnorm.data.ImageNetInput`.
        device: Device that the network is trained on.
        loss: Loss as a function of network, inputs and labels.
        watch: Called after every step with the number of steps done and the network.
        checkpoint: Where the unfinished training is saved and resumed from.

    Raises:
        InputError: If there are fewer than two samples or not one label each, or the weights are no longer finite.

    Examples:
        >>> from projnorm.models.recipe import Recipe
        >>> inputs, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
        >>> model = train(nn.Linear(4, 2), inputs, labels, Recipe(steps=50, lr=1.0, batch=4), seed=0)
        >>> model(torch.from_numpy(inputs)).argmax(dim=1).tolist()
        [0, 1, 0, 1]
    """
    labels = np.asarray(labels).astype(np.int64, casting="same_kind", copy=False)
    if len(inputs) != len(labels) or len(labels) < 2:
        raise InputError(
            f"training needs two samples or more, one label each; got {len(inputs)} samples and {len(labels)} labels."
        )
    require_precision(recipe, device)
    steps, target = recipe.count_steps(len(labels)), torch.device(device)
    placed(model, target, images=inputs.ndim == 4).train()
    if recipe.batch_norm == "frozen":
        for module in model.modules():
            if isinstance(module, _BATCH_NORMS):
                module.eval()
    optimiser = _optimiser(recipe, model)
    idle = [
        parameter for name, parameter in model.named_parameters() if parameter.requires_grad and not recipe.trains(name)
    ]
    for parameter in idle:
        parameter.requires_grad_(False)
    identity = {**recipe.identity, "seed": seed}
    first = 0 if checkpoint is None else _resume(checkpoint, model, optimiser, identity)
    called = cast("nn.Module", torch.compile(model)) if recipe.compiled else model
    mixed = torch.autocast(target.type, torch.bfloat16) if recipe.precision == "mixed" else nullcontext()
    saved = time.monotonic()
    with torch.random.fork_rng(devices=[target] if target.type == "cuda" else []):
        for step in range(first, steps):
            torch.manual_seed(_step_seed(seed, step))
            chosen = batch_indices(len(labels), recipe.batch, step, seed)
            seen = inputs[chosen]
            if recipe.augmentation == "standard":
                seen = augmented(seen, np.random.default_rng((seed, step)))
            x, y = prepared(seen, prepare, target), torch.from_numpy(labels[chosen]).to(target)
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr_at(step, steps)
            optimiser.zero_grad()
            with mixed:
                value = loss(called, x, y)
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if watch is not None:
                watch(step + 1, model)
            if checkpoint is not None and step + 1 < steps and time.monotonic() - saved > _SAVE_SECONDS:
                _require_finite(model, step + 1, recipe)
                _save(checkpoint, model, optimiser, identity, step + 1)
                saved = time.monotonic()
    for parameter in idle:
        parameter.requires_grad_(True)
    _require_finite(model, steps, recipe)
    return model.eval()


def require_precision(recipe: Recipe, device: str) -> None:
    """Refuse mixed precision where it was never tried."""
    if recipe.precision == "mixed" and torch.device(device).type not in ("cpu", "cuda"):
        raise InputError(f"`precision` mixed needs CUDA or a CPU; the device is {device}. Use float32.")


def require_layers(recipe: Recipe, model: nn.Module, name: str = "layers") -> None:
    """Refuse layers that the network does not have; `name` is that of the setting in the message."""
    parameters = [parameter for parameter, _ in model.named_parameters()]
    for layer in recipe.layers:
        if not any(f"{parameter}.".startswith(f"{layer}.") for parameter in parameters):
            known = ", ".join(child for child, _ in model.named_children())
            raise InputError(f"`{name}` must be of {known}, or within them; got {layer}.")


def augmented(images: NDArray[np.generic], rng: np.random.Generator) -> NDArray[np.generic]:
    """Images, shape ``(n, height, width, channels)``, half of them mirrored, each moved by up to an eighth of its size.

    What a move uncovers is black.

    Raises:
        InputError: If the inputs are no images with the channels last.
    """
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"`augmentation` standard needs images of shape (n, height, width, channels); got {images.shape}."
        )
    count, height, width = images.shape[:3]
    down, right = (rng.integers(0, 2 * (size // 8) + 1, count) for size in (height, width))
    padded = np.pad(images, ((0, 0), (height // 8, height // 8), (width // 8, width // 8), (0, 0)))
    rows, columns = down[:, None] + np.arange(height), right[:, None] + np.arange(width)
    mirrored = rng.random(count) < 0.5
    columns[mirrored] = columns[mirrored, ::-1]
    moved: NDArray[np.generic] = padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return moved


@lru_cache(maxsize=4)
def _order(count: int, epoch: int, seed: int) -> NDArray[np.intp]:
    return np.random.default_rng((seed, epoch)).permutation(count)


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _optimiser(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    require_layers(recipe, model)
    trained = [parameter for name, parameter in model.named_parameters() if recipe.trains(name)]
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(trained, lr=recipe.lr, weight_decay=0.0)
    return torch.optim.SGD(trained, lr=recipe.lr, momentum=recipe.momentum)


def _require_finite(model: nn.Module, steps: int, recipe: Recipe) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise InputError(f"the weights are not finite after {steps} steps; lower the learning rate from {recipe.lr:g}.")


def _save(
    checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, identity: dict[str, object], step: int
) -> None:
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for what, value in optimiser.state[parameter].items():
            if value is not None:
                tensors[f"{_OPTIMISER}/{what}/{name}"] = value
    facts = {"step": step, "training": identity}
    checkpoint.store.put(checkpoint.key, to_arrays(tensors), facts, compress=False)


def _resume(
    checkpoint: Checkpoint, model: nn.Module, optimiser: torch.optim.Optimizer, identity: dict[str, object]
) -> int:
    """Put a checkpoint of the same training into place; returns the number of steps done."""
    entry = checkpoint.store.get(checkpoint.key)
    if entry is None or entry.facts.get("training") != identity:
        return 0
    tensors = to_tensors(entry.arrays)
    state = {name: tensors.pop(name) for name in list(tensors) if name.startswith(f"{_OPTIMISER}/")}
    model.load_state_dict(tensors)
    parameters = dict(model.named_parameters())
    for key, tensor in state.items():
        _, what, name = key.split("/", 2)
        parameter = parameters[name]
        # Counts of steps stay on the CPU, where torch has them.
        device = parameter.device if tensor.ndim else torch.device("cpu")
        optimiser.state[parameter][what] = tensor.to(device).clone(memory_format=torch.preserve_format)
    return int(entry.facts["step"])
