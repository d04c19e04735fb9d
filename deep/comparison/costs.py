"""What a comparison will cost before it is begun: jobs, operations, bytes, and estimated hours on several devices.

Everything comes from the configuration and from two samples of zeros through the network: neither data nor weights are
read. Nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from deep.comparison.config import MATCHED, PROJNORM_METHODS, DeepConfig, RunConfig, TextConfig, references_of
from deep.comparison.trained_networks import (
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
from projnorm.core.costs import CostAssumptions, CostReport, Job, device_cost, job_rows
from projnorm.core.errors import InputError
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
_TRAINED, _PASSED = "trained on", "through the network"


@dataclass(frozen=True, slots=True)
class NetworkCost:
    """What one sample costs in a network, and how large the network is.

    `forward` and `training`, which is forward and backward, are floating-point operations; `state_bytes` is the size of
    weights and buffers, and `activations` the bytes that a forward pass holds for the backward pass.
    """

    parameters: int
    state_bytes: int
    forward: int
    training: int
    activations: int


def run_costs(
    config: RunConfig,
    context: RunContext | None = None,  # noqa: ARG001 (costs do not depend on where; every cost function takes it)
    assumptions: CostAssumptions | None = None,
) -> CostReport:
    """The cost of `deep.run_comparison`, under assumed rates of the devices.

    Raises:
        InputError: If the number of training samples is not known without the data, or the network is not.
    """
    assumptions, notes = assumptions or CostAssumptions(), list(_notes(config))
    shifts = len(config.data.families) * len(config.data.severities) if isinstance(config, DeepConfig) else 0
    mixtures = len(config.data.shares) if isinstance(config, TextConfig) else 0
    n, targets = _training_samples(config, notes), (1 + shifts + len(config.data.targets)) * (1 + mixtures)
    model, x, sample_bytes = _blank_text(config) if isinstance(config, TextConfig) else _blank_images(config)
    projnorm = config.projnorm
    require_layers(projnorm, model, "projnorm.layers")
    network = network_cost(model, x)
    retrained = network_cost(model, x, trains=projnorm.trains) if projnorm.layers else network
    phases = _phases(config, network, retrained, n, targets)
    held = _OPTIMISER_STATE[projnorm.optimiser] + 2  # weights and gradients besides
    batch = max(config.finetune.batch * (1 + is_joint(config)), projnorm.batch)
    device_bytes = held * network.state_bytes + batch * network.activations
    disk, data = len(phases[0]) * network.state_bytes, (n + config.data.n_validation + targets * config.data.m)
    per_sample = f"{network.forward / 1e9:.3g} GFLOP forward and {network.training / 1e9:.3g} in training"
    summary = (
        f"{network.parameters:,} parameters; a sample costs {per_sample}",
        f"{n:,} training samples, {targets} targets; {disk / 1e9:.3g} GB on disk",
        f"about {device_bytes / 1e9:.3g} GB on a device: weights, gradients, optimiser, activations of a batch",
        f"{data * sample_bytes / 1e9:.3g} GB of samples with every worker",
    )
    values = {
        "network": asdict(network),
        "n": n,
        "targets": targets,
        "disk_bytes": disk,
        "device_bytes": device_bytes,
        "data_bytes": data * sample_bytes,
    }
    devices = [device_cost(phases, count, assumptions, device_bytes=device_bytes) for count in assumptions.devices]
    return CostReport(job_rows(phases), summary, tuple(devices), assumptions, tuple(notes), values)


def network_cost(model: nn.Module, x: Tensor, *, trains: Callable[[str], bool] = lambda _: True) -> NetworkCost:
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
    ahead, back = (int(counter.get_total_flops()) // len(x) for counter in (forward, backward))
    return NetworkCost(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(tensor.nbytes for tensor in model.state_dict().values()),
        ahead,
        ahead + back,
        sum(held.values()) // len(x),
    )


def _phases(config: RunConfig, network: NetworkCost, retrained: NetworkCost, n: int, targets: int) -> list[list[Job]]:
    """Jobs that run beside each other, phase by phase: the trainings, what is computed once, and the targets."""
    projnorm = config.projnorm

    def training(name: str, cost: NetworkCost, recipe: Recipe, samples: int, times: int = 1) -> Job:
        trained = times * (recipe.steps * recipe.batch if recipe.steps else recipe.epochs * samples)
        return Job(name, trained * cost.training, {_TRAINED: trained})

    def passing(name: str, count: int) -> Job:
        return Job(name, count * network.forward, {_PASSED: count})

    stages = []
    for stage in stages_of(config):
        if stage == REFERENCE:
            stages.append(training(STAGE_NAMES[stage], retrained, projnorm, reference_samples(config, n)))
        else:
            stages.append(training(STAGE_NAMES[stage], network, config.finetune, n, 1 + is_joint(config, stage)))
    phases = [stages, [passing("validation outputs", config.data.n_validation)]]
    if isinstance(config, DeepConfig) and "Rotation" in config.methods and not is_joint(config):
        phases.append([passing(STAGE_NAMES[ROTATION], TURNS * min(config.rotation.samples, n))])
    on_targets = []
    if set(config.methods) - set(PROJNORM_METHODS):
        passes = 1 + ("AgreeScore" in config.methods) + (TURNS - 1) * ("Rotation" in config.methods)
        on_targets += [passing("outputs of targets", passes * config.data.m)] * targets
    if references := references_of(config):
        trainings = 1 + (MATCHED in references.values())
        job = training("ProjNorm on targets", retrained, projnorm, projnorm_samples(config), trainings)
        on_targets += [job] * targets
    return [*phases, on_targets]


def _blank_images(config: DeepConfig) -> tuple[nn.Module, Tensor, int]:
    """A network of random weights, two black images as it sees them, and the bytes of one as it is stored."""
    model = load_network(config.network.architecture, RANDOM, num_outputs=_CLASSES.get(config.data.data, 10)).model
    images = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
    return model, ImageNetInput(config.network.size)(images), _IMAGE_BYTES


def _blank_text(config: TextConfig) -> tuple[nn.Module, Tensor, int]:
    model, length = blank_pair_classifier(config.network.model, num_outputs=len(LABELS)), config.network.length
    return model, torch.ones(2, 3, length, dtype=torch.int32), _TOKEN_BYTES * length


def _training_samples(config: RunConfig, notes: list[str]) -> int:
    wanted = config.data
    if wanted.n:
        return wanted.n
    if wanted.data not in _PUBLISHED:
        raise InputError(f"`n` must be given to plan a run on {wanted.data!r}, whose size is not known unread.")
    whole = _PUBLISHED[wanted.data]
    notes.append(f"all of {wanted.data} is {whole:,} samples as published, {wanted.n_validation:,} of them held out")
    if whole - wanted.n_validation < 2:
        raise InputError(
            f"`n_validation` must leave samples of the {whole:,} to train on; got {wanted.n_validation:,}."
        )
    return whole - wanted.n_validation


def _notes(config: RunConfig) -> Iterator[str]:
    if not isinstance(config, TextConfig):
        yield "images are taken to be 32 px and RGB before they are resized"
        return
    if config.data.subsets:
        yield "parts of sets are not counted: how many there are depends on the data"
    yield f"every target is taken to have m = {config.data.m:,} pairs; some published sets have fewer"
    yield "pairs are counted at full `length`"
