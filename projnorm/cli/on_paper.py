"""What a dry run says of devices that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from figures.table import Table
    from ntk.spread import Spread
    from projnorm.runs.rates import Rates

ASSUMED = (
    "Hours are arithmetic from the plan and assumed rates, {:g} TFLOP/s sustained by each device and {:g} Gbit/s for all\n"
    "that moves; nothing was measured on a GPU."
)


def spread_values(spread: Spread, rates: Rates) -> dict[str, Any]:
    """A kernel on so many devices, as numbers."""
    return {
        "devices": spread.workers,
        "tasks": len(spread.tasks),
        "passes": spread.passes,
        "flops": spread.flops,
        "moved_bytes": spread.moved,
        "worker_bytes": spread.memory,
        "hours": spread.hours(rates),
    }


def spread_table(spreads: Sequence[Spread], rates: Rates) -> Table:
    """A kernel on several numbers of devices, a row each."""
    from figures.table import Table

    header = ("devices", "tasks", "samples through the network", "TFLOP", "GB moved", "GB a worker", "hours")
    rows = [
        (
            f"{spread.workers}",
            f"{len(spread.tasks):,}",
            f"{spread.passes:,}",
            f"{spread.flops / 1e12:,.3g}",
            f"{spread.moved / 1e9:,.3g}",
            f"{spread.memory / 1e9:.2f}",
            f"{spread.hours(rates):.3g}",
        )
        for spread in spreads
    ]
    return Table(header, rows)
