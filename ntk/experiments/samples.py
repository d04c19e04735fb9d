"""The samples of an experiment on kernels: a training set, a test set, corruptions of it, and further targets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntk.experiments.config import DEFAULT_LENGTH, GramConfig, NtkNetwork
from ntk.experiments.networks import model_path, network_hashes
from ntk.tiles.plan import TRAIN
from projnorm.core.errors import InputError
from projnorm.core.files import locate
from projnorm.data.corruptions.families import corrupt
from projnorm.data.datasets import halves, load_splits, read_array_splits, read_sample_set
from projnorm.data.images import ImageSet, are_rgb_bytes
from projnorm.data.samples import SampleSet
from projnorm.data.tables import stem
from projnorm.data.targets import CLEAN, GENERATED, GIVEN, Shifts, Target, draw_indices, require_distinct
from projnorm.data.texts import read_texts
from projnorm.models.text_networks import load_text_encode

_ARRAYS = (".npz", ".npy")


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """How files become samples that a network takes: the training and test set of a source, and a single set."""

    splits: Callable[[str], tuple[SampleSet, SampleSet]]
    single: Callable[[Path], SampleSet]

    @classmethod
    def from_network(cls, network: NtkNetwork) -> Reader:
        """The reader for a network: texts for a folder of transformers, any inputs for a user's own, else images."""
        if network.model:
            model_path(network)  # said before anything is read
        if network.is_text:
            read = partial(read_texts, encode=load_text_encode(network.model, network.length or DEFAULT_LENGTH))
            return cls(lambda source: halves(read(Path(source))), read)
        kind = SampleSet if network.model else ImageSet
        return cls(partial(_splits, kind=kind), partial(read_sample_set, kind=kind))


@dataclass(frozen=True)
class DrawnSamples:
    """The samples of an experiment, before any of them is corrupted: of the whole `test` set, those that were drawn."""

    config: GramConfig
    train: SampleSet
    test: SampleSet
    test_indices: NDArray[np.intp]
    further: tuple[Target[SampleSet], ...]
    classes: int

    @classmethod
    def load(cls, config: GramConfig) -> DrawnSamples:
        """Read the samples, and draw as many as the configuration says."""
        data, rng = config.data, np.random.default_rng(config.seed)
        read = Reader.from_network(config.network)
        whole, test = read.splits(data.data)
        classes = 1 + int(max(whole.labels.max(), -1 if test.known_labels is None else test.known_labels.max()))
        train = whole.take(draw_indices(whole, data.n, rng, "n"))
        if len(set(train.labels.tolist())) < 2:
            raise InputError(
                f"the {data.n} training samples drawn are all of one class; nothing can be learnt from them."
            )
        test_indices = draw_indices(test, data.m, rng, "m")
        further = []
        for path in map(Path, data.targets):
            samples = read.single(path).of_classes(classes, whole.class_names)
            samples = samples.take(draw_indices(samples, min(data.m, len(samples)), rng, "m"))
            further.append(Target(stem(path), GIVEN, 0, GIVEN, samples))
        return cls(config, train, test, test_indices, tuple(further), classes)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Hashes of what the kernels depend on besides the configuration."""
        samples = _hash(*(part.inputs for part in self._sets))
        return {"data_sha256": samples, **network_hashes(self.config.network)}

    @property
    def inputs_with_labels(self) -> dict[str, str]:
        """Hashes of what the analysis depends on besides the configuration."""
        labels = (np.empty(0) if part.known_labels is None else part.known_labels for part in self._sets)
        return {**self.inputs, "labels_sha256": _hash(*(part.astype("<i8") for part in labels))}

    def targets(self) -> tuple[Target[SampleSet], ...]:
        """The clean test set, its corruptions if it is of images, and the sets from files."""
        clean = self.test.take(self.test_indices)
        targets = [Target(CLEAN, CLEAN, 0, CLEAN, clean)]
        shifts = Shifts(self.config.data.families, self.config.data.severities) if are_rgb_bytes(clean.inputs) else ()
        for family, severity in shifts:
            pixels = corrupt(clean.inputs, family, severity, seed=self.config.seed, indices=self.test_indices)
            name = f"{family}-{severity}"
            targets.append(Target(name, family, severity, GENERATED, replace(clean, name=name, inputs=pixels)))
        targets += self.further
        require_distinct([target.name for target in targets], taken=(TRAIN,))
        return tuple(targets)

    @property
    def _sets(self) -> list[SampleSet]:
        return [self.train, self.test.take(self.test_indices), *(target.samples for target in self.further)]


def _splits(source: str, kind: type[SampleSet]) -> tuple[SampleSet, SampleSet]:
    path = locate(source)
    if path.suffix in _ARRAYS and path.is_file():
        return read_array_splits(path, kind)
    splits = load_splits(source)
    return splits.train, splits.test


def _hash(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
