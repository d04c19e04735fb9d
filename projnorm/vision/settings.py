"""Settings that experiments on images share, and the names they choose from; importing them loads no torch."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm.config import Config, setting

RANDOM, IMAGENET = "random", "imagenet"
ARCHITECTURES = ("resnet18", "resnet50", "vgg11", "small-cnn")
SEVERITIES = (1, 2, 3, 4, 5)
# The order is part of what is drawn: see `projnorm.vision.corruptions.families.stream_of`.
FAMILY_NAMES = (
    "gaussian_noise",
    "gaussian_blur",
    "contrast",
    "brightness",
    "defocus_blur",
    "elastic_transform",
    "fog",
    "frost",
    "glass_blur",
    "impulse_noise",
    "jpeg_compression",
    "motion_blur",
    "pixelate",
    "saturate",
    "shot_noise",
    "snow",
    "spatter",
    "speckle_noise",
    "zoom_blur",
)
# The 18 of the paper.
PAPER_FAMILIES = tuple(sorted(set(FAMILY_NAMES) - {"zoom_blur"}))
# The four on which choices are made, so that the others can be reported on.
PROBE_FAMILIES = ("gaussian_noise", "gaussian_blur", "contrast", "brightness")

LARGEST_SEED = 2**32


def families_setting(default: tuple[str, ...]) -> tuple[str, ...]:
    """The families of corruptions; experiments differ in the default alone."""
    help_text = "Families of corruptions of the test set, each of which makes a target at every severity."
    return setting(default, help_text, choices=FAMILY_NAMES, distinct=True)


@dataclass(frozen=True)
class ShiftedImages(Config):
    """A training set, a test set, corruptions of the test set, and further sets to predict the error on."""

    data: str = setting(
        "digits",
        "Training and test images: digits, cifar10, cifar100, an archive or folder of CIFAR, a folder with "
        "train/CLASS/* and test/CLASS/*, or an .npz file.",
    )
    targets: tuple[str, ...] = setting(
        (),
        "Further labelled images to predict the error on: .npz files, or folders with CLASS/*.",
        distinct=True,
    )
    families: tuple[str, ...] = families_setting(PAPER_FAMILIES)
    severities: tuple[int, ...] = setting(
        SEVERITIES, "Severities of every family of corruptions.", choices=SEVERITIES, distinct=True
    )


@dataclass(frozen=True)
class ImageNetwork(Config):
    """A network that looks at images."""

    architecture: str = setting("resnet18", "Architecture of the network.", choices=ARCHITECTURES)
    weights: str = setting(
        RANDOM,
        "Weights of the network: random, imagenet (downloaded once), or a .pth or .safetensors file with torchvision's "
        "names.",
    )
    size: int = setting(32, "Height and width of the images in pixels, as the network sees them.", least=1)
