"""Variants of ProjNormLinear on tangent kernels: chosen on the probe families, reported on the others."""

from __future__ import annotations

from typing import Any

from deep.experiments.ntk_predict import VariantQuality, variant_qualities
from figures.table import Cell, Number, Table
from ntk.variants import PLAIN
from projnorm.records import Record

CAPTION = (
    "R^2 and Spearman's rho with the error of the fine-tuned network. The first line is the variant with the largest "
    "R^2 on the clean set and the probe families (gaussian noise, gaussian blur, contrast, brightness); the others "
    "follow in that order. The ridge is in units of the mean eigenvalue."
)
_SHOWN = 8


def values(record: Record) -> list[dict[str, Any]]:
    """One row per variant, the best on the probes first."""
    return [
        {"variant": row.variant, **{part: [found.r_squared, found.spearman] for part, found in _parts(row).items()}}
        for row in variant_qualities(record)
    ]


def build(record: Record, *, every: bool = False) -> Table:
    """The best variants and the plain one, or every one."""
    ordered = variant_qualities(record)
    rows = ordered if every else ordered[:_SHOWN]
    if not any(row.variant == str(PLAIN) for row in rows):
        rows = [*rows, *(row for row in ordered if row.variant == str(PLAIN))]
    header = ("variant", *(f"{measure} {part}" for part in ("probes", "others", "all") for measure in ("R^2", "rho")))
    cells: list[tuple[Cell, ...]] = [
        (row.variant, *(Number(value) for found in _parts(row).values() for value in (found.r_squared, found.spearman)))
        for row in rows
    ]
    return Table(header, cells)


def _parts(row: VariantQuality) -> dict[str, Any]:
    return {"probes": row.probes, "others": row.others, "all": row.all}
