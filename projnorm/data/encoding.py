"""Pairs of sentences as arrays of tokens, the input of all text networks."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
# Function of premises, hypotheses and the largest number of tokens that returns `EncodedPairs.inputs`.
Encode = Callable[[Sequence[str], Sequence[str], int], Tokens]

# Rows of an encoded pair: token numbers, mask of tokens, sentence of each token.
IDS, MASK, TYPES = 0, 1, 2
HASHED_VOCABULARY = 4096
_CLS, _SEP, _FIRST_WORD = 1, 2, 3
_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPairs:
    """Encoded pairs with their labels.

    Attributes:
        name: Data set that the pairs come from.
        inputs: Token numbers, mask of tokens, and sentence of each token (0 or 1), shape ``(n, 3, length)``.
        labels: Classes, counted from 0, shape ``(n,)``.
    """

    name: str
    inputs: Tokens
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def sha256(self) -> str:
        """Hash of the shape, the tokens and the labels."""
        digest = hashlib.sha256(str(self.inputs.shape).encode())
        digest.update(self.inputs.astype("<i4").tobytes())
        digest.update(self.labels.astype("<i8").tobytes())
        return digest.hexdigest()

    def take(self, indices: NDArray[np.intp]) -> EncodedPairs:
        """The pairs with these indices."""
        return EncodedPairs(self.name, self.inputs[indices], self.labels[indices])


def hashed_words(premises: Sequence[str], hypotheses: Sequence[str], length: int) -> Tokens:
    """Encode pairs without a trained tokenizer: the number of a lower-case word is a hash of it.

    In pairs that are too long, the longer sentence is truncated first.
    """
    pairs = zip(premises, hypotheses, strict=True)
    encoded = [_pair(_words(premise), _words(hypothesis), length) for premise, hypothesis in pairs]
    out = np.zeros((len(encoded), 3, max(map(len, encoded), default=1)), dtype=np.int32)
    for row, tokens in zip(out, encoded, strict=True):
        row[IDS, : len(tokens)] = tokens
        row[MASK, : len(tokens)] = 1
        row[TYPES, tokens.index(_SEP) + 1 : len(tokens)] = 1
    return out


def _words(sentence: str) -> list[int]:
    words = _WORD.findall(sentence.lower())
    return [_FIRST_WORD + zlib.crc32(word.encode()) % (HASHED_VOCABULARY - _FIRST_WORD) for word in words]


def _pair(premise: list[int], hypothesis: list[int], length: int) -> list[int]:
    while len(premise) + len(hypothesis) > length - 3:
        (premise if len(premise) > len(hypothesis) else hypothesis).pop()
    return [_CLS, *premise, _SEP, *hypothesis, _SEP]
