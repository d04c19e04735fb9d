"""Networks, weights, images and their corruptions; names are imported when they are first used."""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.vision.cifar import download_cifar as download_cifar
    from projnorm.vision.cifar_c import CifarC as CifarC, open_cifar_c as open_cifar_c
    from projnorm.vision.corruptions import FAMILIES as FAMILIES, corrupt as corrupt, corrupt_cached as corrupt_cached
    from projnorm.vision.datasets import digits as digits, load_splits as load_splits, read_image_set as read_image_set
    from projnorm.vision.images import ImageNetInput as ImageNetInput, ImageSet as ImageSet, Splits as Splits
    from projnorm.vision.networks import (
        NETWORKS as NETWORKS,
        resnet18 as resnet18,
        resnet50 as resnet50,
        vgg11 as vgg11,
    )
    from projnorm.vision.settings import (
        PAPER_FAMILIES as PAPER_FAMILIES,
        PROBE_FAMILIES as PROBE_FAMILIES,
        SEVERITIES as SEVERITIES,
        ImageNetwork as ImageNetwork,
        ShiftedImages as ShiftedImages,
    )
    from projnorm.vision.weights import LoadedNetwork as LoadedNetwork, load_network as load_network
