"""What a run will cost before it is begun: stages, targets, operations, bytes, and hours on devices that are not here.

Everything comes from the configuration and from two samples of zeros through the network: neither data nor weights are
read. Nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deep.config import DeepConfig, RunConfig, TextConfig
from deep.domain import domain_of
from deep.estimators.projnorm import ProjNorm
from deep.rotation import TURNS
from deep.stages import NETWORK, REFERENCE, ROTATION, stages_of
from projnorm.runs.rates import Rates, busiest
from projnorm.text import LABELS, blank_pair_classifier
from projnorm.vision import ImageNetInput, load_network
from projnorm.vision.weights import RANDOM

# Training samples as published, where a configuration asks for all.
_PUBLISHED = {
    "digits": 899,
    "cifar10": 50_000,
    "cifar100": 50_000,
    "multinli_1.0_train.jsonl": 392_702,
}
_CLASSES = {"cifar100": 100}
_IMAGE_BYTES = 32 * 32 * 3
_TOKEN_BYTES = 3 * 4
# Numbers that an optimiser keeps of a parameter.
_KEPT = {"sgd": 1, "adamw": 2}
_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """What a network costs.

    Attributes:
        parameters: Of the network.
        state_bytes: Of a checkpoint.
        forward: Floating-point operations of a forward pass, a sample.
        training: Of a forward and backward pass, a sample.
        activations: Bytes that a forward pass keeps for the backward pass, a sample.
    """

    parameters: int
    state_bytes: int
    forward: int
    training: int
    activations: int


@dataclass(frozen=True, slots=True)
class Job:
    """One thing that a worker does.

    Attributes:
        name: What.
        trained: Samples through forward and backward passes, each as often as it is seen.
        passed: Samples through forward passes.
        flops: Floating-point operations.
        moved: Bytes sent to it and back: samples, networks, outputs.
    """

    name: str
    trained: int
    passed: int
    flops: int
    moved: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run on paper.

    Attributes:
        network: What its network costs.
        stages: Trained first, beside each other.
        between: One after the other, before any target.
        tasks: One or two a target, independent of each other.
        targets: How many.
        n_train: Training samples.
        checkpoint_bytes: All stages on disk.
        device_bytes: Weights, gradients, optimiser and activations of a batch, the most that a job takes.
        data_bytes: All samples, as every worker holds them.
        notes: What was taken for granted.
    """

    network: NetworkCost
    stages: tuple[Job, ...]
    between: tuple[Job, ...]
    tasks: tuple[Job, ...]
    targets: int
    n_train: int
    checkpoint_bytes: int
    device_bytes: int
    data_bytes: int
    notes: tuple[str, ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All of them."""
        return self.stages + self.between + self.tasks

    @property
    def flops(self) -> int:
        """Of all jobs."""
        return sum(job.flops for job in self.jobs)

    @property
    def moved(self) -> int:
        """Bytes of all jobs."""
        return sum(job.moved for job in self.jobs)

    def hours(self, devices: int, rates: Rates) -> float:
        """Stages, what lies between, and targets one after the other; of each the busiest device; then the link."""
        flops = busiest((job.flops for job in self.stages), devices)
        flops += sum(job.flops for job in self.between)
        flops += busiest((job.flops for job in self.tasks), devices)
        return rates.hours(flops, self.moved)


def plan_run(config: RunConfig) -> RunPlan:
    """What a run of this configuration costs.

    Raises:
        ValueError: If the number of training samples is not known without the data, or the network is not.
    """
    text = isinstance(config, TextConfig)
    domain, notes = domain_of(config), list(_notes(config))
    n_train = _n_train(config, notes)
    model, x, sample = _blank_text(config) if isinstance(config, TextConfig) else _blank_images(config)
    recipe = domain.projnorm()
    network = network_cost(model, x)
    retrained = network_cost(model, x, trains=recipe.trains) if recipe.layers else network
    joint = isinstance(config, DeepConfig) and config.rotation == "joint"
    samples = min(config.projnorm_samples or config.m, n_train) if config.reference_samples == "m" else n_train
    stages = []
    for name in stages_of(config):
        if name == REFERENCE:
            trained, cost, seen = recipe.steps * recipe.batch, retrained.training, samples
        else:
            trained, cost, seen = config.epochs * n_train * (1 + (joint and name == NETWORK)), network.training, n_train
        stages.append(Job(name, trained, 0, trained * cost, seen * sample + 2 * network.state_bytes))
    between = [_forward_job("validation outputs", network, config.n_validation, sample)]
    if isinstance(config, DeepConfig) and "Rotation" in config.methods and not joint:
        between.append(_forward_job(ROTATION, network, TURNS * min(config.rotation_samples, n_train), sample))
    targets = _target_count(config)
    tasks = []
    if others := [method for method in config.methods if method != ProjNorm.name]:
        passes = 1 + ("AgreeScore" in others) + (TURNS - 1) * ("Rotation" in others)
        flops, networks = passes * config.m * network.forward, 1 + ("AgreeScore" in others)
        moved = config.m * sample + networks * network.state_bytes
        tasks += [Job(f"outputs of target {i + 1}", 0, passes * config.m, flops, moved) for i in range(targets)]
    if ProjNorm.name in config.methods:
        trained = recipe.steps * recipe.batch
        moved = (config.projnorm_samples or config.m) * sample + 2 * network.state_bytes
        tasks += [
            Job(f"ProjNorm on target {i + 1}", trained, 0, trained * retrained.training, moved) for i in range(targets)
        ]
    kept = _KEPT[recipe.optimiser] + 2  # weights and gradients besides
    batch = max(config.batch * (1 + joint), config.projnorm_batch)
    return RunPlan(
        network,
        tuple(stages),
        tuple(between),
        tuple(tasks),
        targets,
        n_train,
        len(stages) * network.state_bytes,
        kept * network.state_bytes + batch * network.activations,
        (n_train + config.n_validation + targets * config.m) * sample,
        (*notes, *(("pairs are counted at full `length`",) if text else ())),
    )


def network_cost(model: nn.Module, x: Tensor, *, trains: Callable[[str], bool] = lambda _: True) -> NetworkCost:
    """Count one batch through a network, in training mode.

    Args:
        model: Its mode and what is trained are set.
        x: A batch of two samples or more, for batch norm.
        trains: Whether the parameter of this name is trained; a backward pass goes no further down than it must.
    """
    model.train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trains(name))
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        out = model(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    model.zero_grad()
    ahead, back = (int(counter.get_total_flops()) // len(x) for counter in (forward, backward))
    return NetworkCost(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(tensor.nbytes for tensor in model.state_dict().values()),
        ahead,
        ahead + back,
        sum(kept.values()) // len(x),
    )


def _forward_job(name: str, network: NetworkCost, count: int, sample: int) -> Job:
    return Job(name, 0, count, count * network.forward, count * sample + network.state_bytes)


def _blank_images(config: RunConfig) -> tuple[nn.Module, Tensor, int]:
    """A network of random weights, two black images as it sees them, and the bytes of one as it is kept."""
    assert isinstance(config, DeepConfig)
    model = load_network(config.architecture, RANDOM, num_outputs=_CLASSES.get(config.data, 10)).model
    images = torch.zeros(_SAMPLES, 32, 32, 3, dtype=torch.uint8)
    return model, ImageNetInput(config.size)(images), _IMAGE_BYTES


def _blank_text(config: TextConfig) -> tuple[nn.Module, Tensor, int]:
    model = blank_pair_classifier(config.model, num_outputs=len(LABELS))
    return model, torch.ones(_SAMPLES, 3, config.length, dtype=torch.int32), _TOKEN_BYTES * config.length


def _n_train(config: RunConfig, notes: list[str]) -> int:
    if config.n_train:
        return config.n_train
    if config.data not in _PUBLISHED:
        raise ValueError(f"`n_train` must be given to plan a run on {config.data!r}, whose size is not known unread.")
    whole = _PUBLISHED[config.data]
    notes.append(f"all of {config.data} is {whole:,} samples as published, {config.n_validation:,} of them held out")
    if whole - config.n_validation < _SAMPLES:
        raise ValueError(
            f"`n_validation` must leave samples of the {whole:,} to train on; got {config.n_validation:,}."
        )
    return whole - config.n_validation


def _target_count(config: RunConfig) -> int:
    shifts = len(config.families) * len(config.severities) if isinstance(config, DeepConfig) else 0
    return 1 + shifts + len(config.targets)


def _notes(config: RunConfig) -> tuple[str, ...]:
    if isinstance(config, TextConfig):
        parts = ("parts of sets are not counted: how many there are depends on the data",) if config.subsets else ()
        return (*parts, f"every target is taken to have m = {config.m:,} pairs; some published sets have fewer")
    return ("images are taken to be 32 px and RGB before they are resized",)
