"""Labelled sentence pairs: readers of published sets, generated pairs, and networks that classify pairs.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.text.encoding import EncodedPairs as EncodedPairs
    from projnorm.text.networks import (
        LoadedPairClassifier as LoadedPairClassifier,
        blank_pair_classifier as blank_pair_classifier,
        download_checkpoint as download_checkpoint,
        load_encode as load_encode,
        load_pair_classifier as load_pair_classifier,
    )
    from projnorm.text.nli import (
        LABELS as LABELS,
        TWO_WAY as TWO_WAY,
        Pairs as Pairs,
        joined as joined,
        read_pairs as read_pairs,
    )
    from projnorm.text.subsets import subsets as subsets
    from projnorm.text.templates import is_made as is_made, made_pairs as made_pairs
