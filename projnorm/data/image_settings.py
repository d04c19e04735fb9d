"""Settings shared by experiments on images, and the names they choose from; importing them does not load torch."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm.core.config import Config, setting

RANDOM, IMAGENET = "random", "imagenet"
ARCHITECTURES = ("resnet18", "resnet50", "vgg11", "small-cnn")
SEVERITIES = (1, 2, 3, 4, 5)
# The random numbers of a family depend on its position: see `projnorm.data.corruptions.families.stream_of`.
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
# The 18 families of the paper.
PAPER_FAMILIES = tuple(sorted(set(FAMILY_NAMES) - {"zoom_blur"}))
# The four families on which choices are made, so that results on the others stay unbiased.
PROBE_FAMILIES = ("gaussian_noise", "gaussian_blur", "contrast", "brightness")

LARGEST_SEED = 2**32


def families_setting(default: tuple[str, ...]) -> tuple[str, ...]:
    """Setting for the families of corruptions; experiments differ only in the default."""
    help_text = "Families of corruptions of the test images, each of which makes a target at every severity."
    return setting(default, help_text, choices=FAMILY_NAMES, distinct=True)


@dataclass(frozen=True)
class ShiftedImages(Config):
    """Training and test images, corruptions of the test images, and further target sets."""

    data: str = setting(
        "digits",
        "Training and test images: digits, cifar10, cifar100, an archive or folder of CIFAR, a folder with "
        "train/CLASS/* and test/CLASS/*, or an .npz file.",
    )
    targets: tuple[str, ...] = setting(
        (), "Further labelled images to estimate the error on: .npz files, or folders with CLASS/*.", distinct=True
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
