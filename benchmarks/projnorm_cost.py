"""Cheaper forms of ProjNorm: how well each predicts the error against what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from figures.style import CYCLE, Figure, plot

CAPTION = (
    "R^2 between score and true error, with 95 % intervals from bootstrap draws of whole families, against the time of "
    "one target relative to the full ProjNorm, one forward pass of the evaluated network included."
)


@dataclass(frozen=True, slots=True)
class Form:
    """One form.

    Attributes:
        name: What is trained.
        cost: Time of a target over that of the full form.
        r_squared: With the ends of its interval.
    """

    name: str
    cost: float
    r_squared: tuple[float, float, float]


@plot("What a cheaper ProjNorm costs in quality", CAPTION, height=3.0)
def draw(figure: Figure, forms: Sequence[Form]) -> None:
    """A point a form."""
    axes = figure.subplots()
    ordered = sorted(forms, key=lambda form: form.cost)
    axes.plot([f.cost for f in ordered], [f.r_squared[0] for f in ordered], color="0.6", lw=0.8, zorder=0)
    for form, colour in zip(ordered, CYCLE, strict=False):
        value, low, high = form.r_squared
        axes.errorbar([form.cost], [value], yerr=[[value - low], [high - value]], fmt="o", color=colour, capsize=2)
        axes.annotate(form.name, (form.cost, low), xytext=(0, -9), textcoords="offset points", fontsize=7, ha="center")
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.set_ylim(max(0.0, min(form.r_squared[1] for form in forms) - 0.1), 1.02)
    axes.set_xlabel("time of a target, full ProjNorm = 1")
    axes.set_ylabel("$R^2$")
