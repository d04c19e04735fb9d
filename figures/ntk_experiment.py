"""What experiments on tangent kernels say: the kernels, the theory checked on them, and ProjNormLinear on a network."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from figures import ntk_panels, ntk_targets
from figures.report import Report
from figures.table import Column, Number, Table, number
from projnorm.core.records import Record
from projnorm.core.statistics import FitQuality, fit_quality
from projnorm_theory.bounds import holds

_GRAM = "The trace of a set's kernel is the sum of the squared lengths of its tangent features."
TABLE_CAPTION = (
    "rho: norm of the truth in the shifted row space over that in the training one, eta: in the rows of both sets over "
    "that, both from the labels. c: overlap with nothing assumed shared. The last columns say whether an interval "
    "holds the loss: ours at k = 0, the sharp and the joint one must; the paper's at k = 0 and the 90 % prediction "
    "interval for truths of random direction need not."
)
# Numbers in a warning, which differ from set to set.
_NUMBERS = re.compile(r"\d[\d.e+-]*")
# Through two points there is always a line.
_FEWEST = 3


def _holds(interval: str) -> Column:
    """A column that says whether an interval holds the loss: a dash where the loss is not known."""
    words = {True: "holds", False: "fails", None: "none"}
    return lambda row: "-" if math.isnan(row["test_loss"]) else words[row[f"{interval}_holds"]]


_COLUMNS: dict[str, Column] = {
    "target": lambda row: row["target"],
    "ProjNormLinear": number("projnorm", ".4f"),
    "error (%)": number("error", ".1f", 100),
    "rho": number("rho"),
    "eta": number("eta"),
    "c": number("overlap"),
    "decay": number("exponent", ".2f"),
    "loss": number("test_loss", ".4f"),
    "paper's": _holds("proposition"),
    "ours": _holds("generalised"),
    "sharp": _holds("sharp"),
    "joint": _holds("joint"),
    "random direction": _holds("spherical"),
}


def show_gram(record: Record, _folder: Path) -> Report:
    """Kernels that were computed, and how well they agree with gradients of autograd."""
    facts, sets, traces = record.facts, record.arrays["sets"].tolist(), record.arrays["trace"].tolist()
    table = Table(("set", "trace"), [(name, Number(trace, ".6g")) for name, trace in zip(sets, traces, strict=True)])
    blocks: list[str | Table] = [
        f"Tangent kernels of {facts['parameters']:,} parameters on {len(sets)} sets of samples.",
        table,
        _GRAM,
        f"Spot check against autograd: {facts['check_error']:.2g} of the scale.",
        f"Weights: {facts['weights']}.",
    ]
    if damaged := facts.get("damaged_tiles"):
        blocks.append(f"Computed again, because they were damaged: {', '.join(damaged)}.")
    return Report(
        blocks,
        values={"sets": sets, "trace": traces},
        title="Tangent kernels",
        tables={"ntk_traces": table},
        record=record,
    )


def _target_tables(record: Record) -> dict[str, Table]:
    """What is saved as files: every column of every target, whichever of them is shown."""
    return {"ntk_targets": Table.from_rows(target_rows(record), _COLUMNS)}


def show_analysis(record: Record, _folder: Path) -> Report:
    """The theory's assumptions and intervals on every target."""
    values = {"rows": target_rows(record), "train_exponent": float(record.arrays["train_decay"][0])}
    return Report(
        [Table.from_rows(target_rows(record), _COLUMNS), TABLE_CAPTION, *_notes(record)],
        {"ntk_panels": ntk_panels.draw.later(record), **ntk_targets.drawings(record)},
        values | asdict(_quality(record)),
        title="The theory on tangent kernels",
        tables=_target_tables(record),
        record=record,
    )


def show_predictions(record: Record, _folder: Path) -> Report:
    """ProjNormLinear beside the error of the kernel regression."""
    quality, follows = _quality(record), _verdict(record)
    columns = {name: _COLUMNS[name] for name in ("target", "ProjNormLinear")}
    columns["error of the kernel regression (%)"] = _COLUMNS["error (%)"]
    return Report(
        [Table.from_rows(target_rows(record), columns), follows, *_notes(record)],
        {"ntk_panels": ntk_panels.draw.later(record)},
        {"rows": target_rows(record), **asdict(quality)},
        title="ProjNormLinear on tangent kernels",
        verdict=follows,
        tables=_target_tables(record),
        record=record,
    )


def target_rows(record: Record) -> list[dict[str, Any]]:
    """One row per target."""
    arrays = record.arrays
    rows = []
    for i, name in enumerate(arrays["targets"].tolist()):
        row: dict[str, Any] = {"target": name}
        row |= {key: float(arrays[key][i]) for key in ("projnorm", "error", "rho", "eta", "overlap", "test_loss")}
        row["exponent"] = float(arrays["decay"][i, 0])
        for key in ("proposition", "generalised", "sharp", "joint", "spherical"):
            ends = arrays[key][i]
            row[key] = ends.tolist()
            known = not (np.isnan(ends).any() or np.isnan(arrays["test_loss"][i]))
            row[f"{key}_holds"] = bool(holds(arrays["test_loss"][i], ends)) if known else None
        rows.append(row)
    return rows


def _quality(record: Record) -> FitQuality:
    """How well ProjNormLinear follows the error; nan where too few targets say nothing of it."""
    projnorm, error = _labelled(record)
    return fit_quality(projnorm, error) if len(error) >= _FEWEST else FitQuality(math.nan, math.nan)


def _verdict(record: Record) -> str:
    """How well ProjNormLinear follows the error, or why that cannot be said."""
    projnorm, error = _labelled(record)
    against, count = "ProjNormLinear against the error", len(error)
    if not count:
        return f"{against}: no R^2, because no target has labels."
    if count < _FEWEST:
        return f"{against}: too few targets for R^2 ({count}; at least {_FEWEST} are needed)."
    for what, values in (("the errors", error), ("the values of ProjNormLinear", projnorm)):
        if np.ptp(values) == 0.0:
            return f"{against}: no R^2, because {what} do not vary over the {count} targets."
    quality = _quality(record)
    return f"{against}: R^2 = {quality.r_squared:.3f}, Spearman's r_s = {quality.spearman:.3f}, over {count} targets."


def _labelled(record: Record) -> tuple[np.ndarray, np.ndarray]:
    """ProjNormLinear and the error of the targets that have labels."""
    projnorm, error = record.arrays["projnorm"], record.arrays["error"]
    return projnorm[~np.isnan(error)], error[~np.isnan(error)]


def _notes(record: Record) -> list[str]:
    """Sentences without which the numbers may be misread."""
    unlabelled = record.arrays["targets"][np.isnan(record.arrays["error"])].tolist()
    return [
        *_rounding_notes(record),
        *([f"Without labels, so nothing is measured from them: {', '.join(unlabelled)}."] if unlabelled else []),
        f"Weights: {record.facts['weights']}.",
    ]


def _rounding_notes(record: Record) -> list[str]:
    """Each warning once, of the first set that it is about, with the names of the others."""
    sets: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for warning in record.facts["warnings"]:
        name, _, message = warning.partition(": ")
        kind = _NUMBERS.sub("", message)
        sets.setdefault(kind, []).append(name)
        first.setdefault(kind, message)
    notes = []
    for kind, names in sets.items():
        others = f" (likewise {', '.join(names[1:])})" if names[1:] else ""
        notes.append(f"Note on {names[0]}{others}: {first[kind]}.")
    return notes
