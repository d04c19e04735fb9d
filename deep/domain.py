"""What runs on images and runs on text differ in; everything above it is the same for both."""

from __future__ import annotations

from pathlib import Path

from deep.config import RunConfig, TextConfig
from deep.images import Images, load_image_data
from deep.samples import RunData
from deep.text import Text, load_text_data
from projnorm.errors import InputError
from projnorm.text import LoadedPairClassifier, download_checkpoint
from projnorm.vision import LoadedNetwork, download_cifar
from projnorm.vision.cifar import DOWNLOADS

# Networks of a configuration; both have the same methods.
Domain = Images | Text
# A network and where its weights come from.
Loaded = LoadedNetwork | LoadedPairClassifier


def domain_of(config: RunConfig) -> Domain:
    """The domain of a configuration."""
    return Text(config) if isinstance(config, TextConfig) else Images(config)


def load_data(config: RunConfig, cache: Path) -> RunData:
    """Everything that a run looks at; `cache` is a folder for what is costly to make."""
    return load_text_data(config) if isinstance(config, TextConfig) else load_image_data(config, cache=cache)


def download(config: RunConfig) -> None:
    """Fetch the data set or the checkpoint that a configuration names, unless it is there."""
    if isinstance(config, TextConfig):
        download_checkpoint(config.network.model)
    elif config.data.data in DOWNLOADS:
        download_cifar(config.data.data)
    else:
        raise InputError(f"`data` must be one of {', '.join(DOWNLOADS)} to be fetched; got {config.data.data!r}.")
