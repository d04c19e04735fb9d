"""The one training loop: fine-tuning, references, pseudo-labels and heads differ in what is passed to it.

A run depends on its arguments and seed alone. Batches are drawn anew from the seed at every epoch and noise at every
step, so a training that was interrupted goes on to the same weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor, nn
from torch.nn import functional

from deep.checkpoints import load_checkpoint, save_checkpoint
from projnorm.device import torch_threads

Prepare = Callable[[Tensor], Tensor]
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]

_SAVE_SECONDS = 30.0
# What an optimiser keeps of a parameter stands in a checkpoint under this, its own name and the parameter's.
_KEPT = "optimiser"
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True, slots=True)
class Recipe:
    """An optimiser without weight decay, and a learning rate that falls to zero.

    Attributes:
        steps: Number of steps.
        lr: Learning rate of the first step.
        batch: Samples a step.
        momentum: Of the gradient, in SGD; AdamW keeps torch's two.
        precision: "float32" keeps the type of the network; "mixed" multiplies in bfloat16 on CUDA.
        batch_norm: "batch" normalises by the statistics of each batch, as usual; "frozen" by those the network came
            with, which then stay.
        optimiser: "sgd", as the paper's on images, or "adamw", as its on text.
        decay: Of the learning rate: "cosine", or "linear".
        layers: Beginnings of the names of the parameters that are trained; empty for all. The others stay.
    """

    steps: int
    lr: float
    batch: int
    momentum: float = 0.9
    precision: str = "float32"
    batch_norm: str = "batch"
    optimiser: str = "sgd"
    decay: str = "cosine"
    layers: tuple[str, ...] = ()

    @property
    def facts(self) -> dict[str, object]:
        """What a training is named after; `layers` only where some are chosen, as names were given before it was."""
        return {key: value for key, value in asdict(self).items() if key != "layers" or value}

    def trains(self, parameter: str) -> bool:
        """Whether the parameter of this name is trained."""
        return not self.layers or any(parameter == one or parameter.startswith(f"{one}.") for one in self.layers)

    def lr_at(self, step: int) -> float:
        """Learning rate of a step; the first is 0."""
        done = step / self.steps
        return self.lr * (1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done)))

    def optimiser_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """A new one for the parameters of a network that are trained.

        Raises:
            ValueError: If there are none.
        """
        trained = [parameter for name, parameter in model.named_parameters() if self.trains(name)]
        if not trained:
            known = ", ".join(name for name, _ in model.named_children())
            raise ValueError(f"`layers` must be of {known}, or within them; got {', '.join(self.layers)}.")
        if self.optimiser == "adamw":
            return torch.optim.AdamW(trained, lr=self.lr, weight_decay=0.0)
        return torch.optim.SGD(trained, lr=self.lr, momentum=self.momentum)


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where a network runs, which changes numbers by rounding only.

    Attributes:
        device: Of torch.
        compiled: Whether `torch.compile` is used in training.
    """

    device: str = "cpu"
    compiled: bool = False


@contextmanager
def one_thread(hardware: Hardware) -> Iterator[None]:
    """On the CPU one thread of torch and of BLAS, so that numbers do not depend on how many tasks run at once."""
    if hardware.device != "cpu":
        yield
        return
    with torch_threads(1), threadpool_limits(1):
        yield


def batches_per_epoch(count: int, batch: int) -> int:
    """A last batch of one joins the one before: batch norm has no variance of a single sample."""
    return max(1, math.ceil(count / batch) - (count % batch == 1))


def batch_indices(count: int, batch: int, step: int, seed: int) -> NDArray[np.intp]:
    """Which samples a step sees: every epoch goes through all of them once, in an order of its own."""
    per_epoch = batches_per_epoch(count, batch)
    epoch, place = divmod(step, per_epoch)
    start = place * batch
    stop = count if place == per_epoch - 1 else start + batch
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
    hardware: Hardware | None = None,
    loss: Loss = cross_entropy,
    watch: Callable[[int, nn.Module], None] | None = None,
    checkpoint: Path | None = None,
) -> nn.Module:
    """Train a network in place and return it, in eval mode.

    Args:
        model: Where training starts.
        inputs: One sample per row.
        labels: Classes, shape ``(n,)``.
        recipe: How.
        seed: Of the batches and of what layers draw.
        prepare: Applied to every batch before the network, for example `projnorm.vision.ImageNetInput`.
        hardware: Where; the CPU by default.
        loss: Of network, inputs and labels.
        watch: Called after every step with the number of steps done and the network.
        checkpoint: JSON file of a checkpoint that is written every half minute and gone on from.

    Raises:
        ValueError: If there are fewer than two samples or not one label each, or the weights are no longer finite.
    """
    hardware = hardware or Hardware()
    labels = np.asarray(labels).astype(np.int64, casting="same_kind", copy=False)
    _check(inputs, labels, recipe, hardware)
    device = torch.device(hardware.device)
    placed(model, device, images=inputs.ndim == 4).train()
    if recipe.batch_norm == "frozen":
        for module in model.modules():
            if isinstance(module, _BATCH_NORMS):
                module.eval()
    optimiser = recipe.optimiser_of(model)
    learns = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns[name] and recipe.trains(name))
    first = 0 if checkpoint is None else _resume(checkpoint, model, optimiser, recipe, seed)
    called = cast("nn.Module", torch.compile(model)) if hardware.compiled else model
    mixed = torch.autocast(device.type, torch.bfloat16) if recipe.precision == "mixed" else nullcontext()
    devices = [device] if device.type == "cuda" else []
    saved = time.monotonic()
    with torch.random.fork_rng(devices=devices):
        for step in range(first, recipe.steps):
            torch.manual_seed(_step_seed(seed, step))
            chosen = batch_indices(len(labels), recipe.batch, step, seed)
            x, y = torch.from_numpy(inputs[chosen]).to(device), torch.from_numpy(labels[chosen]).to(device)
            if prepare is not None:
                x = prepare(x)
            if x.ndim == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            for group in optimiser.param_groups:
                group["lr"] = recipe.lr_at(step)
            optimiser.zero_grad()
            with mixed:
                value = loss(called, x, y)
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if watch is not None:
                watch(step + 1, model)
            if checkpoint is not None and step + 1 < recipe.steps and time.monotonic() - saved > _SAVE_SECONDS:
                _require_finite(model, step + 1, recipe)
                _save(checkpoint, model, optimiser, recipe, seed, step + 1)
                saved = time.monotonic()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns[name])
    _require_finite(model, recipe.steps, recipe)
    return model.eval()


def placed(model: nn.Module, device: torch.device, *, images: bool) -> nn.Module:
    """The network on a device; for images with channels last, which convolutions are fastest on."""
    model.to(device)
    return model.to(memory_format=torch.channels_last) if images else model  # type: ignore[call-overload]


def require_precision(precision: str, hardware: Hardware) -> None:
    """Refuse mixed precision where it was never tried.

    Raises:
        ValueError: If the device is none of CUDA's.
    """
    if precision == "mixed" and torch.device(hardware.device).type != "cuda":
        raise ValueError(f"`precision` mixed needs CUDA; the device is {hardware.device}. Use float32.")


@lru_cache(maxsize=4)
def _order(count: int, epoch: int, seed: int) -> NDArray[np.intp]:
    return np.random.default_rng((seed, epoch)).permutation(count)


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _check(inputs: NDArray[np.generic], labels: NDArray[np.int64], recipe: Recipe, hardware: Hardware) -> None:
    if len(inputs) != len(labels) or len(labels) < 2:
        raise ValueError(
            f"training needs two samples or more, one label each; got {len(inputs)} samples and {len(labels)} labels."
        )
    require_precision(recipe.precision, hardware)


def _require_finite(model: nn.Module, steps: int, recipe: Recipe) -> None:
    if not all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters()):
        raise ValueError(f"the weights are not finite after {steps} steps; lower the learning rate from {recipe.lr:g}.")


def _identity(recipe: Recipe, seed: int) -> dict[str, object]:
    return {**recipe.facts, "seed": seed}


def _save(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe, seed: int, step: int) -> None:
    tensors = dict(model.state_dict())
    for name, parameter in model.named_parameters():
        for kept, value in optimiser.state[parameter].items():
            if value is not None:
                tensors[f"{_KEPT}/{kept}/{name}"] = value
    save_checkpoint(path, tensors, {"step": step, "recipe": _identity(recipe, seed)})


def _resume(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe, seed: int) -> int:
    """Put a checkpoint of the same training into place; returns the number of steps done."""
    found = load_checkpoint(path)
    if found is None or found.facts.get("recipe") != _identity(recipe, seed):
        return 0
    kept = {name: tensor for name, tensor in found.tensors.items() if name.startswith(f"{_KEPT}/")}
    model.load_state_dict({name: tensor for name, tensor in found.tensors.items() if name not in kept})
    parameters = dict(model.named_parameters())
    for place, tensor in kept.items():
        _, what, name = place.split("/", 2)
        parameter = parameters[name]
        # Counts of steps stay on the CPU, where torch keeps them.
        device = parameter.device if tensor.ndim else torch.device("cpu")
        optimiser.state[parameter][what] = tensor.to(device).clone(memory_format=torch.preserve_format)
    return int(found.facts["step"])
