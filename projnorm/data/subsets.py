"""Subsets of sentence pairs by word overlap, by negation, or by a category column of the file."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from projnorm.data.nli import Pairs

_WORD = re.compile(r"[a-z0-9']+")
_NEGATIONS = frozenset(
    ("no", "not", "never", "none", "nobody", "nothing", "nowhere", "neither", "nor", "without", "cannot")
)
# Ranges of the share of the hypothesis's distinct words that also occur in the premise.
_OVERLAPS = {"low overlap": (0.0, 1 / 3), "middle overlap": (1 / 3, 2 / 3), "high overlap": (2 / 3, np.inf)}
CATEGORY = "category"


def overlap(pairs: Pairs) -> NDArray[np.float64]:
    """Share of the distinct words of each hypothesis that also occur in its premise; 0 if it has no words."""
    shares = []
    for premise, hypothesis in zip(pairs.premises, pairs.hypotheses, strict=True):
        words = set(_words(hypothesis))
        shares.append(len(words & set(_words(premise))) / max(1, len(words)))
    return np.array(shares)


def negated(pairs: Pairs) -> NDArray[np.bool_]:
    """Whether either sentence of each pair has a negation word or a word that ends in n't."""
    both = zip(pairs.premises, pairs.hypotheses, strict=True)
    return np.array([any(map(_negates, [*_words(premise), *_words(hypothesis)])) for premise, hypothesis in both])


def subsets(pairs: Pairs, kind: str) -> dict[str, NDArray[np.intp]]:
    """Indices of the pairs in every nonempty subset, by the name of the subset.

    `kind` is "overlap", "negation", or "category"; the last needs pairs that were read with ``keep=["category"]``.
    """
    if kind == "overlap":
        shares = overlap(pairs)
        members = {name: (low <= shares) & (shares < high) for name, (low, high) in _OVERLAPS.items()}
    elif kind == "negation":
        members = {kind: negated(pairs)}
    else:
        assert kind == CATEGORY, kind
        values = np.array(pairs.facts.get(CATEGORY, ()), dtype=str)
        members = {str(value): values == value for value in np.unique(values) if value}
    return {name: np.flatnonzero(inside) for name, inside in members.items() if inside.any()}


def _words(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower().replace("\u2019", "'"))


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")
