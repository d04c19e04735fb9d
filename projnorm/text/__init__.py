"""Labelled sentence pairs: readers of published sets, generated pairs, and networks that classify pairs."""

from projnorm.text.encoding import EncodedPairs
from projnorm.text.networks import (
    LoadedPairClassifier,
    blank_pair_classifier,
    download_checkpoint,
    load_encode,
    load_pair_classifier,
)
from projnorm.text.nli import LABELS, TWO_WAY, Pairs, joined, read_pairs
from projnorm.text.subsets import subsets
from projnorm.text.templates import is_made, made_pairs

__all__ = [
    "LABELS",
    "TWO_WAY",
    "EncodedPairs",
    "LoadedPairClassifier",
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
