"""What a run trains before it looks at any target.

Each network is stored under a name made of everything it depends on, so that runs which differ elsewhere, in the
targets or in the steps of ProjNorm, share it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from deep.comparison.config import FINE_TUNED, PROJNORM, REFERENCES, TRAINED, DeepConfig, RunConfig
from deep.comparison.modality import Loaded, domain_of, load_data
from deep.comparison.run_data import RunData, Samples
from deep.comparison.runs import Run
from deep.training.loop import Checkpoint, cross_entropy, require_layers, to_arrays, to_tensors, train
from deep.training.projnorm import parameters_of
from deep.training.rotation import JointRotation, joint_loss, rotation_head, train_rotation_head
from projnorm import __version__
from projnorm.core.device import choose_device, on_device
from projnorm.core.errors import InputError
from projnorm.core.progress import Meter
from projnorm.core.records import RunContext
from projnorm.core.store import Entry, Store, digest
from projnorm.models.forward import forward
from projnorm.models.recipe import Recipe
from projnorm.outputs.outputs import Outputs

NETWORK, SECOND, REFERENCE, ROTATION = "network", "second", "reference", "rotation"
# Names of the stages in messages and tables.
STAGE_NAMES = {
    NETWORK: "fine-tuned network",
    SECOND: "second network",
    REFERENCE: "reference of ProjNorm",
    ROTATION: "rotation head",
}
# What is added to the seed: the second network differs from the first in its head and its batches.
_SEED_OF = {NETWORK: 0, SECOND: 1}
_SHORT = 24


def for_workers(context: RunContext) -> RunContext:
    """The context as it travels to workers: device chosen, folder absolute, no more processes than it can use."""
    device = str(choose_device(context.device))
    return replace(context, root=context.root.absolute(), device=device, backend=on_device(context.backend, device))


@lru_cache(maxsize=2)
def data_of(run: Run) -> RunData:
    """The samples of a run, read once in every process."""
    return load_data(run.config, run.context.store("corruptions").folder)


def initial_of(run: Run, which: str = NETWORK) -> Loaded:
    """Pretrained weights under a drawn head: theta_0."""
    return domain_of(run.config).initial(data_of(run).classes, run.config.seed + _SEED_OF[which])


def forward_of(run: Run, model: nn.Module, inputs: np.ndarray) -> Outputs:
    """What a network of the run says of inputs."""
    domain = domain_of(run.config)
    return forward(model, domain.last, inputs, prepare=domain.prepare, device=run.context.device)


def require_network(config: RunConfig) -> None:
    """Refuse weights that are not there and layers that the network does not have, before any data is read."""
    if isinstance(config, DeepConfig) or config.finetune.layers or config.projnorm.layers:
        model = domain_of(config).initial(2, 0).model
        require_layers(config.finetune, model, "finetune.layers")
        require_layers(config.projnorm, model, "projnorm.layers")


def projnorm_samples(config: RunConfig) -> int:
    """Number of samples of a target that ProjNorm trains on."""
    return config.projnorm.samples or config.data.m


def reference_samples(config: RunConfig, count: int) -> int:
    """How many of the `count` training samples a trained reference sees: all, or as many as ProjNorm of a target."""
    return count if config.projnorm.reference_samples == "all" else min(projnorm_samples(config), count)


def is_joint(config: RunConfig, stage: str = NETWORK) -> bool:
    """Whether a stage learns rotations beside its classes."""
    return isinstance(config, DeepConfig) and config.rotation.head == "joint" and stage == NETWORK


def meter_of(run: Run, task: str) -> Meter:
    """Reports how far a task has come; its file is named after a hash, since targets have names of the user's."""
    return Meter(run.folder / "progress" / hashlib.sha256(task.encode()).hexdigest()[:16])


def stages_of(config: RunConfig) -> tuple[str, ...]:
    """Names of the stages, which are trained first and independently of each other."""
    wanted = [NETWORK]
    if "AgreeScore" in config.methods:
        wanted.append(SECOND)
    if PROJNORM in config.methods and config.projnorm.reference == TRAINED:
        wanted.append(REFERENCE)
    return tuple(wanted)


def stage_samples(run: Run, stage: str) -> int:
    """Number of samples that pass through the training of a stage, each as often as it is seen."""
    config, count = run.config, len(data_of(run).train)
    if stage == REFERENCE:
        return config.projnorm.count_steps(reference_samples(config, count)) * config.projnorm.batch
    return config.finetune.count_steps(count) * config.finetune.batch


def stage_key(run: Run, name: str) -> str:
    """Key of a stage in the store of trained networks."""
    return f"{name}-{_identity(run, name)}"


def has_stages(run: Run) -> bool:
    """Whether everything that has to be trained first is there and whole."""
    return all(_trained(run).get(stage_key(run, name)) is not None for name in stages_of(run.config))


def run_stage(run: Run, name: str) -> None:
    """Train one stage and store it, unless it is there; another run that wants it meanwhile waits."""
    store, key = _trained(run), stage_key(run, name)
    if store.get(key) is not None:
        return
    with store.lock(key):
        if store.get(key) is None:
            _put(store, key, _train_stage(run, name))
            store.remove(_unfinished(key))
    meter_of(run, name).close()


def network_hash(run: Run) -> str:
    """SHA-256 of the weights of the evaluated network."""
    return str(_stored(run, NETWORK).facts["sha256"])


def forget_stages(run: Run) -> None:
    """Remove everything trained for this run, also where another run shares it, what the network said, and ProjNorm."""
    store = _trained(run)
    for name in STAGE_NAMES:
        key = stage_key(run, name)
        store.remove(key)
        store.remove(_unfinished(key))
    distances = [("projnorm", projnorm_identity(run, kind)) for kind in REFERENCES]
    for name, prefix in [("outputs", _identity(run, NETWORK)), *distances]:
        for key in run.context.store(name).keys(f"{prefix}/"):
            run.context.store(name).remove(key)


def network_of(run: Run, which: str = NETWORK) -> nn.Module:
    """A fine-tuned network, from its stage."""
    return _loaded(run, which)[0]


def outputs_of(run: Run, samples: Samples) -> Outputs:
    """What the evaluated network says of these samples, with their inputs and labels; computed once."""
    key = f"{_identity(run, NETWORK)}/{samples.sha256[:_SHORT]}"

    def compute() -> Entry:
        outputs = forward_of(run, network_of(run), samples.inputs)
        return Entry({"logits": outputs.logits, "features": outputs.known_features})

    arrays = run.context.store("outputs").get_or_compute(key, compute).arrays
    return Outputs(arrays["logits"], arrays["features"], samples.labels, (), samples.inputs, samples.name)


def rotation_head_of(run: Run) -> nn.Module:
    """The head that tells rotations apart: trained with the network, or on top of it."""
    network, head = _loaded(run, NETWORK)
    if head is not None:
        return head
    config, domain = run.config, domain_of(run.config)
    assert isinstance(config, DeepConfig)
    store, key = _trained(run), stage_key(run, ROTATION)
    entry = store.get(key)
    if entry is None:
        images, device = data_of(run).train.inputs[: config.rotation.samples], run.context.device
        head = train_rotation_head(network, domain.last, images, config.seed, domain.prepare, device)
        _put(store, key, head.state_dict())
        return head
    head = rotation_head(entry.arrays["1.weight"].shape[1])
    head.load_state_dict(to_tensors(entry.arrays))
    return head.eval()


@lru_cache(maxsize=4)
def reference_of(run: Run, kind: str) -> dict[str, Tensor]:
    """Parameters that ProjNorm compares with on every target: a trained reference, or the fine-tuned network."""
    if kind == FINE_TUNED:
        return parameters_of(network_of(run))
    return to_tensors(_stored(run, REFERENCE).arrays)


@lru_cache(maxsize=16)
def projnorm_identity(run: Run, kind: str) -> str:
    """A hash of everything that distances from a reference of this kind depend on besides the target."""
    projnorm = run.config.projnorm
    references = {TRAINED: REFERENCE, FINE_TUNED: NETWORK}
    depends = {
        "network": _identity(run, NETWORK),
        # A matched one is drawn from the samples that the network was trained on.
        "reference": _identity(run, references[kind]) if kind in references else kind,
        "recipe": projnorm.identity,
        "samples": projnorm_samples(run.config),
        "labels": projnorm.labels,
        "trajectory": projnorm.trajectory,
        "seed": run.config.seed,
    }
    return digest(depends)


@lru_cache(maxsize=16)
def _identity(run: Run, name: str) -> str:
    """A hash of everything that the numbers of a stage depend on."""
    config, domain, samples = run.config, domain_of(run.config), data_of(run).train
    depends: dict[str, object] = {
        "projnorm": __version__,
        "torch": torch.__version__,
        "device": run.context.device,
        "network": domain.network,
        "sees": domain.sees,
        "software": domain.software,
        "weights": initial_of(run).sha256,
        "classes": data_of(run).classes,
        "seed": config.seed,
    }
    if name == REFERENCE:
        samples = samples.take(np.arange(reference_samples(config, len(samples))))
        depends["recipe"] = config.projnorm.identity
    else:
        depends |= {"recipe": config.finetune.identity, "joint": is_joint(config, name)}
    if name == ROTATION and isinstance(config, DeepConfig):
        depends |= {"joint": is_joint(config), "rotation_samples": config.rotation.samples}
    depends["samples"] = samples.sha256
    return digest(depends)


def _trained(run: Run) -> Store:
    return run.context.store("trained")


def _unfinished(key: str) -> str:
    return f"unfinished-{key}"


def _put(store: Store, key: str, tensors: dict[str, Tensor]) -> None:
    arrays = to_arrays(tensors)
    sha256 = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha256.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    store.put(key, arrays, {"sha256": sha256.hexdigest()}, compress=False)


def _stored(run: Run, name: str) -> Entry:
    """A trained stage as it is stored; an `InputError` where it is missing or damaged."""
    key = stage_key(run, name)
    if (entry := _trained(run).get(key)) is None:
        path = _trained(run).path(key)
        raise InputError(f"{path} is missing or damaged; run {run.name} again to train it.")
    return entry


@lru_cache(maxsize=2)
def _loaded(run: Run, which: str) -> tuple[nn.Module, nn.Module | None]:
    model, tensors = initial_of(run, which).model, to_tensors(_stored(run, which).arrays)
    if not is_joint(run.config, which):
        model.load_state_dict(tensors)
        return model.eval(), None
    joint = JointRotation(model, domain_of(run.config).last)
    joint.load_state_dict(tensors)
    joint.eval()
    return joint.network, joint.head


def _train_stage(run: Run, stage: str) -> dict[str, Tensor]:
    """The state of a fine-tuned network, or the parameters of the reference, which sees as few samples as a target."""
    config, domain, samples = run.config, domain_of(run.config), data_of(run).train
    is_reference = stage == REFERENCE
    which, count = (NETWORK, reference_samples(config, len(samples))) if is_reference else (stage, len(samples))
    recipe: Recipe = config.projnorm if is_reference else config.finetune
    model, loss, seed = initial_of(run, which).model, cross_entropy, config.seed + _SEED_OF[which]
    if is_joint(config, stage):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, loss = JointRotation(model, domain.last), joint_loss
        layers = (*(f"network.{layer}" for layer in recipe.layers), "head") if recipe.layers else ()
        recipe = replace(recipe, compiled=False, layers=layers)
    meter = meter_of(run, stage)
    train(
        model,
        samples.inputs[:count],
        samples.labels[:count],
        recipe,
        seed=seed,
        prepare=domain.prepare,
        device=run.context.device,
        loss=loss,
        watch=lambda step, _: meter.at(step * recipe.batch),
        checkpoint=Checkpoint(_trained(run), _unfinished(stage_key(run, stage))),
    )
    return parameters_of(model) if is_reference else model.state_dict()
