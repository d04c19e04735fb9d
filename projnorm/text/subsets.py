"""Parts of a set of pairs that are easy to name: by word overlap, by negation, by a category of the file's own."""

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
# Share of the hypothesis's different words that the premise has too.
_OVERLAPS = {"low overlap": (0.0, 1 / 3), "middle overlap": (1 / 3, 2 / 3), "high overlap": (2 / 3, np.inf)}
CATEGORY = "category"


def overlap(pairs: Pairs) -> NDArray[np.float64]:
    """Share of the different words of each hypothesis that its premise has too; 0 where it has no word."""
    shares = []
    for premise, hypothesis in zip(pairs.premises, pairs.hypotheses, strict=True):
        words = set(_words(hypothesis))
        shares.append(len(words & set(_words(premise))) / max(1, len(words)))
    return np.array(shares)


def negated(pairs: Pairs) -> NDArray[np.bool_]:
    """Whether either sentence of a pair has a word of negation, or one that ends in n't."""
    both = zip(pairs.premises, pairs.hypotheses, strict=True)
    return np.array([any(map(_negates, [*_words(one), *_words(other)])) for one, other in both])


def subsets(pairs: Pairs, kind: str) -> dict[str, NDArray[np.intp]]:
    """Indices of the pairs of every part, by name; what is empty is not there.

    Args:
        pairs: A whole set.
        kind: "overlap", "negation", or "category", which the set must have been read with.
    """
    return {name: found for name, found in _KINDS[kind](pairs) if len(found)}


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
