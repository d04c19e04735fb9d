"""Which method to use: how well each predicts from few samples of a target, alone and beside the default."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from deep.method_quality import DEFAULT, Difference, SizeQuality, difference, predictions, size_quality, smallest_size
from deep.projnorm import ProjNorm
from figures.deep_table import cell
from figures.style import CYCLE, TRUTH, WIDTH, drawing
from figures.table import Table
from projnorm.records import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Which method, and how many samples"
CAPTION = (
    "R^2 (one less the mean squared error over the variance) and mean absolute error (MAE, in points) of predicted "
    "errors, each by what was fitted to the other families at the same number of samples; the truth is the error on "
    "the whole target. Over all draws; 95 % intervals from bootstrap draws of whole families. Coverage and median "
    "width are those of 90 % intervals on families left out. 'needs' is the fewest samples from which on R^2 is 0.9."
)
_MARKS = "osD^vP*X"
# ProjNorm in the paper: CIFAR-10 with ResNet18, of a line fitted to all targets.
_PAPER_SIZE, _PAPER = 100, 0.784
_COLOURS = {DEFAULT: TRUTH, ProjNorm.name: CYCLE[3]}


@dataclass(frozen=True, slots=True)
class Measured:
    """Every method at every size, and the default against the others.

    Attributes:
        qualities: By method, then by size.
        differences: The default less ProjNorm and less the best other method, where both were computed.
    """

    qualities: dict[str, list[SizeQuality]]
    differences: list[Difference]


def measured(record: Record) -> Measured:
    """From a record of `projnorm deep small-samples`."""
    arrays = record.arrays
    qualities: dict[str, list[SizeQuality]] = {}
    differences = []
    for size in arrays["sizes"].tolist():
        found = predictions(arrays, size)
        for method, predicted in found.items():
            qualities.setdefault(method, []).append(size_quality(predicted, arrays))
        if DEFAULT not in found:
            continue
        others = [method for method in found if method not in (DEFAULT, ProjNorm.name)]
        best = {
            max(others, key=lambda method: qualities[method][-1].r_squared.value),
            min(others, key=lambda method: qualities[method][-1].mae.value),
        }
        beaten = [method for method in (ProjNorm.name, *sorted(best)) if method in found]
        differences += [difference(found[DEFAULT], found[method], arrays) for method in beaten]
    return Measured(qualities, differences)


def build(found: Measured) -> Table:
    """One row per method and size, the best at the largest size first."""
    rows = [
        (
            method if place == 0 else "",
            f"{one.size:,}",
            cell(one.r_squared, 3),
            cell(one.mae, 1, 100.0),
            cell(one.coverage, 2),
            f"{100 * one.width:.1f}",
            (f"{smallest_size(sizes):,}" if smallest_size(sizes) else "more") if place == 0 else "",
        )
        for method, sizes in _ranked(found)
        for place, one in enumerate(sizes)
    ]
    return Table(("method", "m", "R^2", "MAE", "coverage", "width", "needs"), rows)


def differences(found: Measured) -> Table:
    """The default against others, by paired bootstrap."""
    rows = [
        (f"{one.better} - {one.worse}", f"{one.size:,}", cell(one.r_squared, 3), cell(one.mae, 2, 100.0))
        for one in found.differences
    ]
    return Table(("difference", "m", "R^2", "MAE"), rows)


def values(found: Measured) -> dict[str, object]:
    """The same as plain numbers."""
    return {
        "methods": {
            method: {"needs": smallest_size(sizes), "sizes": [asdict(one) for one in sizes]}
            for method, sizes in _ranked(found)
        },
        "differences": [asdict(one) for one in found.differences],
    }


def draw(found: Measured, *, heading: str = "") -> Figure:
    """R^2 against m, a line a method."""
    with drawing(WIDTH + 2.0, 3.6) as figure:
        axes = figure.subplots()
        looks = zip(cycle(CYCLE), cycle(_MARKS))
        for (method, sizes), (colour, mark) in zip(_ranked(found), looks, strict=False):
            x = [one.size for one in sizes]
            y = [one.r_squared.value for one in sizes]
            main = method in (DEFAULT, ProjNorm.name)
            axes.plot(
                x,
                y,
                marker=mark,
                color=_COLOURS.get(method, colour),
                lw=2.0 if main else 0.9,
                ms=6 if main else 4,
                label=method,
            )
            if method == DEFAULT:
                low, high = [one.r_squared.low for one in sizes], [one.r_squared.high for one in sizes]
                axes.fill_between(x, low, high, color=TRUTH, alpha=0.12, lw=0)
        axes.plot(_PAPER_SIZE, _PAPER, "*", mfc="none", mec=CYCLE[3], ms=11, label="ProjNorm in the paper")
        axes.set_xscale("log")
        ticks = sorted({one.size for sizes in found.qualities.values() for one in sizes})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("samples of each target m")
        axes.set_ylabel("$R^2$ of predicted errors, families left out")
        figure.legend(loc="outside right upper", fontsize=6.5)
        figure.suptitle(heading, fontsize=7)
    return figure


def _ranked(found: Measured) -> list[tuple[str, list[SizeQuality]]]:
    return sorted(found.qualities.items(), key=lambda item: np.nan_to_num(-item[1][-1].r_squared.value, nan=1.0))
