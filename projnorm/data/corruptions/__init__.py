"""The 19 families of CIFAR-10-C at five severities, vectorised over images, with random numbers for each image."""

from projnorm.data.corruptions.families import FAMILIES, corrupt, corrupt_cached
from projnorm.data.image_settings import PAPER_FAMILIES, PROBE_FAMILIES, SEVERITIES

__all__ = ["FAMILIES", "PAPER_FAMILIES", "PROBE_FAMILIES", "SEVERITIES", "corrupt", "corrupt_cached"]
