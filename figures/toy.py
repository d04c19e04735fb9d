"""The toy figure of the paper, with bands over trials and our closed forms."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.style import COLUMN_WIDTH, GENERALISED, TRUTH, house_style, settled
from projnorm.runs import Record
from projnorm_theory import ToyAsymptotics, toy_asymptotics

TITLE = "The Gaussian toy experiment"
CAPTION = (
    "As coordinates unseen in training gain variance (sigma), the test error and the loss rise. ProjNormLinear rises "
    "with them; the confidence score, like anything made of the outputs alone, does not move. Blue: mean over trials, "
    "band of one standard deviation; dashes: closed form, nothing fitted."
)
PANELS = {
    "test_error": "test error",
    "projnorm_linear": "ProjNormLinear",
    "confidence": "confidence score",
    "squared_loss": "squared loss",
}


def closed_forms(record: Record) -> ToyAsymptotics | None:
    """The closed forms of the record's configuration; None for another design or where they do not exist."""
    config = record.config
    if config["design"] != "gaussian" or abs(config["n"] - config["d1"]) < 4:
        return None
    return toy_asymptotics(config["sigmas"], **{size: config[size] for size in ("d1", "d2", "n", "m")})


def draw(record: Record) -> Figure:
    """Four panels against sigma."""
    sigma, theory = record.arrays["sigma"], closed_forms(record)
    with house_style():
        figure = Figure(figsize=(COLUMN_WIDTH, 4.2), layout="constrained")
        grid = figure.subplots(2, 2, sharex=True)
        for axes, (name, label) in zip(grid.flat, PANELS.items(), strict=True):
            _band(axes, sigma, record.arrays[name])
            if theory is not None:
                axes.plot(sigma, getattr(theory, name), "--", color=TRUTH, label="closed form")
            axes.set_ylabel(label)
        for axes in grid[1]:
            axes.set_xlabel(r"$\sigma$")
        # The flat line must not be blown up by its own noise: it gets the range of the test error.
        spread = np.ptp(record.arrays["test_error"].mean(axis=0)) or 0.1
        middle = float(record.arrays["confidence"].mean())
        low, high = grid[1, 0].get_ylim()
        grid[1, 0].set_ylim(min(low, middle - spread), max(high, middle + spread))
        grid[0, 0].legend(loc="lower right")
        return settled(figure)


def _band(axes: Axes, sigma: np.ndarray, values: np.ndarray) -> None:
    mean = values.mean(axis=0)
    deviation = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(mean)
    axes.plot(sigma, mean, "o-", ms=3, color=GENERALISED, label="mean of trials")
    axes.fill_between(sigma, mean - deviation, mean + deviation, color=GENERALISED, alpha=0.25, lw=0, label="± 1 s.d.")
