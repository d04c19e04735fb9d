"""Sentence pairs generated from templates, so that text experiments run without a download.

A premise says what somebody does somewhere. The hypothesis says less (entailment), something in addition (neutral), or
the opposite (contradiction). There are three kinds of shift at three strengths each: words that no training pair has,
filler around the sentences, and a negation in the premise, which inverts the meaning of one in the hypothesis.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from projnorm.core.errors import InputError
from projnorm.data.nli import LABELS, Pairs

TEMPLATES = "templates"
DIALS = ("words", "filler", "negation")
STRENGTHS = (1, 2, 3)
_NAME = re.compile(rf"{TEMPLATES}(?:-({'|'.join(DIALS)})-([{STRENGTHS[0]}-{STRENGTHS[-1]}]))?")
_SHIFTED_NAMES = f"one of {TEMPLATES}-words-1, {TEMPLATES}-filler-1, {TEMPLATES}-negation-1 with strength 1, 2 or 3"
_TRAINING, _SHIFTED = 6000, 1000
# Share of pairs with a random label, like mistakes of annotators; without errors there is nothing to calibrate.
_LABEL_NOISE = 0.15

# Each word with a synonym that no training pair has.
# fmt: off
_WHO = {
    "dog": "hound", "cat": "kitten", "man": "gentleman", "woman": "lady", "child": "toddler",
    "teacher": "professor", "doctor": "physician", "farmer": "peasant", "singer": "vocalist", "pilot": "aviator",
}
_LIKE = {
    "old": "ancient", "young": "youthful", "tall": "towering", "small": "tiny", "happy": "cheerful",
    "tired": "weary", "quiet": "silent", "brave": "fearless", "rich": "wealthy", "famous": "renowned",
}
_DO = {
    "run": "sprint", "sleep": "doze", "eat": "dine", "sing": "croon", "read": "study",
    "dance": "waltz", "work": "toil", "wait": "linger", "talk": "chat", "laugh": "giggle",
}
_WHERE = {
    "garden": "orchard", "kitchen": "pantry", "street": "avenue", "school": "academy", "office": "bureau",
    "park": "meadow", "forest": "woodland", "station": "terminal", "museum": "gallery", "church": "chapel",
}
# fmt: on
_SYNONYMS = _WHO | _LIKE | _DO | _WHERE
_FILLER = ("as everybody here knows", "on this rainy morning", "to tell the truth", "if you ask me", "once again")


def is_made(name: str) -> bool:
    """Whether this is the name of a generated set."""
    return _NAME.fullmatch(name) is not None


def made_family(name: str) -> tuple[str, int]:
    """The kind and the strength of shift of a shifted set."""
    match = _NAME.fullmatch(name)
    if match is None or match[1] is None:
        raise InputError(f"{name!r} is not a shifted set of templates; pass {_SHIFTED_NAMES}.")
    return match[1], int(match[2])


@lru_cache(maxsize=16)
def made_pairs(name: str) -> Pairs:
    """Generate a set by its name: "templates" for training, or a shifted one such as "templates-words-2".

    The pairs of a name are always the same.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise InputError(f"{name!r} is not a set of templates; pass {TEMPLATES!r}, or {_SHIFTED_NAMES}.")
    dial, strength = match[1], int(match[2] or 0)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    labels = rng.integers(len(LABELS), size=_SHIFTED if dial else _TRAINING)
    training = made_pairs(TEMPLATES) if dial else None
    taken = set(zip(training.premises, training.hypotheses, strict=True)) if training else set()
    pairs = []
    for label in labels:  # no pair occurs twice, or in the training set as well
        while (pair := _pair(LABELS[label], dial, strength / (1 + len(STRENGTHS)), rng)) in taken:
            pass
        taken.add(pair)
        pairs.append(pair)
    premises, hypotheses = zip(*pairs, strict=True)
    noisy = rng.random(len(labels)) < _LABEL_NOISE
    labels = np.where(noisy, rng.integers(len(LABELS), size=len(labels)), labels)
    return Pairs(name, premises, hypotheses, labels, LABELS, {})


def _one(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _pair(label: str, dial: str | None, share: float, rng: np.random.Generator) -> tuple[str, str]:
    who, like, do, where = (_one(list(words), rng) for words in (_WHO, _LIKE, _DO, _WHERE))
    turned = dial == "negation" and rng.random() < share
    verb, opposite = (f"does not {do}", f"does {do}") if turned else (f"does {do}", f"does not {do}")
    premise = f"the {like} {who} {verb}" + (f" in the {where}" if label != "neutral" else "")
    hypothesis = {
        "entailment": _one([f"the {who} {verb}", f"the {who} is {like}"], rng),
        "neutral": f"the {who} {verb} in the {where}",
        "contradiction": _one([f"the {who} {opposite}", f"the {who} is not {like}"], rng),
    }[label]
    if dial == "words":
        new = {word: _SYNONYMS[word] for word in (who, like, do, where) if rng.random() < share}
        premise, hypothesis = (" ".join(new.get(word, word) for word in t.split()) for t in (premise, hypothesis))
    if dial == "filler":
        premise, hypothesis = (_filled(text, share, rng) for text in (premise, hypothesis))
    return premise, hypothesis


def _filled(text: str, share: float, rng: np.random.Generator) -> str:
    before, after = (_one(_FILLER, rng) + " " if rng.random() < share else "" for _ in range(2))
    return f"{before}{text} {after}".strip()
