"""Pairs of sentences with a label: readers of the published sets, pairs made here, and networks that classify them.

Everything is imported when it is first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

_NAMES = {
    "LABELS": "projnorm.text.nli",
    "TWO_WAY": "projnorm.text.nli",
    "EncodedPairs": "projnorm.text.encoding",
    "LoadedPairClassifier": "projnorm.text.networks",
    "MalformedFileError": "projnorm.text.nli",
    "Pairs": "projnorm.text.nli",
    "blank_pair_classifier": "projnorm.text.networks",
    "download_checkpoint": "projnorm.text.networks",
    "is_made": "projnorm.text.templates",
    "joined": "projnorm.text.nli",
    "load_encode": "projnorm.text.networks",
    "load_pair_classifier": "projnorm.text.networks",
    "made_pairs": "projnorm.text.templates",
    "read_pairs": "projnorm.text.nli",
}
__getattr__, __dir__ = attach(__name__, _NAMES)
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
]

if TYPE_CHECKING:
    from projnorm.text.encoding import EncodedPairs as EncodedPairs
    from projnorm.text.networks import (
        LoadedPairClassifier as LoadedPairClassifier,
        blank_pair_classifier as blank_pair_classifier,
        download_checkpoint as download_checkpoint,
        load_encode as load_encode,
        load_pair_classifier as load_pair_classifier,
    )
    from projnorm.text.nli import LABELS, TWO_WAY, MalformedFileError, Pairs, joined, read_pairs
    from projnorm.text.templates import is_made, made_pairs
