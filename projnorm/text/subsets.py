"""Subsets of sentence pairs by word overlap, by negation, or by a category column of the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from projnorm.text.nli import Pairs

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
    return np.array([any(map(_negates, [*_words(one), *_words(other)])) for one, other in both])


def subsets(pairs: Pairs, kind: str) -> dict[str, NDArray[np.intp]]:
    """Indices of the pairs in every nonempty subset, by the name of the subset.

    `kind` is "overlap", "negation", or "category"; the last needs pairs that were read with ``keep=["category"]``.
    """
    return {name: indices for name, indices in _KINDS[kind](pairs) if len(indices)}


def _by_overlap(pairs: Pairs) -> Iterator[tuple[str, NDArray[np.intp]]]:
    shares = overlap(pairs)
    for name, (low, high) in _OVERLAPS.items():
        yield name, np.flatnonzero((low <= shares) & (shares < high))


def _by_negation(pairs: Pairs) -> Iterator[tuple[str, NDArray[np.intp]]]:
    yield "negation", np.flatnonzero(negated(pairs))


def _by_category(pairs: Pairs) -> Iterator[tuple[str, NDArray[np.intp]]]:
    values = np.array(pairs.facts.get(CATEGORY, ()), dtype=str)
    for value in np.unique(values):
        if value:
            yield str(value), np.flatnonzero(values == value)


_KINDS: dict[str, Callable[[Pairs], Iterator[tuple[str, NDArray[np.intp]]]]] = {
    "overlap": _by_overlap,
    "negation": _by_negation,
    CATEGORY: _by_category,
}


def _words(sentence: str) -> list[str]:
    return _WORD.findall(sentence.lower().replace("\u2019", "'"))


def _negates(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")
