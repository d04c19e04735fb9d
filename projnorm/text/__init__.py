"""Pairs of sentences with a label: readers of the published sets, pairs made here, and networks that classify them."""

from projnorm.text.encoding import EncodedPairs
from projnorm.text.networks import (
    LoadedPairClassifier,
    blank_pair_classifier,
    download_checkpoint,
    load_encode,
    load_pair_classifier,
)
from projnorm.text.nli import LABELS, TWO_WAY, MalformedFileError, Pairs, joined, read_pairs
from projnorm.text.subsets import subsets
from projnorm.text.templates import is_made, made_pairs

__all__ = [
    "LABELS",
    "TWO_WAY",
    "EncodedPairs",
    "LoadedPairClassifier",
    "MalformedFileError",
    "Pairs",
    "blank_pair_classifier",
    "download_checkpoint",
    "is_made",
    "joined",
    "load_encode",
    "load_pair_classifier",
    "made_pairs",
    "read_pairs",
    "subsets",
]
