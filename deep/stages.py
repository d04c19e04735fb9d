"""What a run trains before it looks at any target.

Each is kept under a name made of everything it depends on, so that runs which differ elsewhere, in the targets or in
the steps of ProjNorm, share it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

from deep.checkpoints import load_checkpoint, save_checkpoint
from deep.config import DeepConfig, RunConfig
from deep.domain import Domain, Loaded, domain_of
from deep.forward import forward_cached
from deep.outputs import Outputs
from deep.projnorm import parameters_of, train_reference
from deep.rotation import JointRotation, joint_loss, rotation_head, train_rotation_head
from deep.samples import RunData, Samples
from deep.training import Hardware, Prepare, Recipe, batches_per_epoch, cross_entropy, train
from projnorm import __version__
from projnorm.progress import Meter
from projnorm.runs import sole_writer
from projnorm.store import Store

NETWORK, SECOND, REFERENCE, ROTATION = "network", "second", "reference", "rotation"
# The second network differs from the first in its head and its batches.
_SEED_OF = {NETWORK: 0, SECOND: 1}


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a run works and on what; it travels to every worker.

    Attributes:
        config: What was asked.
        folder: Of the run; what runs share stands beside it.
        hardware: Where networks run.
        session: A name of its own: what a process remembers of a run is forgotten with the next, as files may change.
    """

    config: RunConfig
    folder: Path
    hardware: Hardware
    session: str = field(default_factory=lambda: uuid4().hex)

    @property
    def domain(self) -> Domain:
        """Of images or of text."""
        return domain_of(self.config)

    @property
    def data(self) -> RunData:
        """The samples, read once in every process."""
        return _data(self)

    @property
    def prepare(self) -> Prepare | None:
        """From a batch of inputs to what the networks see."""
        return self.domain.prepare

    @property
    def last(self) -> str:
        """Name of the last layer."""
        return self.domain.last

    @property
    def projnorm_recipe(self) -> Recipe:
        """Of the training on pseudo-labels and of the reference."""
        return self.domain.projnorm()

    @property
    def finetuning_recipe(self) -> Recipe:
        """Of the evaluated network."""
        return self.domain.finetuning(self.config.epochs * batches_per_epoch(len(self.data.train), self.config.batch))

    @property
    def reference_samples(self) -> int:
        """Training samples of a trained reference: all, or as many as of a target, if there are so many."""
        count = len(self.data.train)
        return count if self.config.reference_samples == "all" else min(self.projnorm_samples, count)

    @property
    def projnorm_samples(self) -> int:
        """Samples of a target that ProjNorm trains on."""
        return self.config.projnorm_samples or self.config.m

    def initial(self, which: str = NETWORK) -> Loaded:
        """Pretrained weights under a drawn head: theta_0."""
        return self.domain.initial(classes=self.data.classes, seed=self.config.seed + _SEED_OF[which])

    def meter(self, task: str) -> Meter:
        """Says how far a task has come; its file is named after a hash, since targets have names of the user's."""
        return Meter(self.meters / hashlib.sha256(task.encode()).hexdigest()[:16])

    @property
    def meters(self) -> Path:
        """Folder of the meters."""
        return self.folder / "progress"

    @property
    def cache(self) -> Path:
        """Folder of corrupted images."""
        return self.folder.parent / "corruptions"

    def stage(self, name: str) -> Path:
        """Checkpoint of a finished stage."""
        return self.folder.parent / "trained" / f"{name}-{_identity(self, name)}.json"

    def unfinished(self, name: str) -> Path:
        """Checkpoint of a stage that is being trained."""
        stage = self.stage(name)
        return stage.with_name(f"unfinished-{stage.name}")

    @property
    def outputs(self) -> Path:
        """Folder of the outputs of the evaluated network."""
        return self.folder.parent / "outputs" / _identity(self, NETWORK)

    @property
    def projnorms(self) -> Path:
        """Folder of the values of ProjNorm and what they are made of."""
        c = self.config
        reference = _identity(self, NETWORK if c.reference == "fine-tuned" else REFERENCE)
        depends = {
            "network": _identity(self, NETWORK),
            "reference": reference,
            "recipe": self.projnorm_recipe.facts,
            "samples": self.projnorm_samples,
            "labels": c.labels,
            "trajectory": c.trajectory,
            "seed": c.seed,
        }
        return self.folder.parent / "projnorm" / _short_hash(depends)


def has_stages(work: Workplace) -> bool:
    """Whether everything that has to be trained first is there and whole."""
    return all(load_checkpoint(work.stage(name)) is not None for name in stages_of(work.config))


def stages_of(config: RunConfig) -> tuple[str, ...]:
    """What has to be trained first, and independently of each other."""
    wanted = [NETWORK]
    if "AgreeScore" in config.methods:
        wanted.append(SECOND)
    if "ProjNorm" in config.methods and config.reference == "trained":
        wanted.append(REFERENCE)
    return tuple(wanted)


def run_stage(work: Workplace, name: str) -> None:
    """Train one stage and keep it, unless it is there."""
    stage = work.stage(name)
    if load_checkpoint(stage) is not None:
        return
    with _sole_trainer(stage):
        if load_checkpoint(stage) is not None:
            return
        tensors = _reference(work) if name == REFERENCE else _fine_tuned(work, name)
        save_checkpoint(stage, tensors, {"stage": name})
        _remove(work.unfinished(name))
    work.meter(name).close()


def forget_stages(work: Workplace) -> None:
    """Remove everything trained for this run, also where another run shares it, what the network said, and ProjNorm."""
    for name in (NETWORK, SECOND, REFERENCE, ROTATION):
        with _sole_trainer(work.stage(name)):
            _remove(work.stage(name))
            _remove(work.unfinished(name))
    for folder in (work.outputs, work.projnorms):
        shutil.rmtree(folder, ignore_errors=True)


def network_of(work: Workplace, which: str = NETWORK) -> nn.Module:
    """A fine-tuned network, from its stage."""
    model, _ = _loaded(work, which)
    return model


def outputs_of(work: Workplace, samples: Samples) -> Outputs:
    """What the evaluated network says of these samples, computed once; with the samples and their labels."""
    store, key, network = Store(work.outputs), samples.sha256[:24], network_of(work)
    outputs = forward_cached(
        store, key, network, work.last, samples.inputs, prepare=work.prepare, hardware=work.hardware
    )
    return replace(outputs, labels=samples.labels, inputs=samples.inputs, name=samples.name)


def rotation_head_of(work: Workplace) -> nn.Module:
    """The head that tells rotations apart: trained with the network, or on top of it."""
    network, head = _loaded(work, NETWORK)
    if head is not None:
        return head
    found = load_checkpoint(work.stage(ROTATION))
    if found is not None:
        head = rotation_head(found.tensors["1.weight"].shape[1])
        head.load_state_dict(found.tensors)
        return head.eval()
    c = work.config
    assert isinstance(c, DeepConfig)
    images = work.data.train.inputs[: c.rotation_samples]
    head = train_rotation_head(network, work.last, images, seed=c.seed, prepare=work.prepare, hardware=work.hardware)
    with _sole_trainer(work.stage(ROTATION)):
        save_checkpoint(work.stage(ROTATION), head.state_dict(), {"stage": ROTATION})
    return head


def reference_of(work: Workplace) -> dict[str, Tensor]:
    """Parameters that ProjNorm compares with."""
    if work.config.reference == "fine-tuned":
        return parameters_of(network_of(work))
    return _stage_tensors(work, REFERENCE)


@lru_cache(maxsize=1)
def _data(work: Workplace) -> RunData:
    return work.domain.load_data(cache=work.cache)


@lru_cache(maxsize=8)
def _identity(work: Workplace, name: str) -> str:
    """A hash of everything that the numbers of a stage depend on."""
    c, samples = work.config, work.data.train
    depends: dict[str, object] = {
        "projnorm": __version__,
        "torch": torch.__version__,
        "device": work.hardware.device,
        "network": work.domain.network,
        "sees": work.domain.sees,
        "software": work.domain.software,
        "weights": work.initial().sha256,
        "classes": work.data.classes,
        "seed": c.seed,
    }
    if name == REFERENCE:
        samples = samples.take(np.arange(work.reference_samples))
        depends["recipe"] = work.projnorm_recipe.facts
    else:
        depends |= {"recipe": work.finetuning_recipe.facts, "joint": _is_joint(work, name)}
    if name == ROTATION and isinstance(c, DeepConfig):
        depends |= {"joint": _is_joint(work, NETWORK), "rotation_samples": c.rotation_samples}
    depends["samples"] = samples.sha256
    return _short_hash(depends)


def _short_hash(depends: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:12]


def _sole_trainer(stage: Path) -> AbstractContextManager[None]:
    """Another run may want the same stage: one of them trains it, and nobody removes it meanwhile."""
    return sole_writer(stage.parent, f".{stage.stem}.lock")


def _remove(checkpoint: Path) -> None:
    for file in (checkpoint, *checkpoint.parent.glob(f"{checkpoint.stem}-*")):
        file.unlink(missing_ok=True)


@lru_cache(maxsize=2)
def _loaded(work: Workplace, which: str) -> tuple[nn.Module, nn.Module | None]:
    model = work.initial(which).model
    tensors = _stage_tensors(work, which)
    if not _is_joint(work, which):
        model.load_state_dict(tensors)
        return model.eval(), None
    joint = JointRotation(model, work.last)
    joint.load_state_dict(tensors)
    joint.eval()
    return joint.network, joint.head


def _stage_tensors(work: Workplace, name: str) -> dict[str, Tensor]:
    found = load_checkpoint(work.stage(name))
    if found is None:
        raise ValueError(f"{work.stage(name)} is not there or damaged; the command that made the run trains it again.")
    return found.tensors


def _is_joint(work: Workplace, which: str) -> bool:
    return isinstance(work.config, DeepConfig) and work.config.rotation == "joint" and which == NETWORK


def _fine_tuned(work: Workplace, which: str) -> dict[str, Tensor]:
    recipe, meter = work.finetuning_recipe, work.meter(which)
    seed = work.config.seed + _SEED_OF[which]
    model, loss, hardware = work.initial(which).model, cross_entropy, work.hardware
    if _is_joint(work, which):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, loss = JointRotation(model, work.last), joint_loss
        hardware = replace(hardware, compiled=False)
    train(
        model,
        work.data.train.inputs,
        work.data.train.labels,
        recipe,
        seed=seed,
        prepare=work.prepare,
        hardware=hardware,
        loss=loss,
        watch=lambda step, _: meter.at(step * recipe.batch),
        checkpoint=work.unfinished(which),
    )
    return model.state_dict()


def _reference(work: Workplace) -> dict[str, Tensor]:
    c, train_set, count = work.config, work.data.train, work.reference_samples
    recipe, meter = work.projnorm_recipe, work.meter(REFERENCE)
    return train_reference(
        work.initial().model,
        train_set.inputs[:count],
        train_set.labels[:count],
        recipe,
        seed=c.seed,
        prepare=work.prepare,
        hardware=work.hardware,
        watch=lambda step, _: meter.at(step * recipe.batch),
        checkpoint=work.unfinished(REFERENCE),
    )
