"""Kernels of 50,000 images and every preset on paper: tasks, operations, bytes, and hours on 1, 8 and 64 devices.

Nothing is timed: hours are arithmetic from the planner's numbers and two assumed rates. Needs no data and no weights.

Run: python benchmarks/plan_scale.py; writes scale_plan.json into results/ and prints the tables of docs/scale.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import write_result
from ntk.dry_run import plan_experiment
from projnorm.cli.on_paper import run_values, spread_values

from deep.plan import plan_run
from deep.presets import PRESETS, TEXT_PRESETS
from figures.table import Table
from ntk.experiment import NtkConfig
from projnorm.runs.rates import Rates
from projnorm.vision import PAPER_FAMILIES

RESULTS = Path(__file__).resolve().parent.parent / "results"
DEVICES = (1, 8, 64)
RATES = Rates(tflops=10.0, gbps=10.0)
# Of a device, in bytes.
MEMORY = 40e9
# Architecture, pixels, n and m; the targets are the clean test set and 18 families at 5 severities.
KERNELS = (
    ("resnet18", 32, 50_000, 10_000),
    ("resnet18", 224, 50_000, 10_000),
    ("resnet18", 224, 5_000, 5_000),
    ("resnet50", 224, 5_000, 5_000),
    ("vgg11", 224, 5_000, 5_000),
)


def main() -> None:
    """Plan, write, print."""
    kernels = [_kernel(*asked) for asked in KERNELS]
    runs = {
        name: run_values(plan_run(config), DEVICES, RATES)
        for presets in (PRESETS, TEXT_PRESETS)
        for name, config in presets.items()
    }
    result = {
        "measured_on_a_gpu": False,
        "tflops_assumed": RATES.tflops,
        "gbps_assumed": RATES.gbps,
        "memory": MEMORY,
        "kernels": kernels,
        "runs": runs,
    }
    write_result(RESULTS / "scale_plan.json", "python benchmarks/plan_scale.py", result)
    print(_kernel_table(kernels).markdown(), _run_table(runs).markdown(), sep="\n\n")


def _kernel(architecture: str, size: int, n: int, m: int) -> dict[str, Any]:
    config = NtkConfig(n=n, m=m, families=PAPER_FAMILIES, architecture=architecture, size=size)
    planned = plan_experiment(config, memory=MEMORY, device="cpu")
    plan = planned.plan
    return {
        "architecture": architecture,
        "size": size,
        "n": n,
        "m": m,
        "targets": len(plan.sets) - 1,
        "panel": plan.cut.panel,
        "panels_kept": plan.room,
        "tiles": len(plan.tiles),
        "pairs": plan.pairs,
        "product_flops": 2 * plan.multiply_adds,
        "fill_flops_a_sample": 2 * plan.fill_multiply_adds,
        "disk_bytes": plan.tile_bytes,
        "devices": [spread_values(planned.on(devices), RATES) for devices in DEVICES],
    }


def _kernel_table(kernels: list[dict[str, Any]]) -> Table:
    header = (
        *("network, px", "n, m", "devices", "tasks", "PFLOP", "of these products", "samples through the network"),
        *("GB moved", "GB a worker", "TB on disk", "hours"),
    )
    rows = [
        (
            f"{kernel['architecture']}, {kernel['size']}",
            f"{kernel['n']:,}, {kernel['m']:,}",
            f"{row['devices']}",
            f"{row['tasks']:,}",
            f"{row['flops'] / 1e15:,.4g}",
            f"{kernel['product_flops'] / row['flops']:.0%}",
            f"{row['passes'] / 1e6:.3g} M",
            f"{row['moved_bytes'] / 1e9:,.3g}",
            f"{row['worker_bytes'] / 1e9:.1f}",
            f"{kernel['disk_bytes'] / 1e12:.2g}",
            f"{row['hours']:.2g}",
        )
        for kernel in kernels
        for row in kernel["devices"]
    ]
    return Table(header, rows)


def _run_table(runs: dict[str, dict[str, Any]]) -> Table:
    header = (
        *("preset", "stages", "target tasks", "samples trained on", "PFLOP", "GB moved", "GB of checkpoints"),
        *("GB on a device", "GB of samples a worker", *(f"hours on {count}" for count in DEVICES)),
    )
    rows = [
        (
            name,
            f"{sum(job['trained'] > 0 for job in run['stages'])}",
            f"{run['tasks']:,}",
            f"{run['trained']:,}",
            f"{run['flops'] / 1e15:,.3g}",
            f"{run['moved_bytes'] / 1e9:.2g}",
            f"{run['checkpoint_bytes'] / 1e9:.2g}",
            f"{run['device_bytes'] / 1e9:.2g}",
            f"{run['data_bytes'] / 1e9:.2g}",
            *(f"{row['hours']:.2g}" for row in run["devices"]),
        )
        for name, run in runs.items()
    ]
    return Table(header, rows)


if __name__ == "__main__":
    main()
