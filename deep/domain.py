"""What runs on images and runs on text differ in; everything above it is the same for both."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import nn

from deep.config import DeepConfig, RunConfig, TextConfig
from deep.images import Images
from deep.samples import RunData
from deep.text import Text
from deep.training import Prepare, Recipe

# Kinds of their records.
IMAGE_KIND, TEXT_KIND = "deep", "deep-text"
_CONFIGS: dict[str, type[DeepConfig | TextConfig]] = {IMAGE_KIND: DeepConfig, TEXT_KIND: TextConfig}
RUN_KINDS = tuple(_CONFIGS)


class Loaded(Protocol):
    """A network and where its weights come from."""

    @property
    def model(self) -> nn.Module:
        """In eval mode."""
        ...

    @property
    def weights(self) -> str:
        """What they are called."""
        ...

    @property
    def sha256(self) -> str:
        """Of the weights."""
        ...

    @property
    def is_random(self) -> bool:
        """Whether nothing in it was ever trained."""
        ...


class Domain(Protocol):
    """Data, networks and recipes of a configuration."""

    def load_data(self, *, cache: Path | None = None) -> RunData:
        """Everything the run looks at; `cache` may keep what is costly to make."""
        ...

    def initial(self, *, classes: int, seed: int) -> Loaded:
        """Pretrained weights under a drawn head: theta_0."""
        ...

    @property
    def prepare(self) -> Prepare | None:
        """From a batch of inputs to what the networks see."""
        ...

    @property
    def last(self) -> str:
        """Name of the last layer of its networks."""
        ...

    @property
    def network(self) -> str:
        """Which network."""
        ...

    @property
    def sees(self) -> str:
        """Which inputs it takes."""
        ...

    @property
    def software(self) -> dict[str, str]:
        """Versions, besides torch's, that the numbers depend on."""
        ...

    def finetuning(self, steps: int) -> Recipe:
        """Of the evaluated network."""
        ...

    def projnorm(self) -> Recipe:
        """Of the training on pseudo-labels and of the reference."""
        ...


def domain_of(config: RunConfig) -> Domain:
    """The domain of a configuration."""
    if isinstance(config, TextConfig):
        return Text(config)
    assert isinstance(config, DeepConfig)
    return Images(config)


def image_config(config: RunConfig) -> DeepConfig:
    """The configuration of a run on images.

    Raises:
        ValueError: If it is of another.
    """
    if not isinstance(config, DeepConfig):
        raise ValueError("this works on images; the run is one on text. `projnorm runs` lists those there are.")
    return config


def kind_of(config: RunConfig) -> str:
    """The kind of the record of a run."""
    return next(kind for kind, cls in _CONFIGS.items() if isinstance(config, cls))


def config_of(kind: str) -> type[DeepConfig | TextConfig]:
    """The class of the configuration that a record of this kind has."""
    return _CONFIGS[kind]
