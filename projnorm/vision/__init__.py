"""Networks, weights, images and their corruptions."""

from projnorm.vision.cifar import download_cifar
from projnorm.vision.cifar_c import CifarC, open_cifar_c
from projnorm.vision.corruptions import (
    FAMILIES,
    PAPER_FAMILIES,
    PROBE_FAMILIES,
    SEVERITIES,
    corrupt,
    corrupt_cached,
)
from projnorm.vision.datasets import digits, load_splits, read_image_set
from projnorm.vision.images import ImageNetInput, ImageSet, Splits
from projnorm.vision.networks import NETWORKS, resnet18, resnet50, vgg11
from projnorm.vision.weights import LoadedNetwork, load_network

__all__ = [
    "FAMILIES",
    "NETWORKS",
    "PAPER_FAMILIES",
    "PROBE_FAMILIES",
    "SEVERITIES",
    "CifarC",
    "ImageNetInput",
    "ImageSet",
    "LoadedNetwork",
    "Splits",
    "corrupt",
    "corrupt_cached",
    "digits",
    "download_cifar",
    "load_network",
    "load_splits",
    "open_cifar_c",
    "read_image_set",
    "resnet18",
    "resnet50",
    "vgg11",
]
