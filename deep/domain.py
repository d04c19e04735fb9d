"""What runs on images and runs on text differ in; everything above it is the same for both."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import nn

from deep.config import RunConfig, TextConfig
from deep.images import Images
from deep.samples import RunData
from deep.text import Text
from deep.training import Prepare
from projnorm.errors import InputError
from projnorm.text import download_checkpoint
from projnorm.vision import download_cifar
from projnorm.vision.cifar import DOWNLOADS


class Loaded(Protocol):
    """A network and where its weights come from."""

    @property
    def model(self) -> nn.Module:
        """The network in eval mode."""
        ...

    @property
    def weights(self) -> str:
        """Name of the weights."""
        ...

    @property
    def sha256(self) -> str:
        """SHA-256 of the weights; empty for random ones."""
        ...

    @property
    def is_random(self) -> bool:
        """Whether nothing in it was ever trained."""
        ...


class Domain(Protocol):
    """Data and networks of a configuration."""

    def load_data(self, *, cache: Path | None = None) -> RunData:
        """Everything the run looks at; `cache` is a folder for what is costly to make."""
        ...

    def initial(self, *, classes: int, seed: int) -> Loaded:
        """Pretrained weights under a drawn head: theta_0."""
        ...

    @property
    def prepare(self) -> Prepare | None:
        """Function from a batch of inputs to what the networks see."""
        ...

    @property
    def last(self) -> str:
        """Name of the last layer of its networks."""
        ...

    @property
    def network(self) -> str:
        """Name of the network."""
        ...

    @property
    def sees(self) -> str:
        """Description of the inputs that the network takes."""
        ...

    @property
    def software(self) -> dict[str, str]:
        """Versions, besides torch's, that the numbers depend on."""
        ...


def domain_of(config: RunConfig) -> Domain:
    """The domain of a configuration."""
    return Text(config) if isinstance(config, TextConfig) else Images(config)


def download(config: RunConfig) -> None:
    """Fetch the data set or the checkpoint that a configuration names, unless it is there.

    Raises:
        InputError: If it names none that can be fetched.
    """
    if isinstance(config, TextConfig):
        download_checkpoint(config.network.model)
    elif config.data.data in DOWNLOADS:
        download_cifar(config.data.data)
    else:
        raise InputError(f"`data` must be one of {', '.join(DOWNLOADS)} to be fetched; got {config.data.data!r}.")
