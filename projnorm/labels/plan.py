"""Which samples of a target to label: drawn at random within strata, with known probabilities, in a file to fill in."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projnorm.core.atomic import write_atomically
from projnorm.core.errors import InputError
from projnorm.core.files import decoding, read_file

SAMPLE, STRATUM, LABEL = "sample", "stratum", "label"
_COLUMNS = (SAMPLE, STRATUM, "stratum_size", "expected_error", "probability", LABEL)
_ROW, _AT_FIRST, _LATER = "row", "at_first", "no"
_SEPARATORS = (",", ";", "\t")
_WHAT = "{}: is no file of samples to label"
_LARGEST_FILE = 1_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class LabelPlan:
    """Samples to label, in this order, with the labels that are known.

    >>> import projnorm as pn
    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> plan = pn.choose_labels(None, source, target.without_labels(), budget=40)
    >>> len(plan), int(plan.sizes.sum()), int(plan.is_labelled.sum())
    (40, 200, 0)
    >>> plan = plan.with_labels(dict(enumerate(target.labels)))
    >>> int(plan.is_labelled.sum())
    40

    Attributes:
        samples: Row of each sample in the target, counted from 0, shape ``(n,)``.
        strata: Stratum of each, shape ``(n,)``.
        sizes: Number of samples of the target in each stratum, shape ``(strata,)``.
        expected: Error that the outputs predict in each stratum.
        labels: Label of each sample as it was filled in; empty where there is none yet.
        at_first: Number of them that were chosen at first; the others were added later, perhaps after a look at labels.
            None for all.

    Examples:
        >>> import numpy as np
        >>> import projnorm as pn
        >>> plan = pn.LabelPlan(
        ...     samples=np.array([5, 2, 7]),
        ...     strata=np.array([0, 0, 1]),
        ...     sizes=np.array([8, 4]),
        ...     expected=np.array([0.1, 0.4]),
        ...     labels=("", "", ""),
        ... )
        >>> plan.with_labels({5: "cat"}).labels
        ('cat', '', '')
        >>> plan.probabilities.tolist()
        [0.25, 0.25, 0.25]
    """

    samples: NDArray[np.int64]
    strata: NDArray[np.int64]
    sizes: NDArray[np.int64]
    expected: NDArray[np.float64]
    labels: tuple[str, ...]
    at_first: int | None = None

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability with which each sample came to be among those to label."""
        drawn = np.bincount(self.strata, minlength=len(self.sizes))
        return drawn[self.strata] / self.sizes[self.strata]

    @property
    def is_labelled(self) -> NDArray[np.bool_]:
        """Whether each sample has a label."""
        return np.array([bool(label) for label in self.labels], dtype=bool)

    @property
    def is_one_draw(self) -> bool:
        """Whether all samples were chosen at first, so that how many there are does not depend on labels."""
        return self.at_first is None or self.at_first == len(self)

    def with_labels(self, labels: Mapping[int, object]) -> LabelPlan:
        """The plan with more labels.

        Args:
            labels: Labels by row of the target: of some of the chosen samples, or of all rows of the target.

        Raises:
            InputError: If they are not given by row, or for rows that were not chosen.
        """
        if not isinstance(labels, Mapping):
            raise InputError(
                "`labels` must be a mapping from rows of the target to labels, such as "
                f"dict(zip(plan.samples.tolist(), labels)); got {type(labels).__name__}."
            )
        chosen = set(self.samples.tolist())
        if (others := [row for row in labels if row not in chosen]) and not chosen <= labels.keys():
            raise InputError(
                f"`labels` must be of chosen rows, which are `plan.samples`; row {others[0]} is not among them."
            )
        filled_in = [
            str(labels[sample]) if sample in labels else label
            for sample, label in zip(self.samples.tolist(), self.labels, strict=True)
        ]
        return replace(self, labels=tuple(filled_in))

    def write(self, path: str | Path, *, rows: Sequence[object] = ()) -> None:
        """Write a CSV file with an empty column `label` to fill in, or with the labels that are known.

        Args:
            path: The file.
            rows: What a person finds each sample of the target by, such as its row in a larger table; a column `row`.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*_COLUMNS, _AT_FIRST, *([_ROW] if len(rows) else [])])
        numbers = zip(self.samples, self.strata, self.probabilities, self.labels, strict=True)
        for position, (sample, stratum, probability, label) in enumerate(numbers):
            size, expected = self.sizes[stratum], repr(float(self.expected[stratum]))
            first = "yes" if self.at_first is None or position < self.at_first else _LATER
            row_names = [rows[sample]] if len(rows) else []
            writer.writerow([sample, stratum, size, expected, f"{probability:.6g}", label, first, *row_names])
        write_atomically(Path(path), text.getvalue().encode())

    @classmethod
    def read(cls, path: str | Path) -> LabelPlan:
        """Read a file that `write` wrote, with the labels that were filled in since.

        Args:
            path: The CSV file; a spreadsheet may have saved it with another separator.

        Returns:
            The chosen samples, with the labels that the column `label` has by now.

        Raises:
            InputError: If the file was not written by `write`, or its rows no longer fit together.
        """
        with decoding(_WHAT.format(path), csv.Error):
            rows = _rows(path)
            if missing := [column for column in _COLUMNS if column not in rows[0]]:
                raise ValueError(f"it has no column {missing[0]}")
            samples, strata, rowsizes = (
                np.array([_whole(row[name]) for row in rows], dtype=np.int64)
                for name in (SAMPLE, STRATUM, "stratum_size")
            )
            rates = np.array([float(row["expected_error"]) for row in rows])
            if len(set(samples.tolist())) < len(samples) or samples.min() < 0:
                raise ValueError("a sample is there twice, or negative")
            numbers, first = np.unique(strata, return_index=True)
            count = len(numbers)
            if not np.array_equal(numbers, np.arange(count)):
                raise ValueError("strata are not numbered from 0")
            sizes, expected = rowsizes[first], rates[first]
            drawn = np.bincount(strata, minlength=count)
            if (rowsizes != sizes[strata]).any() or (drawn > sizes).any() or not np.isfinite(expected).all():
                raise ValueError("sizes of strata do not fit together")
            known = np.array([float(row["probability"]) for row in rows])
            if not np.allclose(known, drawn[strata] / rowsizes, rtol=2e-3):  # a spreadsheet may have rounded
                raise ValueError("rows are missing; where there is no label leave it empty")
            at_first = sum((row.get(_AT_FIRST) or "").strip() != _LATER for row in rows)
            labels = tuple((row[LABEL] or "").strip() for row in rows)
            return cls(samples, strata, sizes, expected, labels, None if at_first == len(rows) else at_first)


def read_labels(path: str | Path) -> LabelPlan | dict[str, NDArray[Any]]:
    """What `LabelPlan.write` wrote; or the columns `sample` and `label` of a file with samples of a uniform draw.

    Raises:
        InputError: If the file is neither.
    """
    with decoding(_WHAT.format(path), csv.Error):
        rows = _rows(path)
        if STRATUM not in rows[0] and SAMPLE in rows[0] and LABEL in rows[0]:
            labels = [(row[LABEL] or "").strip() or None for row in rows]
            return {SAMPLE: np.array([_whole(row[SAMPLE]) for row in rows]), LABEL: np.array(labels, dtype=object)}
    return LabelPlan.read(path)


def _rows(path: str | Path) -> list[dict[str, str]]:
    """Rows of a CSV file, one at least, with whichever separator a spreadsheet chose; empty rows are left out."""
    text = read_file(Path(path), most=_LARGEST_FILE).decode("utf-8-sig")
    header = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=header.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator)
    rows = [row for row in reader if any((value or "").strip() for name, value in row.items() if name is not None)]
    if not rows:
        raise ValueError("it has no row")
    return rows


def _whole(text: str) -> int:
    """A whole number, also as a spreadsheet writes it."""
    try:
        number = float(text)
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise ValueError(f"{text!r} is no whole number")
    return int(number)
