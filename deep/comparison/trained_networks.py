"""The networks of a run: trained before it looks at any target, stored, and asked for their outputs.

Each network is stored under a name made of everything it depends on, so that runs which differ elsewhere, in the
targets or in the steps of ProjNorm, share it.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from deep.comparison.config import FINE_TUNED, REFERENCES, TRAINED, DeepConfig, RunConfig
from deep.comparison.modality import Loaded, load_data, modality_of
from deep.comparison.run_data import RunData, Samples
from deep.comparison.runs import Run
from deep.comparison.stages import (
    NETWORK,
    REFERENCE,
    ROTATION,
    SECOND,
    STAGE_NAMES,
    is_joint,
    projnorm_samples,
    reference_samples,
    stages_of,
)
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

# What is added to the seed: the second network differs from the first in its head and its batches.
_SEED_OF = {NETWORK: 0, SECOND: 1}
_SHORT = 24


class TrainedNetworks:
    """The data of a run, the networks that it trains, and what they say of samples.

    Attributes:
        run: The run.
        config: Its configuration.
        modality: Its networks before training, and what they see.
        device: Device that networks run on.
    """

    def __init__(self, run: Run) -> None:
        """Keep the run; networks are read or trained at their first use."""
        self.run, self.config, self.device = run, run.config, run.context.device
        self.modality = modality_of(run.config)
        self._store, self._outputs = run.context.store("trained"), run.context.store("outputs")
        self._identities: dict[str, str] = {}
        self._loaded: dict[str, tuple[nn.Module, nn.Module | None]] = {}
        self._references: dict[str, dict[str, Tensor]] = {}

    @property
    def data(self) -> RunData:
        """The samples of the run, read once in every process."""
        return _data_of(self.run)

    def initial(self, which: str = NETWORK) -> Loaded:
        """Pretrained weights under a drawn head: theta_0, a new copy each time."""
        return self.modality.initial(self.data.classes, self.config.seed + _SEED_OF[which])

    def forward(self, model: nn.Module, inputs: np.ndarray) -> Outputs:
        """What a network of the run says of inputs."""
        return forward(model, self.modality.last, inputs, prepare=self.modality.prepare, device=self.device)

    def meter(self, task: str, *, samples: int) -> Meter:
        """Reports how far a training has come, whose steps see this number of samples each.

        Its file is named after a hash, since targets have names of the user's.
        """
        return Meter(self.run.folder / "progress" / hashlib.sha256(task.encode()).hexdigest()[:16], units=samples)

    def stage_key(self, stage: str) -> str:
        """Key of a stage in the store of trained networks."""
        return f"{stage}-{self.identity(stage)}"

    def has_stages(self) -> bool:
        """Whether everything that has to be trained first is there and whole."""
        return all(self._store.get(self.stage_key(stage)) is not None for stage in stages_of(self.config))

    def train_stage(self, stage: str) -> None:
        """Train one stage and store it, unless it is there; another run that needs it meanwhile waits."""
        key = self.stage_key(stage)
        if self._store.get(key) is not None:
            return
        with self._store.lock(key):
            if self._store.get(key) is None:
                _put(self._store, key, self._trained(stage))
                self._store.remove(_unfinished(key))
        self.meter(stage, samples=0).close()

    def network_hash(self) -> str:
        """SHA-256 of the weights of the evaluated network."""
        return str(self._stored(NETWORK).facts["sha256"])

    def forget(self) -> None:
        """Remove everything trained for this run, also where another run shares it, its outputs, and ProjNorm."""
        for stage in STAGE_NAMES:
            key = self.stage_key(stage)
            self._store.remove(key)
            self._store.remove(_unfinished(key))
        distances = [("projnorm", self.projnorm_identity(kind)) for kind in REFERENCES]
        for name, prefix in [("outputs", self.identity(NETWORK)), *distances]:
            for key in self.run.context.store(name).keys(f"{prefix}/"):
                self.run.context.store(name).remove(key)
        for memory in (self._loaded, self._references):
            memory.clear()

    def network(self, which: str = NETWORK) -> nn.Module:
        """A fine-tuned network, from its stage."""
        return self._network_and_head(which)[0]

    def outputs(self, samples: Samples) -> Outputs:
        """What the evaluated network says of these samples, with their inputs and labels; computed once."""
        key, store = f"{self.identity(NETWORK)}/{samples.sha256[:_SHORT]}", self._outputs
        entry = store.get(key)
        if entry is None:
            with store.lock(key):
                entry = store.get(key)
                if entry is None:
                    computed = self.forward(self.network(), samples.inputs)
                    entry = store.put(key, {"logits": computed.logits, "features": computed.known_features})
        arrays = entry.arrays
        return Outputs(arrays["logits"], arrays["features"], samples.labels, (), samples.inputs, samples.name)

    def rotation_head(self) -> nn.Module:
        """The head that tells rotations apart: trained with the network, or on top of it."""
        network, head = self._network_and_head(NETWORK)
        if head is not None:
            return head
        config = cast("DeepConfig", self.config)
        key = self.stage_key(ROTATION)
        entry = self._store.get(key)
        if entry is None:
            images = self.data.train.inputs[: config.rotation.samples]
            last, prepare = self.modality.last, self.modality.prepare
            head = train_rotation_head(network, last, images, config.seed, prepare, self.device)
            _put(self._store, key, head.state_dict())
            return head
        head = rotation_head(entry.arrays["1.weight"].shape[1])
        head.load_state_dict(to_tensors(entry.arrays))
        return head.eval()

    def reference(self, kind: str) -> dict[str, Tensor]:
        """Parameters that ProjNorm compares with on every target: a trained reference, or the fine-tuned network."""
        if kind not in self._references:
            is_network = kind == FINE_TUNED
            self._references[kind] = (
                parameters_of(self.network()) if is_network else to_tensors(self._stored(REFERENCE).arrays)
            )
        return self._references[kind]

    def projnorm_identity(self, kind: str) -> str:
        """A hash of everything that distances from a reference of this kind depend on besides the target."""
        name = f"projnorm from {kind}"
        if name not in self._identities:
            projnorm, references = self.config.projnorm, {TRAINED: REFERENCE, FINE_TUNED: NETWORK}
            depends = {
                "network": self.identity(NETWORK),
                # A matched one is drawn from the samples that the network was trained on.
                "reference": self.identity(references[kind]) if kind in references else kind,
                "recipe": projnorm.identity,
                "samples": projnorm_samples(self.config),
                "labels": projnorm.labels,
                "trajectory": projnorm.trajectory,
                "seed": self.config.seed,
            }
            self._identities[name] = digest(depends)
        return self._identities[name]

    def identity(self, stage: str) -> str:
        """A hash of everything that the numbers of a stage depend on."""
        if stage not in self._identities:
            self._identities[stage] = digest(self._common | self._particular(stage))
        return self._identities[stage]

    @cached_property
    def _common(self) -> dict[str, object]:
        """What the numbers of every stage depend on."""
        return {
            "projnorm": __version__,
            "torch": torch.__version__,
            "device": self.device,
            "network": self.modality.network,
            "sees": self.modality.sees,
            "software": self.modality.software,
            "weights": self.initial().sha256,
            "classes": self.data.classes,
            "seed": self.config.seed,
        }

    def _particular(self, stage: str) -> dict[str, object]:
        """What the numbers of this stage depend on besides."""
        config, samples = self.config, self.data.train
        depends: dict[str, object] = {"recipe": config.finetune.identity, "joint": is_joint(config, stage)}
        if stage == REFERENCE:
            samples = samples.take(np.arange(reference_samples(config, len(samples))))
            depends = {"recipe": config.projnorm.identity}
        elif stage == ROTATION and isinstance(config, DeepConfig):
            depends |= {"joint": is_joint(config), "rotation_samples": config.rotation.samples}
        return depends | {"samples": samples.sha256}

    def _stored(self, stage: str) -> Entry:
        """A trained stage as it is stored; an `InputError` where it is missing or damaged."""
        key = self.stage_key(stage)
        if (entry := self._store.get(key)) is None:
            raise InputError(f"{self._store.path(key)} is missing or damaged; run {self.run.name} again to train it.")
        return entry

    def _network_and_head(self, which: str) -> tuple[nn.Module, nn.Module | None]:
        """A fine-tuned network, and its rotation head where both were trained together; loaded once."""
        if which not in self._loaded:
            model, tensors = self.initial(which).model, to_tensors(self._stored(which).arrays)
            if is_joint(self.config, which):
                joint = JointRotation(model, self.modality.last)
                joint.load_state_dict(tensors)
                joint.eval()
                self._loaded[which] = joint.network, joint.head
            else:
                model.load_state_dict(tensors)
                self._loaded[which] = model.eval(), None
        return self._loaded[which]

    def _trained(self, stage: str) -> dict[str, Tensor]:
        """The state of a fine-tuned network, or the parameters of the reference, which sees fewer samples."""
        config, samples, is_reference = self.config, self.data.train, stage == REFERENCE
        which, count = (NETWORK, reference_samples(config, len(samples))) if is_reference else (stage, len(samples))
        recipe: Recipe = config.projnorm if is_reference else config.finetune
        model, loss, seed = self.initial(which).model, cross_entropy, config.seed + _SEED_OF[which]
        if is_joint(config, stage):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model, loss = JointRotation(model, self.modality.last), joint_loss
            layers = (*(f"network.{layer}" for layer in recipe.layers), "head") if recipe.layers else ()
            recipe = replace(recipe, compiled=False, layers=layers)
        train(
            model,
            samples.inputs[:count],
            samples.labels[:count],
            recipe,
            seed=seed,
            prepare=self.modality.prepare,
            device=self.device,
            loss=loss,
            watch=self.meter(stage, samples=recipe.batch).at_step,
            checkpoint=Checkpoint(self._store, _unfinished(self.stage_key(stage))),
        )
        return parameters_of(model) if is_reference else model.state_dict()


@lru_cache(maxsize=16)
def networks_of(run: Run) -> TrainedNetworks:
    """The networks of a run, the same object for every task of a process."""
    return TrainedNetworks(run)


def for_workers(context: RunContext) -> RunContext:
    """The context as it travels to workers: device chosen, folder absolute, no more processes than it can use."""
    device = str(choose_device(context.device))
    return replace(context, root=context.root.absolute(), device=device, backend=on_device(context.backend, device))


def require_network(config: RunConfig) -> None:
    """Refuse weights that are not there and layers that the network does not have, before any data is read."""
    if isinstance(config, DeepConfig) or config.finetune.layers or config.projnorm.layers:
        model = modality_of(config).initial(2, 0).model
        require_layers(config.finetune, model, "finetune.layers")
        require_layers(config.projnorm, model, "projnorm.layers")


@lru_cache(maxsize=2)
def _data_of(run: Run) -> RunData:
    return load_data(run.config, run.context.store("corruptions").folder)


def _unfinished(key: str) -> str:
    return f"unfinished-{key}"


def _put(store: Store, key: str, tensors: dict[str, Tensor]) -> None:
    arrays = to_arrays(tensors)
    sha256 = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha256.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    store.put(key, arrays, {"sha256": sha256.hexdigest()}, compress=False)
