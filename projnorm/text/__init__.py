"""Labelled sentence pairs: readers of published sets, generated pairs, and networks that classify pairs.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
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
