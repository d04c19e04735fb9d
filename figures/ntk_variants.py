"""Variants of ProjNormLinear on tangent kernels: chosen on the probe families, reported on the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deep.calibration import qualities
from deep.experiments.ntk_predict import VariantQuality, variant_qualities
from deep.runs import kernel_rows
from deep.scores import Scores
from figures import deep_table, ntk_panels
from figures.ntk_experiment import other_drawings
from figures.show import Drawing, Shown
from figures.table import Cell, Number, Table
from ntk.variants import PLAIN
from projnorm.records import Record

CAPTION = (
    "R^2 and Spearman's rho with the error of the fine-tuned network. The first line is the variant with the largest "
    "R^2 on the clean set and the probe families (gaussian noise, gaussian blur, contrast, brightness); the others "
    "follow in that order. The ridge is in units of the mean eigenvalue."
)
_SHOWN = 8
# The paper's figure shows these targets.
_PAPER_ALIGNED = "snow-1"
_PAPER_DECAYS = ("clean", "snow-1", "pixelate-1", "motion_blur-1", "gaussian_noise-1")


def show(record: Record, folder: Path) -> Shown:
    """ProjNormLinear and its variants against the error of the fine-tuned network of a run."""
    keys = ("targets", "families", "severities", "network_error", "error", "projnorm", "rho", "overlap")
    run = record.config["run"]
    return Shown(
        [build(record), CAPTION],
        {"ntk_panels": paper_panels(record), **other_drawings(record)},
        {
            "rows": deep_table.values(qualities(Scores.of(kernel_rows(folder.parent / run)))),
            "variants": values(record),
            "targets": {key: record.arrays[key].tolist() for key in keys},
        },
        title=f"ProjNormLinear on tangent kernels of {run}",
        record=record,
    )


def paper_panels(record: Record) -> Drawing:
    """The three panels on kernels with the targets that the paper shows, where they are there."""
    known = record.arrays["targets"].tolist()
    aligned = _PAPER_ALIGNED if _PAPER_ALIGNED in known else None
    decays = [name for name in _PAPER_DECAYS if name in known]
    return ntk_panels.draw.of(record, aligned=aligned, decays=decays if decays[1:] else None)


def values(record: Record) -> list[dict[str, Any]]:
    """One row per variant, the best on the probes first."""
    return [
        {"variant": row.variant, **{part: [fit.r_squared, fit.spearman] for part, fit in _parts(row).items()}}
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
        (row.variant, *(Number(value) for fit in _parts(row).values() for value in (fit.r_squared, fit.spearman)))
        for row in rows
    ]
    return Table(header, cells)


def _parts(row: VariantQuality) -> dict[str, Any]:
    return {"probes": row.probes, "others": row.others, "all": row.all}
