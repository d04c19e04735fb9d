"""Texts with their labels, from files: CSV, TSV, JSON lines or NPZ with `text` and, where they are known, `label`.

A ``.gz`` file holds lines of a label, a tab and a text, without a header.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from projnorm.core.arrays import form, read_arrays
from projnorm.core.errors import InputError
from projnorm.core.files import decoding, gunzipped, locate, parse_json, read_file
from projnorm.data.encoding import Tokens
from projnorm.data.samples import SampleSet

_TEXT, _LABEL = "text", "label"
_DIALECTS = {".csv": "excel", ".tsv": "excel-tab"}
_JSON, _ZIPPED, _NPZ = ".jsonl", ".gz", ".npz"
ENDINGS = (*_DIALECTS, _JSON, _ZIPPED, _NPZ)


def read_texts(path: Path, encode: Callable[[Sequence[str]], Tokens]) -> SampleSet:
    """The texts of a file, encoded; classes are numbered in the order of their names.

    Args:
        path: A ``.csv`` or ``.tsv`` file whose first line names its columns, a ``.jsonl``, ``.gz`` or ``.npz`` file.
        encode: Function from texts to `SampleSet.inputs`.
    """
    path = locate(path)
    texts, labels = texts_and_labels(path)
    if not labels:
        return SampleSet(path.name, encode(texts))
    names, numbers = np.unique(labels, return_inverse=True)
    return SampleSet(path.name, encode(texts), numbers.astype(np.int64), tuple(names.tolist()))


def are_texts(path: Path) -> bool:
    """Whether a file holds single texts: by its ending or, where pairs of sentences have it too, by its first row."""
    ending = path.suffix.lower()
    if ending not in (".tsv", _JSON):
        return ending in ENDINGS
    with decoding(f"{path}: is not UTF-8 text"):
        first = read_file(path).decode("utf-8-sig").partition("\n")[0]
    return f'"{_TEXT}"' in first if ending == _JSON else _TEXT in first.rstrip("\r").split("\t")


def texts_and_labels(path: Path) -> tuple[list[str], list[str]]:
    """The texts of a file and the names of their classes, one for each text or none at all."""
    texts: list[str] = []
    labels: list[str] = []
    for line, row in _rows(path):
        text, label = row.get(_TEXT), row.get(_LABEL)
        # Published reviews in the compressed format may be empty.
        if not isinstance(text, str) or not (text.strip() or path.suffix.lower() == _ZIPPED):
            raise InputError(f"{line}: needs a `{_TEXT}` that is not empty.")
        texts.append(text)
        if label is not None and str(label).strip():
            labels.append(str(label).strip())
    if not texts:
        raise InputError(f"{path}: holds no text.")
    if labels and len(labels) != len(texts):
        raise InputError(
            f"{path}: must have a `{_LABEL}` in every row, or in none; {len(texts) - len(labels):,} of {len(texts):,} "
            "have none."
        )
    return texts, labels


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a file, each with the place that messages name."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{path}: texts must be in a {', '.join(ENDINGS[:-1])} or {_NPZ} file.")
    if not path.exists():
        raise InputError(f"there is no file {path}.")
    if ending == _NPZ:
        yield from _array_rows(path)
        return
    if ending == _ZIPPED:
        yield from _zipped_rows(path)
        return
    try:
        content = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text.") from None
    if ending == _JSON:
        yield from _json_rows(path, content)
        return
    reader = csv.DictReader(io.StringIO(content, newline=""), dialect=_DIALECTS[ending], strict=True)
    try:
        if _TEXT not in (reader.fieldnames or ()):
            raise InputError(f"{path}: has no column `{_TEXT}`; it has {', '.join(reader.fieldnames or ()) or 'none'}.")
        for row in reader:
            yield f"{path}, line {reader.line_num}", row
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: cannot be read ({error}).") from None


def _zipped_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with decoding(f"{path}: not a whole gzip file", OSError):
        content = gunzipped(read_file(path)).decode("utf-8", "replace")  # reviews may hold stray bytes
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if not tab:
            raise InputError(f"{path}, line {number}: must be a label, a tab and a text.")
        yield f"{path}, line {number}", {_TEXT: text, _LABEL: label}


def _json_rows(path: Path, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.encode())
        except InputError:
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number}: is not a JSON object.")
        yield f"{path}, line {number}", row


def _array_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    arrays = read_arrays(path)
    if _TEXT not in arrays:
        raise InputError(f"{path}: has no array `{_TEXT}`; it has {', '.join(sorted(arrays)) or 'none'}.")
    texts, labels = arrays[_TEXT], arrays.get(_LABEL)
    if texts.ndim != 1 or texts.dtype.kind != "U":
        raise InputError(f"{path}: `{_TEXT}` must be texts, one per sample; got {form(texts)}.")
    if labels is not None and (labels.shape != texts.shape or labels.dtype.kind not in "iuU"):
        raise InputError(f"{path}: `{_LABEL}` must be {len(texts)} names or whole numbers; got {form(labels)}.")
    for index, text in enumerate(texts.tolist()):
        yield f"{path}, row {index}", {_TEXT: text, _LABEL: None if labels is None else labels[index].item()}
