"""Files of natural language inference in the formats in which they are published.

One reader serves all: JSON lines or tab-separated values with a header, plain or in a zip file. Columns and labels are
recognised by the names that MNLI, SNLI, HANS, Breaking-NLI, EQUATE, SICK and STRESS-TEST use.

- MNLI, SNLI, STRESS-TEST: ``sentence1``, ``sentence2``, ``gold_label``; a gold label of ``-`` means that the annotators
  did not agree, and the pair is skipped and counted.
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
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.errors import InputError
from projnorm.core.files import UNREADABLE, memory_ceiling, parse_json, read_file, reason

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
# Largest size in bytes of an unpacked file, and lengths in characters of a sentence and of a quoted label.
_LARGEST = 1_000_000_000
_LONGEST_SENTENCE = 10_000
_LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Premises and hypotheses with labels.

    Attributes:
        name: File or data set that the pairs come from.
        premises: Premise of each pair.
        hypotheses: Hypothesis of each pair.
        labels: Class of each pair, as an index into `classes`.
        classes: `LABELS`, or `TWO_WAY` if the file does not distinguish neutral from contradiction.
        facts: Values of further columns by name, one for each pair.
        unlabelled: Number of pairs that were skipped because they have no gold label.
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
        """Hash of the sentences, the labels and the classes."""
        text = json.dumps([self.premises, self.hypotheses, self.labels.tolist(), self.classes])
        return hashlib.sha256(text.encode()).hexdigest()

    def take(self, indices: Sequence[int] | NDArray[np.integer], name: str | None = None) -> Pairs:
        """The pairs with these indices, optionally under another name."""
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
    """Read a file in any of the published formats.

    Args:
        path: A ``.jsonl``, ``.tsv`` or ``.txt`` file, or a ``.zip`` file that contains one of these.
        keep: Names of further columns to read, such as ``category``; lines that lack one get an empty text.
    """
    premises, hypotheses, labels = [], [], []
    facts: dict[str, list[str]] = {key: [] for key in keep}
    unlabelled = 0
    for line, row in _rows(path):
        spelling = _as_text(row[_column(line, row, _LABEL)])
        if spelling in _NO_LABEL:
            unlabelled += 1
            continue
        premise, hypothesis = (_sentence(line, row, names) for names in (_PREMISE, _HYPOTHESIS))
        label = _SPELLINGS.get(spelling.lower())
        if label is None:
            raise InputError(
                f"{line}: {spelling[:_LONGEST_LABEL]!r} is not a label; labels are {', '.join(_SPELLINGS)}."
            )
        premises.append(premise)
        hypotheses.append(hypothesis)
        labels.append(label)
        for key, values in facts.items():
            values.append(_as_text(row.get(key, "")))
    if not labels:
        raise InputError(f"{path}: has no labelled pairs.")
    classes = TWO_WAY if "non-entailment" in labels else LABELS
    if not set(labels) <= set(classes):
        raise InputError(f"{path}: has both three-way and two-way labels: {', '.join(sorted(set(labels)))}.")
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
    """Concatenate sets that have the same classes and were read with the same `keep`."""
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


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file as dictionaries, each with the file and line that messages name."""
    lines = _lines(path)
    first_line, first = next(lines, (f"{path}, line 1", ""))
    if not first.strip():
        raise InputError(f"{first_line}: is empty.")
    if first.lstrip().startswith("{"):
        for line, text in chain([(first_line, first)], lines):
            try:
                row = parse_json(text.encode())
            except InputError:
                raise InputError(f"{line}: is not JSON.") from None
            if not isinstance(row, dict):
                raise InputError(f"{line}: is not a JSON object.")
            yield line, row
        return
    header = first.split("\t")
    for names in (_PREMISE, _HYPOTHESIS, _LABEL):
        if not set(names) & set(header):
            raise InputError(f"{first_line}: must be JSON, or a tab-separated header with one of {', '.join(names)}.")
    for line, text in lines:
        cells = text.split("\t")
        if len(cells) != len(header):
            raise InputError(f"{line}: has {len(cells)} columns; the header has {len(header)}.")
        yield line, dict(zip(header, cells, strict=True))


def _column(line: str, row: Mapping[str, Any], names: Sequence[str]) -> str:
    for name in names:
        if name in row:
            return name
    raise InputError(f"{line}: has none of {', '.join(names)}.")


def _as_text(value: Any) -> str:
    """A label or the value of a column as text; lists and objects are not written out."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict) else str(value).strip()


def _sentence(line: str, row: Mapping[str, Any], names: Sequence[str]) -> str:
    name = _column(line, row, names)
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{line}: its {name} is not a text.")
    if len(value) > _LONGEST_SENTENCE:
        raise InputError(f"{line}: its {name} has more than {_LONGEST_SENTENCE:,} characters.")
    return value.strip()


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """The first line and all that are not blank, without line ends, each with the file and its number from 1."""
    data = read_file(path)
    if data[:4] == b"PK\x03\x04":
        data = _unpacked(path, data)
    stream = io.BytesIO(data)  # a list of all lines would need far more memory
    stream.seek(len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0)
    for number, line in enumerate(stream, start=1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: is not UTF-8 text.") from None
        if text.strip() or number == 1:
            yield f"{path}, line {number}", text.removesuffix("\n").rstrip("\r")


def _holds_pairs(member: str) -> bool:
    name = member.rpartition("/")[2].lower()
    return name.endswith((".jsonl", ".tsv", ".txt")) and not name.startswith(("._", "readme", "license"))


def _unpacked(path: Path, data: bytes) -> bytes:
    """The content of the one file of pairs in an archive; nothing is unpacked to disk."""
    most = min(_LARGEST, memory_ceiling())
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if _holds_pairs(member.filename)]
            if len(members) != 1:
                raise InputError(f"{path}: must hold one .jsonl, .tsv or .txt file; it holds {len(members)}.")
            member = members[0]
            if member.file_size > most:
                raise InputError(f"{path}: unpacks to more than {most:,} bytes.")
            # Other decompressors unpack a whole block at once, however large.
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise InputError(f"{path}: is compressed in an unusual way; pass the file that is in it.")
            with archive.open(member) as file:
                content = file.read(member.file_size)  # without a size, zipfile would unpack everything there is
                if len(content) < member.file_size or file.read(1):
                    raise InputError(f"{path}: is a damaged archive (a size in it is wrong).")
                return content
    except InputError:
        raise
    except (*UNREADABLE, OSError) as error:
        raise InputError(f"{path}: is a damaged archive ({reason(error)}).") from None
