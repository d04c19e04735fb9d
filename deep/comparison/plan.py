r"""The plan of a comparison: trainings, steps, samples, multiply-adds and bytes, before anything is computed.

Everything is counted from the configuration and from two samples of zeros through the network: neither data nor weights
are read. With :math:`f` multiply-adds of a forward pass and :math:`b` of a backward pass, both of one sample, a
training on :math:`s` samples, each counted as often as it is seen, takes

.. math:: s (f + b)

multiply-adds, and outputs of `s` samples take :math:`s f`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deep.comparison.config import MATCHED, PROJNORM_METHODS, DeepConfig, RunConfig, TextConfig, references_of
from deep.comparison.stages import (
    REFERENCE,
    ROTATION,
    STAGE_NAMES,
    is_joint,
    projnorm_samples,
    reference_samples,
    stages_of,
)
from deep.training.loop import require_layers
from deep.training.rotation import TURNS
from projnorm.core.errors import InputError
from projnorm.core.experiments import RunPlan
from projnorm.core.records import RunContext
from projnorm.data.image_settings import RANDOM
from projnorm.data.images import ImageNetInput
from projnorm.data.nli import LABELS
from projnorm.models.recipe import Recipe
from projnorm.models.text_networks import blank_pair_classifier
from projnorm.models.weights import load_network

# Training samples as published, where a configuration asks for all.
_PUBLISHED = {"digits": 899, "cifar10": 50_000, "cifar100": 50_000, "multinli_1.0_train.jsonl": 392_702}
_CLASSES = {"cifar100": 100}
_IMAGE_BYTES = 32 * 32 * 3
_TOKEN_BYTES = 3 * 4
# Numbers that an optimiser holds for each parameter.
_OPTIMISER_STATE = {"sgd": 1, "adamw": 2}


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """Size of a network, and the cost of one sample in it.

    Attributes:
        parameters: Number of parameters.
        state_bytes: Bytes of weights and buffers.
        forward: Multiply-adds of a forward pass.
        training: Multiply-adds of a forward and a backward pass.
        activations: Bytes that a forward pass holds for the backward pass.
    """

    parameters: int
    state_bytes: int
    forward: int
    training: int
    activations: int


@dataclass(frozen=True, slots=True)
class _WorkItem:
    """One kind of work, done `times` times: the steps, samples and multiply-adds of all these times together."""

    name: str
    times: int
    steps: int
    trained: int
    passed: int
    multiply_adds: int

    def row(self) -> dict[str, str | int | float]:
        return {
            "part": self.name,
            "times": self.times,
            "steps": self.steps,
            "samples trained on": self.trained,
            "samples through the network": self.passed,
            "multiply-adds": float(self.multiply_adds),
        }


def plan_run(config: RunConfig, context: RunContext | None = None) -> RunPlan:  # noqa: ARG001 (all plans take it)
    """The plan of `deep.run_comparison`.

    Args:
        config: The comparison.
        context: Not used: the plan does not depend on where a run computes.

    Raises:
        InputError: If the number of training samples is not known without the data, or the network is not.

    Examples:
        >>> from deep.comparison.presets import preset
        >>> plan = plan_run(preset("digits"))
        >>> plan.values["n"], plan.values["targets"], plan.parts[0]["part"]
        (699, 55, 'fine-tuned network')
    """
    notes = list(_notes(config))
    shifts = len(config.data.families) * len(config.data.severities) if isinstance(config, DeepConfig) else 0
    mixtures = len(config.data.shares) if isinstance(config, TextConfig) else 0
    n, targets = _training_samples(config, notes), (1 + shifts + len(config.data.targets)) * (1 + mixtures)
    model, x, sample_bytes = _blank_text(config) if isinstance(config, TextConfig) else _blank_images(config)
    projnorm = config.projnorm
    require_layers(projnorm, model, "projnorm.layers")
    network = network_size(model, x)
    retrained = network_size(model, x, trains=projnorm.trains) if projnorm.layers else network
    parts = _parts(config, network, retrained, n, targets)
    held = _OPTIMISER_STATE[projnorm.optimiser] + 2  # weights and gradients besides
    batch = max(config.finetune.batch * (1 + is_joint(config)), projnorm.batch)
    device_bytes = held * network.state_bytes + batch * network.activations
    disk_bytes = len(stages_of(config)) * network.state_bytes
    data_bytes = (n + config.data.n_validation + targets * config.data.m) * sample_bytes
    total = sum(part.multiply_adds for part in parts)
    rows = (
        ("parameters", f"{network.parameters:,}"),
        ("multiply-adds of a sample", f"{network.forward:,} forward, {network.training:,} in training"),
        ("training samples", f"{n:,}"),
        ("targets", f"{targets:,} of {config.data.m:,} samples"),
        ("multiply-adds", f"{total:,.3g}"),
        ("networks on disk", f"{disk_bytes / 1e9:.3g} GB"),
        ("samples with every worker", f"{data_bytes / 1e9:.3g} GB"),
        ("on a device", f"{device_bytes / 1e9:.3g} GB: weights, gradients, optimiser and activations of a batch"),
    )
    values = {
        "network": asdict(network),
        "n": n,
        "targets": targets,
        "multiply_adds": total,
        "disk_bytes": disk_bytes,
        "device_bytes": device_bytes,
        "data_bytes": data_bytes,
    }
    return RunPlan(rows, tuple(part.row() for part in parts), tuple(notes), values)


def network_size(model: nn.Module, x: Tensor, *, trains: Callable[[str], bool] = lambda _: True) -> NetworkSize:
    """Count one batch, of two samples or more for batch norm, through a network in training mode.

    Parameters are trained where `trains` says so of their name, and a backward pass goes no further down than it must;
    the mode of the network and what requires gradients are changed.
    """
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trains(name))
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    held: dict[int, int] = {}

    def hold(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(hold, lambda t: t):
        out = model(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    model.zero_grad()
    # A multiply-add is two operations.
    ahead, back = (int(counter.get_total_flops()) // (2 * len(x)) for counter in (forward, backward))
    return NetworkSize(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(tensor.nbytes for tensor in model.state_dict().values()),
        ahead,
        ahead + back,
        sum(held.values()) // len(x),
    )


def _parts(config: RunConfig, network: NetworkSize, retrained: NetworkSize, n: int, targets: int) -> list[_WorkItem]:
    """The parts of the work: trainings, what is computed once, and what is computed on every target."""
    projnorm = config.projnorm

    def training(
        name: str, size: NetworkSize, recipe: Recipe, samples: int, *, times: int = 1, views: int = 1
    ) -> _WorkItem:
        steps = recipe.count_steps(samples)
        trained = times * views * (recipe.steps * recipe.batch if recipe.steps else recipe.epochs * samples)
        return _WorkItem(name, times, times * steps, trained, 0, trained * size.training)

    def passing(name: str, samples: int, *, times: int = 1) -> _WorkItem:
        return _WorkItem(name, times, 0, 0, times * samples, times * samples * network.forward)

    parts = []
    for stage in stages_of(config):
        if stage == REFERENCE:
            parts.append(training(STAGE_NAMES[stage], retrained, projnorm, reference_samples(config, n)))
        else:  # trained on rotations too, it sees every image twice
            views = 1 + is_joint(config, stage)
            parts.append(training(STAGE_NAMES[stage], network, config.finetune, n, views=views))
    parts.append(passing("validation outputs", config.data.n_validation))
    if isinstance(config, DeepConfig) and "Rotation" in config.methods and not is_joint(config):
        parts.append(passing(STAGE_NAMES[ROTATION], TURNS * min(config.rotation.samples, n)))
    if set(config.methods) - set(PROJNORM_METHODS):
        passes = 1 + ("AgreeScore" in config.methods) + (TURNS - 1) * ("Rotation" in config.methods)
        parts.append(passing("outputs of targets", passes * config.data.m, times=targets))
    if references := references_of(config):
        times = targets * (1 + (MATCHED in references.values()))
        parts.append(training("ProjNorm on targets", retrained, projnorm, projnorm_samples(config), times=times))
    return parts


def _blank_images(config: DeepConfig) -> tuple[nn.Module, Tensor, int]:
    """A network of random weights, two black images as it sees them, and the bytes of one as it is stored."""
    model = load_network(config.network.architecture, RANDOM, num_outputs=_CLASSES.get(config.data.data, 10)).model
    images = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
    return model, ImageNetInput(config.network.size)(images), _IMAGE_BYTES


def _blank_text(config: TextConfig) -> tuple[nn.Module, Tensor, int]:
    model, length = blank_pair_classifier(config.network.model, num_outputs=len(LABELS)), config.network.length
    return model, torch.ones(2, 3, length, dtype=torch.int32), _TOKEN_BYTES * length


def _training_samples(config: RunConfig, notes: list[str]) -> int:
    data = config.data
    if data.n:
        return data.n
    if data.data not in _PUBLISHED:
        raise InputError(f"`n` must be given to plan a run on {data.data!r}, whose size is not known unread.")
    whole = _PUBLISHED[data.data]
    notes.append(f"all of {data.data} is {whole:,} samples as published, {data.n_validation:,} of them held out")
    if whole - data.n_validation < 2:
        raise InputError(f"`n_validation` must leave samples of the {whole:,} to train on; got {data.n_validation:,}.")
    return whole - data.n_validation


def _notes(config: RunConfig) -> Iterator[str]:
    if not isinstance(config, TextConfig):
        yield "images are taken to be 32 px and RGB before they are resized"
        return
    if config.data.subsets:
        yield "parts of sets are not counted: how many there are depends on the data"
    yield f"every target is taken to have m = {config.data.m:,} pairs; some published sets have fewer"
    yield "pairs are counted at full `length`"
