"""Files of natural language inference in the forms they are published in.

One reader for all: JSON lines or tab-separated values with a header, plain or in a zip. Columns and labels are found by
the names that MNLI, SNLI, HANS, Breaking-NLI, EQUATE, SICK and STRESS-TEST give them.

- MNLI, SNLI, STRESS-TEST: ``sentence1``, ``sentence2``, ``gold_label``; a gold label of ``-`` means that the annotators
  did not agree, and the pair is passed over and counted.
- HANS: the same, with ``non-entailment`` for neutral and contradiction together.
- Breaking-NLI: JSON lines in a zip.
- Numbers 0, 1, 2 are entailment, neutral, contradiction.
- SICK: ``sentence_A``, ``sentence_B``, ``entailment_judgment`` or ``entailment_label``, in capitals.
- EQUATE: ``s1raw``, ``s2raw`` or ``premise``, ``hypothesis``.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.errors import InputError
from projnorm.files import memory_ceiling, parse_json, read_file

LABELS = ("entailment", "neutral", "contradiction")
TWO_WAY = ("entailment", "non-entailment")

_PREMISE = ("sentence1", "premise", "sentence_A", "s1raw")
_HYPOTHESIS = ("sentence2", "hypothesis", "sentence_B", "s2raw")
_LABEL = ("gold_label", "label", "entailment_judgment", "entailment_label", "answer")
_NO_LABEL = ("-", "", "-1", "None")
_SPELLINGS = {
    "entailment": "entailment",
    "entails": "entailment",
    "neutral": "neutral",
    "contradiction": "contradiction",
    "contradicts": "contradiction",
    "non-entailment": "non-entailment",
    "not_entailment": "non-entailment",
    "0": "entailment",
    "1": "neutral",
    "2": "contradiction",
}
# A file that unpacks to more is not read.
_LARGEST = 1_000_000_000
_LONGEST = 10_000
_LONGEST_LABEL = 40
# What zipfile and zlib raise on bytes that are no archive.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    OSError,
)


class MalformedFileError(InputError):
    """A file is not in the form it should be in; the message names the line."""


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Premises and hypotheses with labels.

    Attributes:
        name: Where they come from.
        premises: One text a pair.
        hypotheses: One text a pair.
        labels: Indices into `classes`.
        classes: `LABELS`, or `TWO_WAY` where the file does not tell neutral from contradiction.
        facts: Other columns that were asked for, one text a pair.
        unlabelled: Pairs of the file that were passed over for want of a gold label.
    """

    name: str
    premises: tuple[str, ...]
    hypotheses: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    facts: Mapping[str, tuple[str, ...]]
    unlabelled: int = 0

    def __len__(self) -> int:
        return len(self.premises)

    @property
    def sha256(self) -> str:
        """Of texts, labels and classes."""
        text = json.dumps([self.premises, self.hypotheses, self.labels.tolist(), self.classes])
        return hashlib.sha256(text.encode()).hexdigest()

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str | None = None) -> Pairs:
        """The pairs with these indices, under another name if one is given."""
        chosen = [int(index) for index in indices]
        return replace(
            self,
            name=name or self.name,
            premises=tuple(self.premises[i] for i in chosen),
            hypotheses=tuple(self.hypotheses[i] for i in chosen),
            labels=self.labels[chosen],
            facts={key: tuple(values[i] for i in chosen) for key, values in self.facts.items()},
            unlabelled=0,
        )


def read_pairs(path: Path, *, keep: Sequence[str] = ()) -> Pairs:
    """Read a file in any of the published forms.

    Args:
        path: A ``.jsonl``, ``.tsv`` or ``.txt`` file, or a ``.zip`` that holds one of these.
        keep: Other columns to keep, such as ``category``; empty where a line lacks one.

    Raises:
        MalformedFileError: If it is in none of them; the line is named.
        OSError: If it cannot be read.
    """
    premises, hypotheses, labels = [], [], []
    facts: dict[str, list[str]] = {key: [] for key in keep}
    unlabelled = 0
    for number, row in _rows(path):
        spelt = _spelt(row[_column(path, number, row, _LABEL)])
        if spelt in _NO_LABEL:
            unlabelled += 1
            continue
        premise, hypothesis = (_text(path, number, row, names) for names in (_PREMISE, _HYPOTHESIS))
        label = _SPELLINGS.get(spelt.lower())
        if label is None:
            raise MalformedFileError(
                f"{path}, line {number}: {spelt[:_LONGEST_LABEL]!r} is no label; known are {', '.join(_SPELLINGS)}."
            )
        premises.append(premise)
        hypotheses.append(hypothesis)
        labels.append(label)
        for key, values in facts.items():
            values.append(_spelt(row.get(key, "")))
    if not labels:
        raise MalformedFileError(f"{path}: has no labelled pair.")
    classes = TWO_WAY if "non-entailment" in labels else LABELS
    if not set(labels) <= set(classes):
        raise MalformedFileError(f"{path}: has both three-way and two-way labels: {', '.join(sorted(set(labels)))}.")
    return Pairs(
        path.name,
        tuple(premises),
        tuple(hypotheses),
        np.array([classes.index(label) for label in labels]),
        classes,
        {key: tuple(values) for key, values in facts.items()},
        unlabelled,
    )


def joined(name: str, parts: Sequence[Pairs]) -> Pairs:
    """Several sets as one; they have the same classes and were read with the same `keep`.

    Raises:
        InputError: If there is none, or some are two-way and others are not.
    """
    if len({part.classes for part in parts}) != 1:
        names = ", ".join(part.name for part in parts) or "none"
        raise InputError(f"{name}: sets that are joined must have the same classes; got {names}.")
    return Pairs(
        name,
        tuple(text for part in parts for text in part.premises),
        tuple(text for part in parts for text in part.hypotheses),
        np.concatenate([part.labels for part in parts]),
        parts[0].classes,
        {key: tuple(v for part in parts for v in part.facts[key]) for key in parts[0].facts},
        sum(part.unlabelled for part in parts),
    )


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _lines(path)
    first = next(lines, None)
    if first is None or not first[1].strip():
        raise MalformedFileError(f"{path}, line 1: is empty.")
    if first[1].lstrip().startswith("{"):
        yield _json_row(path, *first)
        for number, line in lines:
            yield _json_row(path, number, line)
        return
    header = first[1].split("\t")
    for names in (_PREMISE, _HYPOTHESIS, _LABEL):
        if not set(names) & set(header):
            raise MalformedFileError(
                f"{path}, line 1: neither JSON nor a header with one of {', '.join(names)} between tabs."
            )
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) != len(header):
            raise MalformedFileError(f"{path}, line {number}: has {len(cells)} columns; the header has {len(header)}.")
        yield number, dict(zip(header, cells, strict=True))


def _json_row(path: Path, number: int, line: str) -> tuple[int, dict[str, Any]]:
    try:
        row = parse_json(line.encode())
    except ValueError:
        raise MalformedFileError(f"{path}, line {number}: is no JSON.") from None
    if not isinstance(row, dict):
        raise MalformedFileError(f"{path}, line {number}: is no JSON object.")
    return number, row


def _column(path: Path, number: int, row: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        if name in row:
            return name
    raise MalformedFileError(f"{path}, line {number}: has none of {', '.join(names)}.")


def _spelt(value: Any) -> str:
    """A label or a fact as text; of what holds others, that it does."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else str(value).strip()


def _text(path: Path, number: int, row: Mapping[str, Any], names: Sequence[str]) -> str:
    name = _column(path, number, row, names)
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise MalformedFileError(f"{path}, line {number}: its {name} is no text.")
    if len(value) > _LONGEST:
        raise MalformedFileError(f"{path}, line {number}: its {name} has more than {_LONGEST:,} characters.")
    return value.strip()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The first line and those that are not blank, numbered from 1, without their ends."""
    data = read_file(path)
    if data[:4] == b"PK\x03\x04":
        data = _unpacked(path, data)
    stream = io.BytesIO(data)  # a list of all lines would be far larger than they are
    stream.seek(len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise MalformedFileError(f"{path}, line {number}: is no UTF-8 text.") from None
        if text.strip() or number == 1:
            yield number, text.removesuffix("\n").rstrip("\r")


def _holds_pairs(member: str) -> bool:
    name = member.rpartition("/")[2].lower()
    return name.endswith((".jsonl", ".tsv", ".txt")) and not name.startswith(("._", "readme", "license"))


def _unpacked(path: Path, data: bytes) -> bytes:
    """The one file of pairs in an archive; nothing is written to the disk."""
    most = min(_LARGEST, memory_ceiling())
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = [info for info in archive.infolist() if _holds_pairs(info.filename)]
            if len(inside) != 1:
                raise MalformedFileError(f"{path}: must hold one .jsonl, .tsv or .txt file; it holds {len(inside)}.")
            if inside[0].file_size > most:
                raise MalformedFileError(f"{path}: unpacks to more than {most:,} bytes.")
            # Others unpack as much at once as a file makes them.
            if inside[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise MalformedFileError(f"{path}: is compressed in an unusual way; pass the file that is in it.")
            with archive.open(inside[0]) as file:
                found = file.read(inside[0].file_size)  # asked for all of it, zipfile unpacks what there is
                if len(found) < inside[0].file_size or file.read(1):
                    raise MalformedFileError(f"{path}: is a damaged archive (a size in it is wrong).")
                return found
    except MalformedFileError:
        raise
    except _UNREADABLE as problem:
        raise MalformedFileError(f"{path}: is a damaged archive ({' '.join(str(problem).split())}).") from None
