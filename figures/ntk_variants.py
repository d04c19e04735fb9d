"""Variants of ProjNormLinear on tangent kernels: chosen on the probe families, reported on the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path

from deep.comparison.kernels_of_run import SubsetQuality, VariantQuality, subset_qualities, variant_qualities
from deep.comparison.runs import kernel_scores
from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores
from figures import deep_table, ntk_panels, ntk_targets
from figures.report import Drawing, Report
from figures.table import Column, Number, Table, number
from ntk.experiments.variants import PLAIN
from projnorm.core.errors import InputError
from projnorm.core.records import Record

CAPTION = (
    "R^2 and Spearman's rank correlation r_s with the error of the fine-tuned network. The first line is the variant "
    "with the largest R^2 on the clean set and the probe families (gaussian noise, gaussian blur, contrast, "
    "brightness); the others follow in that order. The ridge is in units of the mean eigenvalue."
)
SIZES_CAPTION = (
    "R^2 and r_s from fewer samples of the training set and of each target: of ProjNormLinear as it is "
    "defined, and of the variant that is best on the probes at that size."
)
_MOST_ROWS = 8
_PARTS = ("probes", "others", "all")
# The paper's figure shows these targets.
_PAPER_ALIGNED = "snow-1"
_PAPER_DECAYS = ("clean", "snow-1", "pixelate-1", "motion_blur-1", "gaussian_noise-1")


def show(record: Record, folder: Path | None) -> Report:
    """ProjNormLinear and its variants against the error of the fine-tuned network of a run."""
    if folder is None:
        raise InputError(f"{record.id} is shown with the run that it belongs to: projnorm runs show {record.id}")
    intervals = ("proposition", "generalised", "sharp", "joint", "spherical")
    facts = ("targets", "families", "severities", "network_error", "error", "projnorm", "rho", "eta", "overlap")
    keys = (*facts, "test_loss", *intervals)
    run, variants, sizes = record.config["run"], variant_qualities(record), subset_qualities(record)
    blocks: list[str | Table] = [build(variants), CAPTION]
    return Report(
        blocks + ([by_size(sizes), SIZES_CAPTION] if sizes else []),
        {"ntk_panels": paper_panels(record), **ntk_targets.drawings(record)},
        {
            "rows": deep_table.values(qualities(Scores.from_targets(kernel_scores(folder.parent / run)))),
            "variants": [
                {"variant": row.variant} | {part: list(astuple(getattr(row, part))) for part in _PARTS}
                for row in variants
            ],
            "sizes": [
                {"n": row.n, "m": row.m}
                | {part: list(astuple(getattr(row.plain, part))) for part in ("r_squared", "spearman")}
                | {"chosen": None if row.chosen is None else asdict(row.chosen)}
                for row in sizes
            ],
            "targets": {key: record.arrays[key].tolist() for key in keys},
        },
        title=f"ProjNormLinear on tangent kernels of {run}",
        tables={"ntk_variants": build(variants), **({"ntk_sizes": by_size(sizes)} if sizes else {})},
        record=record,
    )


def by_size(sizes: Sequence[SubsetQuality]) -> Table:
    """A row for each number of samples."""
    columns: dict[str, Column] = {
        "n": number("n", ".0f"),
        "m": number("m", ".0f"),
        "R^2 as defined": number("plain.r_squared"),
        "r_s as defined": number("plain.spearman"),
        "chosen on the probes": lambda row: "none" if row.chosen is None else row.chosen.variant,
        "R^2 others": lambda row: Number(math.nan if row.chosen is None else row.chosen.others.r_squared),
        "R^2 all": lambda row: Number(math.nan if row.chosen is None else row.chosen.all.r_squared),
    }
    return Table.from_rows(sizes, columns)


def paper_panels(record: Record) -> Drawing:
    """The three panels on kernels with the targets that the paper shows, where they are there."""
    known = record.arrays["targets"].tolist()
    aligned = _PAPER_ALIGNED if _PAPER_ALIGNED in known else None
    decays = [name for name in _PAPER_DECAYS if name in known]
    return ntk_panels.draw.later(record, aligned=aligned, decays=decays if decays[1:] else None)


def build(variants: Sequence[VariantQuality]) -> Table:
    """The best variants, and the plain one wherever it stands."""
    columns: dict[str, Column] = {"variant": lambda row: row.variant}
    for part in _PARTS:
        columns[f"R^2 {part}"] = number(f"{part}.r_squared")
        columns[f"r_s {part}"] = number(f"{part}.spearman")
    return Table.from_rows(
        [row for i, row in enumerate(variants) if i < _MOST_ROWS or row.variant == str(PLAIN)], columns
    )
