"""Which method to use: how well each predicts from few samples of a target, alone and beside the default."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from benchmarks.studies.method_quality import STACK, SmallSampleQualities, small_sample_qualities, smallest_size
from deep.estimators.projnorm import ProjNorm
from figures.headings import about_run
from figures.report import Report
from figures.style import CYCLE, OTHERS, TRUTH, WIDTH, Figure, plot
from figures.table import Column, Number, Table, number
from projnorm.core.records import Record

CAPTION = (
    "R^2 (one less the mean squared error over the variance) and mean absolute error (MAE, in points) of predicted "
    "errors, each by what was fitted to the other families at the same number of samples; the truth is the error on "
    "the whole target. Over all draws; 95 % intervals from bootstrap draws of whole families. Coverage and median "
    "width are those of 90 % intervals on families left out. The column 'needs' is the fewest samples from which on "
    "R^2 is 0.9."
)
_DIFFERENCES = (
    "The default less another method, on the same draws and families, with 95 % intervals from a paired bootstrap."
)
_MARKS = "sD^vP"
# ProjNorm in the paper: CIFAR-10 with ResNet18, of a line fitted to all targets.
_PAPER_SIZE, _PAPER = 100, 0.784
_COLOURED = 5


def show(record: Record, _folder: Path) -> Report:
    """Every method at every number of samples, and the default against the best others."""
    summary = small_sample_qualities(record)
    blocks: list[str | Table] = [build(summary), CAPTION]
    if summary.differences:
        blocks += [_DIFFERENCES, differences(summary)]
    values = {
        "methods": {
            method: {"needs": smallest_size(sizes), "sizes": [asdict(quality) for quality in sizes]}
            for method, sizes in summary.ranked()
        },
        "differences": [asdict(difference) for difference in summary.differences],
    }
    figures = {"small_samples": draw.later(summary, about_run(record))}
    return Report(blocks, figures, values, title=draw.title, record=record)


def build(summary: SmallSampleQualities) -> Table:
    """One row per method and size, the best at the largest size first."""
    needs = {method: smallest_size(sizes) for method, sizes in summary.ranked()}
    columns: dict[str, Column] = {
        "method": lambda quality: quality.method,
        "m": number("size", ",d"),
        "R^2": number("r_squared"),
        "MAE (points)": number("mae", ".1f", 100),
        "coverage": number("coverage", ".2f"),
        "width (points)": number("width", ".1f", 100),
        "needs": lambda quality: Number(needs[quality.method], ",d") if needs[quality.method] else "more",
    }
    return Table.from_rows([quality for _, sizes in summary.ranked() for quality in sizes], columns)


def differences(summary: SmallSampleQualities) -> Table:
    """The default against others, by paired bootstrap."""
    columns: dict[str, Column] = {
        "difference": lambda difference: f"{difference.better} - {difference.worse}",
        "m": number("size", ",d"),
        "R^2": number("r_squared"),
        "MAE (points)": number("mae", ".2f", 100),
    }
    return Table.from_rows(summary.differences, columns)


@plot("Which method, and how many samples", CAPTION, WIDTH + 1.6, 3.6)
def draw(figure: Figure, summary: SmallSampleQualities, heading: str = "") -> None:
    """R^2 against m, one line per method: the default, ProjNorm and the best others in colour, the rest in grey."""
    looks = {STACK: (TRUTH, "o", 2.0), ProjNorm.name: (CYCLE[3], "*", 2.0)}
    best = [method for method, _ in summary.ranked() if method not in looks][:_COLOURED]
    colours = (CYCLE[0], CYCLE[1], CYCLE[2], CYCLE[4], CYCLE[9])
    looks |= {method: (colour, mark, 1.2) for method, colour, mark in zip(best, colours, _MARKS, strict=False)}
    grey = [method for method, _ in summary.ranked() if method not in looks]
    figure.suptitle(heading)
    axes = figure.subplots()
    for method, sizes in summary.ranked():
        x, y = [quality.size for quality in sizes], [quality.r_squared.value for quality in sizes]
        if method in looks:
            colour, mark, width = looks[method]
            axes.plot(x, y, marker=mark, color=colour, lw=width, ms=5, label=method, zorder=3)
        else:
            label = f"{len(grey)} other methods" if method == grey[0] else None
            axes.plot(x, y, color=OTHERS, lw=0.8, label=label, zorder=1)
        if method == STACK:
            low, high = [quality.r_squared.low for quality in sizes], [quality.r_squared.high for quality in sizes]
            axes.fill_between(x, low, high, color=TRUTH, alpha=0.12, lw=0, label="default, 95 % interval")
    axes.plot(_PAPER_SIZE, _PAPER, "*", mfc="none", mec=CYCLE[3], ms=11, ls="none", label="ProjNorm in the paper")
    axes.set_xscale("log")
    ticks = sorted({quality.size for sizes in summary.qualities.values() for quality in sizes})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set(ylim=(0, 1.02), xlabel="samples of each target, m", ylabel="$R^2$ of predicted errors, families left out")
    figure.legend(loc="outside right upper", fontsize=7)
