"""Settings of comparisons. Everything that changes a number is here; devices and workers are not. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.data.image_settings import ImageNetwork, ShiftedImages
from projnorm.models.recipe import Recipe

# The paper's six, which are the default.
METHODS = ("Rotation", "ConfScore", "Entropy", "AgreeScore", "ATC", "ProjNorm")
# The methods that train on every target; one training serves them all.
PROJNORM_METHODS = (PROJNORM, PROJNORM_MATCHED) = ("ProjNorm", "ProjNorm-matched")
# What they compare with.
REFERENCES = (TRAINED, FINE_TUNED, MATCHED) = ("trained", "fine-tuned", "matched")
# Pairs of sentences cannot be turned.
TEXT_METHODS = METHODS[1:]
# Three marks and a word of each sentence.
_SHORTEST = 5


@dataclass(frozen=True)
class ProjNormConfig(Recipe):
    """The training of ProjNorm and of its reference, and what they are trained on."""

    steps: int = setting(1000, "Number of training steps, T in the paper.", least=0)
    samples: int = setting(
        0,
        "Number of samples of each target that ProjNorm trains on, and as many of its reference; 0 for all. The other "
        "methods, and the error to predict, see all.",
        least=0,
        rare=True,
    )
    reference: str = setting(
        "trained",
        "Reference of the distance: trained as the target's network is, on the same samples for all targets; the "
        "fine-tuned network itself; or matched, trained for each target on samples with its shares of predicted "
        "classes.",
        choices=REFERENCES,
    )
    reference_samples: str = setting(
        "m",
        "Training samples of a trained reference: m, as many as of a target, or all.",
        choices=("m", "all"),
        rare=True,
    )
    labels: str = setting(
        "pseudo",
        "Labels that ProjNorm trains on; true for the paper's ablation.",
        choices=("pseudo", "true"),
        rare=True,
    )
    trajectory: tuple[int, ...] = setting(
        (),
        "Steps after which the distance is recorded too; those behind the last step are left out.",
        least=1,
        distinct=True,
        rare=True,
    )

    def check(self) -> None:
        """Besides the checks of every training: steps of the trajectory that are never taken are left out."""
        super().check()
        if self.steps:
            object.__setattr__(self, "trajectory", tuple(step for step in self.trajectory if step <= self.steps))
        if self.samples == 1:
            raise InputError("`samples` must be 0 for all, or at least 2; got 1.")


@dataclass(frozen=True)
class RotationConfig(Config):
    """The training of a head that predicts by how much an image was rotated."""

    head: str = setting(
        "frozen",
        "frozen trains a linear head on the fine-tuned network; joint trains it with the network, which is then the "
        "one evaluated.",
        choices=("frozen", "joint"),
    )
    samples: int = setting(500, "Number of training images, each in four rotations, of a frozen head.", least=1)


def _n() -> Any:
    return setting(0, "Number of samples to fine-tune on; 0 for all that are left.", least=0)


def _n_validation() -> Any:
    return setting(100, "Number of labelled in-distribution samples held out of training.", least=1)


def _m() -> Any:
    return setting(500, "Number of samples of each target.", least=1)


@dataclass(frozen=True)
class ImageData(ShiftedImages):
    """Images to fine-tune on, to hold out and to predict the error on."""

    corruptions: str = setting("generated", "generated, or the folder of the official CIFAR-C files.", rare=True)
    n: int = _n()
    n_validation: int = _n_validation()
    m: int = _m()


@dataclass(frozen=True)
class TextData(Config):
    """Pairs of sentences, or single texts, to fine-tune on, to hold out and to predict the error on."""

    data: str = setting(
        "templates",
        "Pairs to fine-tune on: a file, or templates for pairs made here. Single texts come from a file with `text` "
        "and `label`, or a .gz file with lines of a label, a tab and a text.",
    )
    targets: tuple[str, ...] = setting(
        (),
        "Sets to predict the error on, each NAME=FILE, or files joined by +, or templates-DIAL-STRENGTH; without a "
        "name, the file's own.",
        distinct=True,
    )
    test: str = setting("", "In-distribution pairs to predict on, given as a target is; pairs of `data` by default.")
    subsets: tuple[str, ...] = setting(
        (),
        "Parts of every set that are targets too, by these properties of the pairs.",
        choices=("overlap", "negation", "category"),
        distinct=True,
        rare=True,
    )
    shares: tuple[float, ...] = setting(
        (),
        "Shares of the last class with which every set is drawn once more; each of these is a target.",
        above=0.0,
        below=1.0,
        distinct=True,
        rare=True,
    )
    n: int = _n()
    n_validation: int = _n_validation()
    m: int = _m()


@dataclass(frozen=True)
class TextNetwork(Config):
    """A classifier of pairs of sentences."""

    model: str = setting(
        "tiny", "tiny, of random weights; the name of a checkpoint, a revision behind @; or a folder with one."
    )
    length: int = setting(128, "Number of tokens of a pair that the network sees.", least=_SHORTEST, rare=True)


def run_methods() -> tuple[str, ...]:
    """Names of the methods that a comparison can run: those that need no outputs of a second model, and no table."""
    from projnorm.estimators.registry import ESTIMATORS

    left_out = {"second", "others", "table"}
    return (
        *METHODS,
        *(name for name, method in ESTIMATORS.items() if name not in METHODS and not method.needs & left_out),
    )


def text_methods() -> tuple[str, ...]:
    """Names of the methods that a comparison on pairs of sentences can run."""
    return tuple(method for method in run_methods() if method != METHODS[0])


def _methods(default: tuple[str, ...], choices: Any) -> Any:
    return setting(
        default, "Methods to compare; all for every one.", choices=choices, all=True, distinct=True, nonempty=True
    )


_FINETUNE = "Fine-tuning of the evaluated network."
_ADAMW: dict[str, Any] = {"lr": 2e-5, "batch": 32, "optimiser": "adamw", "decay": "linear"}


class _Comparison(Config):
    """Checks that are common to the configurations of all comparisons."""

    data: ImageData | TextData
    projnorm: ProjNormConfig

    def check(self) -> None:
        """Refuse more samples for ProjNorm than a target has."""
        samples, m = self.projnorm.samples, self.data.m
        if samples > m:
            raise InputError(f"`projnorm.samples` must be 0 for all, or from 2 to m = {m:,}; got {samples:,}.")


@dataclass(frozen=True)
class DeepConfig(_Comparison):
    """A comparison of methods on a network for images; the defaults are the paper's.

    Examples:
        >>> config = DeepConfig(ImageData("digits", m=100)).updated({"projnorm": {"steps": 20}})
        >>> config.data.m, config.projnorm.steps, config.finetune.epochs
        (100, 20, 20)
    """

    data: ImageData = setting(ImageData(), "Images.", flat=True)
    network: ImageNetwork = setting(ImageNetwork(), "Network before fine-tuning.", flat=True)
    finetune: Recipe = setting(Recipe(epochs=20), _FINETUNE)
    projnorm: ProjNormConfig = setting(ProjNormConfig(), "ProjNorm.")
    rotation: RotationConfig = setting(RotationConfig(), "Rotation.", rare=True)
    methods: tuple[str, ...] = _methods(METHODS, run_methods)
    seed: int = seed_setting()


@dataclass(frozen=True)
class TextConfig(_Comparison):
    """A comparison of methods on a classifier of pairs of sentences; the defaults are the paper's."""

    data: TextData = setting(TextData(), "Pairs of sentences.", flat=True)
    network: TextNetwork = setting(TextNetwork(), "Network before fine-tuning.", flat=True)
    finetune: Recipe = setting(Recipe(epochs=4, **_ADAMW), _FINETUNE)
    projnorm: ProjNormConfig = setting(ProjNormConfig(**_ADAMW), "ProjNorm.")
    methods: tuple[str, ...] = _methods(TEXT_METHODS, text_methods)
    seed: int = seed_setting()


RunConfig = DeepConfig | TextConfig
IMAGE_KIND, TEXT_KIND = "deep", "deep-text"
# Configurations of runs by the kind of their record.
RUN_CONFIGS: dict[str, type[DeepConfig | TextConfig]] = {IMAGE_KIND: DeepConfig, TEXT_KIND: TextConfig}


def kind_of(config: RunConfig) -> str:
    """The kind of the record of a run."""
    return TEXT_KIND if isinstance(config, TextConfig) else IMAGE_KIND


def references_of(config: RunConfig) -> dict[str, str]:
    """The reference that each method of the run that trains on targets compares with."""
    references = {PROJNORM: config.projnorm.reference, PROJNORM_MATCHED: MATCHED}
    return {method: references[method] for method in PROJNORM_METHODS if method in config.methods}


@dataclass(frozen=True)
class OnRunConfig(Config):
    """An experiment on a finished run."""

    run: str = setting(
        "", "Name of the finished run, or its beginning; the only one there is by default.", positional=True
    )


def image_config(config: RunConfig) -> DeepConfig:
    """The configuration of a run on images."""
    if not isinstance(config, DeepConfig):
        raise InputError("this works on images; the run is one on text.")
    return config
