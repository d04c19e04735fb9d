"""The paper's check of equal projected norms on tangent kernels, one value per target."""

from __future__ import annotations

from figures.families import CLEAN, by_family, spoken
from figures.headings import kernel_heading
from figures.style import TRUTH, WIDTH, Figure, plot
from projnorm.records import Record

CAPTION = (
    "The norm of the truth in the shifted row space against that in the training row space, less one; the paper "
    "assumes 0. The dashed lines are a factor of two either way. The truth is measured from the labels of both sets."
)


@plot("Equal projected norms, measured", CAPTION, WIDTH + 1.3, 3.4)
def draw(figure: Figure, record: Record) -> None:
    """Relative difference of the two norms against severity."""
    arrays = record.arrays
    figure.suptitle(kernel_heading(record))
    axes = figure.subplots()
    for family, members, look in by_family(arrays["families"]):
        x, y = arrays["severities"][members], arrays["rho"][members] - 1.0
        look |= {"ls": "none" if family in (CLEAN, "given") else "-", "ms": 9 if family == CLEAN else 5}
        axes.plot(x, y, label=spoken(family), **look)
    for level, label in ((-0.5, "a factor of two either way"), (1.0, None)):
        axes.axhline(level, color=TRUTH, ls="--", lw=0.8, label=label)
    axes.axhline(0.0, color=TRUTH, lw=0.8, label="equal norms, as the paper assumes")
    axes.set_xticks(sorted(set(arrays["severities"].tolist())))
    axes.set(xlabel="severity (0: no corruption)", ylabel=r"$(\|\tilde P\theta^*\| - \|P\theta^*\|)\,/\,\|P\theta^*\|$")
    figure.legend(loc="outside right upper", fontsize=6.5)
