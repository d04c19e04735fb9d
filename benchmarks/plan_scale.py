"""Kernels of 50,000 images and every preset on paper: tasks, operations, bytes, and hours on 1, 8 and 64 devices.

Nothing is timed: hours are arithmetic from the planner's numbers and an assumed rate. Needs no data and no weights.

Run: python benchmarks/plan_scale.py; writes scale_plan.json into results/ and prints the tables of docs/scale.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import write_result

from deep.comparison.costs import run_costs
from deep.comparison.presets import PRESETS, TEXT_PRESETS
from figures.table import Table
from ntk.experiments.config import GramConfig, NtkImages, NtkNetwork
from ntk.experiments.costs import kernel_costs
from projnorm.core.costs import CostAssumptions, CostReport
from projnorm.core.records import RunContext
from projnorm.data.image_settings import PAPER_FAMILIES

RESULTS = Path(__file__).resolve().parent.parent / "results"
ASSUMED = CostAssumptions(devices=(1, 8, 64), tflops=10.0)
# Memory of a device, in bytes.
CONTEXT = RunContext(RESULTS, device="cpu", memory=40e9)
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
        name: _without_parts(run_costs(config, CONTEXT, ASSUMED))
        for presets in (PRESETS, TEXT_PRESETS)
        for name, config in presets.items()
    }
    result = {
        "measured_on_a_gpu": False,
        "tflops_assumed": ASSUMED.tflops,
        "memory": CONTEXT.memory,
        "kernels": kernels,
        "runs": runs,
    }
    write_result(RESULTS / "scale_plan.json", "python benchmarks/plan_scale.py", result)
    print(_kernel_table(kernels).markdown(), _run_table(runs).markdown(), sep="\n\n")


def _kernel(architecture: str, size: int, n: int, m: int) -> dict[str, Any]:
    config = GramConfig(NtkImages(n=n, m=m, families=PAPER_FAMILIES), NtkNetwork(architecture, size=size))
    costs = _without_parts(kernel_costs(config, CONTEXT, ASSUMED))
    return {"architecture": architecture, "size": size, "n": n, "m": m} | costs


def _without_parts(report: CostReport) -> dict[str, Any]:
    """The whole of a report; layer by layer and job by job, a dry run prints it."""
    return {name: value for name, value in report.to_dict().items() if name != "parts"}


def _kernel_table(kernels: list[dict[str, Any]]) -> Table:
    header = (
        *("network, px", "n, m", "devices", "tasks", "PFLOP", "of these products", "samples through the network"),
        *("GB a worker", "TB on disk", "hours"),
    )
    rows = [
        (
            f"{kernel['architecture']}, {kernel['size']}",
            f"{kernel['n']:,}, {kernel['m']:,}",
            f"{row['devices']}",
            f"{row['tasks']:,}",
            f"{row['flops'] / 1e15:,.4g}",
            f"{2 * kernel['multiply_adds'] / row['flops']:.0%}",
            f"{row['samples']['through the network'] / 1e6:.3g} M",
            f"{row['device_bytes'] / 1e9:.1f}",
            f"{kernel['tile_bytes'] / 1e12:.2g}",
            f"{row['hours']:.2g}",
        )
        for kernel in kernels
        for row in kernel["devices"]
    ]
    return Table(header, rows)


def _run_table(runs: dict[str, dict[str, Any]]) -> Table:
    header = (
        *("preset", "jobs", "samples trained on", "PFLOP", "GB on disk"),
        *("GB on a device", "GB of samples a worker", *(f"hours on {count}" for count in ASSUMED.devices)),
    )
    rows = [
        (
            name,
            f"{run['devices'][0]['tasks']:,}",
            f"{run['devices'][0]['samples']['trained on']:,}",
            f"{run['devices'][0]['flops'] / 1e15:,.3g}",
            f"{run['disk_bytes'] / 1e9:.2g}",
            f"{run['device_bytes'] / 1e9:.2g}",
            f"{run['data_bytes'] / 1e9:.2g}",
            *(f"{row['hours']:.2g}" for row in run["devices"]),
        )
        for name, run in runs.items()
    ]
    return Table(header, rows)


if __name__ == "__main__":
    main()
