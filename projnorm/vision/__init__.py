"""Networks, weights, images and their corruptions."""

from projnorm.vision.corruptions import FAMILIES, SEVERITIES, corrupt
from projnorm.vision.datasets import Splits, digits, load_splits, read_image_set
from projnorm.vision.images import ImageNetInput, ImageSet
from projnorm.vision.networks import NETWORKS, resnet18, resnet50, vgg11
from projnorm.vision.weights import LoadedNetwork, load_network

__all__ = [
    "FAMILIES",
    "NETWORKS",
    "SEVERITIES",
    "ImageNetInput",
    "ImageSet",
    "LoadedNetwork",
    "Splits",
    "corrupt",
    "digits",
    "load_network",
    "load_splits",
    "read_image_set",
    "resnet18",
    "resnet50",
    "vgg11",
]
