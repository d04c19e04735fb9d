"""What is read: samples with their labels, images, texts, published data sets and shifts of images.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm.core.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.data.cifar import download_cifar
    from projnorm.data.cifar_c import CifarC, open_cifar_c
    from projnorm.data.corruptions.families import FAMILIES, corrupt, corrupt_cached
    from projnorm.data.datasets import digits, load_splits, read_image_set
    from projnorm.data.encoding import EncodedPairs
    from projnorm.data.image_settings import PAPER_FAMILIES, PROBE_FAMILIES, SEVERITIES, ShiftedImages
    from projnorm.data.images import ImageNetInput, ImageSet, Splits
    from projnorm.data.nli import LABELS, TWO_WAY, Pairs, read_pairs
    from projnorm.data.samples import SampleSet
    from projnorm.data.subsets import subsets
    from projnorm.data.templates import is_made, made_pairs
    from projnorm.data.texts import read_texts
    from projnorm.data.transformations import TRANSFORMATIONS, transform
