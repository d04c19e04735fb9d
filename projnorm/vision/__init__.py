"""Networks, weights, images and their corruptions; names are imported when they are first used."""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.vision.cifar import download_cifar
    from projnorm.vision.cifar_c import CifarC, open_cifar_c
    from projnorm.vision.corruptions import FAMILIES, corrupt, corrupt_cached
    from projnorm.vision.datasets import digits, load_splits, read_image_set
    from projnorm.vision.images import ImageNetInput, ImageSet, Splits
    from projnorm.vision.networks import NETWORKS, resnet18, resnet50, vgg11
    from projnorm.vision.settings import PAPER_FAMILIES, PROBE_FAMILIES, SEVERITIES, ImageNetwork, ShiftedImages
    from projnorm.vision.transformations import TRANSFORMATIONS, transform
    from projnorm.vision.weights import LoadedNetwork, load_network
