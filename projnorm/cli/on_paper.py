"""What a dry run says of devices that are not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from projnorm.cli.options import device_counts, to_json

if TYPE_CHECKING:
    from deep.config import RunConfig
    from deep.plan import RunPlan
    from figures.table import Table
    from ntk.spread import Spread
    from projnorm.runs.rates import Rates

ASSUMED = (
    "Hours are arithmetic from the plan and assumed rates, {:g} TFLOP/s sustained by each device and {:g} Gbit/s for\n"
    "all that moves; nothing was measured on a GPU."
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


def say_run(config: RunConfig, *, devices: str, tflops: float, gbps: float, as_json: bool) -> None:
    """Print what a run would cost."""
    from deep.plan import plan_run
    from projnorm.runs.rates import Rates

    counts, rates = device_counts(devices), Rates(tflops, gbps)
    plan = plan_run(config)
    if as_json:
        typer.echo(to_json(run_values(plan, counts, rates)))
        return
    notes = "".join(f"Note: {note}.\n" for note in plan.notes)
    typer.echo(f"{_run_text(plan, counts, rates)}\n\n{notes}{ASSUMED.format(tflops, gbps)}")


def run_values(plan: RunPlan, counts: Sequence[int], rates: Rates) -> dict[str, Any]:
    """A run on several numbers of devices, as numbers."""
    from dataclasses import asdict

    return {
        "network": asdict(plan.network),
        "n_train": plan.n_train,
        "targets": plan.targets,
        "stages": [asdict(job) for job in (*plan.stages, *plan.between)],
        "tasks": len(plan.tasks),
        "trained": sum(job.trained for job in plan.jobs),
        "passed": sum(job.passed for job in plan.jobs),
        "flops": plan.flops,
        "moved_bytes": plan.moved,
        "checkpoint_bytes": plan.checkpoint_bytes,
        "device_bytes": plan.device_bytes,
        "data_bytes": plan.data_bytes,
        "notes": list(plan.notes),
        "tflops": rates.tflops,
        "gbps": rates.gbps,
        "devices": [{"devices": count, "hours": plan.hours(count, rates)} for count in counts],
    }


def _run_text(plan: RunPlan, counts: Sequence[int], rates: Rates) -> str:
    from figures.table import Table

    kinds: dict[str, list[Any]] = {job.name: [job] for job in (*plan.stages, *plan.between)}
    for job in plan.tasks:
        kinds.setdefault(f"{job.name.partition('target')[0]}targets", []).append(job)
    rows = [
        (
            name,
            f"{len(jobs):,}",
            f"{sum(job.trained for job in jobs):,}",
            f"{sum(job.passed for job in jobs):,}",
            f"{sum(job.flops for job in jobs) / 1e12:,.3g}",
            f"{sum(job.moved for job in jobs) / 1e9:,.3g}",
        )
        for name, jobs in {**kinds, "total": list(plan.jobs)}.items()
    ]
    table = Table(("job", "times", "samples trained on", "passed through", "TFLOP", "GB moved"), rows)
    network = plan.network
    cost = (
        f"{network.parameters:,} parameters; a sample costs {network.forward / 1e9:.3g} GFLOP forward and "
        f"{network.training / 1e9:.3g} in training\n"
        f"{plan.n_train:,} training samples, {plan.targets} targets; {plan.checkpoint_bytes / 1e9:.3g} GB on disk\n"
        f"about {plan.device_bytes / 1e9:.3g} GB on a device (weights, gradients, optimiser, activations of a batch)\n"
        f"and {plan.data_bytes / 1e9:.3g} GB of samples with every worker"
    )
    hours = Table(("devices", "hours"), [(f"{count}", f"{plan.hours(count, rates):.3g}") for count in counts])
    return f"{table.text()}\n\n{cost}\n\n{hours.text()}"
