"""How wide and how right each interval is, where what it assumes holds and where it is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from figures.report import Report
from figures.style import CYCLE, TRUTH, Figure, plot
from figures.table import Column, Table, number
from figures.theory_figures import draw_geometry
from projnorm.core.records import Record
from simulations.interval_widths import TRUTHS, setting_rows, width_rows

CAPTION = (
    "Share of test losses inside each interval against its width, on power-law designs: up and to the left is better. "
    "Small marks are the three kinds of shift, large ones their medians. Filled circles are given the ratio of the "
    "ground truth itself, open ones a guess (rho = 1, or the eta of an isotropic truth); crosses are prediction "
    "intervals at the dashed level. Right: the probability that the law for isotropic truths gives to a smaller loss, "
    "which is uniform (the diagonal) if the law is right."
)
TABLE_CAPTION = (
    "Inside: share of test losses in the interval, over all decays of the eigenvalues. Width: median of upper end over "
    "lower end. With the true ratio the first three always hold; the others rest on a guess or on a law for the ground "
    "truth, which is right for isotropic truths and wrong for aligned ones."
)
SETTING_CAPTION = (
    "Median of upper end over lower end by setting, with the true ratios. Intersection: what the sharp and the joint "
    "interval have in common. Both: bounds for rho and eta at once, by Lagrangian duality. eta: its 10 %, 50 % and "
    "90 % quantiles. KS: p-value of the Kolmogorov-Smirnov test of the law for isotropic truths."
)
NAMES = {
    "sharp": "sharp, true rho",
    "joint": "joint, true eta",
    "both": "both, true rho and eta",
    "sharp_guess": "sharp, rho = 1",
    "joint_guess": "joint, guessed eta",
    "spherical": "90 % for isotropic truths",
    "loo": "90 %, leave-one-out scale",
    "power": "90 %, power prior",
}
_MARKERS: dict[str, dict[str, Any]] = {
    "sharp": {"marker": "o", "color": CYCLE[2]},
    "joint": {"marker": "o", "color": CYCLE[0]},
    "sharp_guess": {"marker": "o", "color": CYCLE[2], "mfc": "none"},
    "joint_guess": {"marker": "o", "color": CYCLE[0], "mfc": "none"},
    "spherical": {"marker": "X", "color": CYCLE[1]},
    "loo": {"marker": "X", "color": CYCLE[3]},
    "power": {"marker": "X", "color": CYCLE[4]},
}


def show(record: Record, _folder: Path | None) -> Report:
    """The tables and the figure of a comparison; not ok if an interval misses a loss with the true ratio."""
    rows, settings = width_rows(record), setting_rows(record)
    sure = [row for row in rows if row["interval"] in ("sharp", "joint", "both")]
    gain = float(np.median([row["sharp"] / row["joint"] for row in settings]))
    verdict = (
        f"With the true ratio the joint interval is {gain:.3g} times narrower than the sharp one in the median over "
        f"{len(settings)} settings"
    )
    widths, by_setting = table(rows), setting_table(settings)
    return Report(
        [widths, TABLE_CAPTION, by_setting, SETTING_CAPTION],
        {"intervals": draw.later(record), "geometry": draw_geometry.later()},
        {"rows": rows, "settings": settings},
        ok=all(row["coverage"] == 1.0 for row in sure),
        title="Which interval is narrow, and which is right",
        verdict=f"{verdict}.",
        tables={"intervals_table": widths, "intervals_settings": by_setting},
        record=record,
    )


@plot("Width and coverage of the intervals", CAPTION, width=8.4, height=3.6)
def draw(figure: Figure, record: Record) -> None:
    """Coverage against width for each kind of truth, and the distribution function of the probabilities."""
    rows = width_rows(record)
    *scatters, law = figure.subplots(1, 3)
    for axes, truth in zip(scatters, TRUTHS, strict=True):
        for name, marker in _MARKERS.items():
            chosen = [row for row in rows if row["truth"] == truth and row["interval"] == name]
            widths, shares = [row["width"] for row in chosen], [100 * row["coverage"] for row in chosen]
            axes.plot(widths, shares, ls="", ms=4, alpha=0.45, **marker)
            label = NAMES[name] if axes is scatters[0] else None
            axes.plot(np.median(widths), np.mean(shares), ls="", ms=8, label=label, **marker)
        axes.axhline(100 * record.config["level"], color=TRUTH, lw=0.8, ls="--")
        axes.set(xscale="log", ylim=(-4, 104), title=f"{truth} truths", xlabel="median of upper / lower end")
    scatters[0].set_ylabel("losses inside (%)")
    figure.legend(loc="outside lower center", ncols=4)
    for index, (truth, color) in enumerate(zip(TRUTHS, (CYCLE[0], CYCLE[3]), strict=True)):
        values = np.sort(record.arrays["probability"][record.arrays["truth"] == index].ravel())
        law.step(
            values, np.arange(1, values.size + 1) / values.size, where="post", color=color, label=f"{truth} truths"
        )
    law.plot([0, 1], [0, 1], color=TRUTH, lw=0.8, ls="--")
    law.set(title="law for isotropic truths", xlabel="probability of a smaller loss", ylabel="share of losses")
    law.legend(loc="lower right")


def table(rows: list[dict[str, Any]]) -> Table:
    """Coverage and width of every interval, for each kind of truth and shift."""
    columns: dict[str, Column] = {
        "truth": lambda row: row["truth"],
        "shift": lambda row: row["shift"],
        "interval": lambda row: NAMES[row["interval"]],
        "inside (%)": number("coverage", ".1f", 100),
        "width": number("width", ".3g"),
    }
    return Table.from_rows(rows, columns)


def setting_table(rows: list[dict[str, Any]]) -> Table:
    """Widths by setting."""
    columns: dict[str, Column] = {
        "decay": number("decay", "g"),
        "shift": lambda row: row["shift"],
        "truth": lambda row: row["truth"],
        **{name: number(name, ".3g") for name in ("sharp", "joint", "intersection", "both")},
        "eta": lambda row: ", ".join(f"{value:.3f}" for value in row["eta"]),
        "KS": number("ks_p_value", ".2g"),
    }
    return Table.from_rows(rows, columns)
