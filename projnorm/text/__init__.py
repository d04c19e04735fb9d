"""Texts and labelled sentence pairs: readers of files and published sets, generated pairs, and networks.

Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from projnorm.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)

if TYPE_CHECKING:
    from projnorm.text.encoding import EncodedPairs
    from projnorm.text.networks import (
        LoadedPairClassifier,
        TextClassifier,
        blank_pair_classifier,
        download_checkpoint,
        load_encode,
        load_pair_classifier,
        load_text_encode,
    )
    from projnorm.text.nli import LABELS, TWO_WAY, Pairs, joined, read_pairs
    from projnorm.text.subsets import subsets
    from projnorm.text.templates import is_made, made_pairs
    from projnorm.text.texts import read_texts
