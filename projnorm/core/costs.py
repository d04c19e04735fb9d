"""Estimated hours on 1, 8 or 64 devices: arithmetic from what jobs cost and from assumed rates; nothing is measured."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError


@dataclass(frozen=True)
class CostAssumptions(Config):
    """Devices that a cost report is made for, and the rates they are assumed to sustain."""

    devices: tuple[int, ...] = setting((1, 8, 64), "Numbers of devices to estimate hours for.", least=1, nonempty=True)
    tflops: float = setting(10.0, "Operations that a device is assumed to sustain, in 10^12 a second.", above=0.0)

    def hours(self, flops: float) -> float:
        """Hours that a number of operations takes on one device."""
        return flops / (self.tflops * 1e12) / 3600.0

    def __str__(self) -> str:
        return (
            f"Hours are arithmetic from the plan and an assumed rate of {self.tflops:g} TFLOP/s on each device, "
            "without the time in which data moves; nothing was measured on a GPU."
        )


@dataclass(frozen=True, slots=True)
class Job:
    """What one job computes: operations, two for a multiply-add, and samples by what is done with them.

    Jobs of one name are shown in one row.
    """

    name: str
    flops: int
    samples: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """A whole experiment on a number of devices: operations and samples of all tasks, and bytes that one device needs.

    The hours follow from the operations of the busiest device.
    """

    devices: int
    tasks: int
    flops: int
    device_bytes: float
    hours: float
    samples: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CostReport:
    """What an experiment will cost, before anything is computed: a row for each part of the work, and the whole.

    `values` are further numbers for a program that reads the report.
    """

    parts: tuple[Mapping[str, Any], ...]
    summary: tuple[str, ...]
    devices: tuple[DeviceCost, ...]
    assumptions: CostAssumptions
    notes: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            **self.values,
            "parts": [dict(part) for part in self.parts],
            "notes": list(self.notes),
            "tflops": self.assumptions.tflops,
            "devices": [asdict(row) for row in self.devices],
        }


def device_cost(
    phases: Sequence[Sequence[Job]], devices: int, assumptions: CostAssumptions, *, device_bytes: float
) -> DeviceCost:
    """The cost of phases one after the other, whose jobs run beside each other, handed out in this order."""
    jobs = [job for phase in phases for job in phase]
    longest = sum(busiest((job.flops for job in phase), devices) for phase in phases)
    samples: Counter[str] = Counter()
    for job in jobs:
        samples.update(job.samples)
    flops = sum(job.flops for job in jobs)
    return DeviceCost(devices, len(jobs), flops, device_bytes, assumptions.hours(longest), dict(samples))


def job_rows(phases: Iterable[Iterable[Job]]) -> tuple[dict[str, Any], ...]:
    """One row for each kind of job, and one for all of them."""
    jobs = [job for phase in phases for job in phase]
    kinds: dict[str, list[Job]] = {}
    for job in jobs:
        kinds.setdefault(job.name, []).append(job)
    columns = list(dict.fromkeys(name for job in jobs for name in job.samples))
    return tuple(
        {
            "job": name,
            "times": len(group),
            **{f"samples {column}": sum(job.samples.get(column, 0) for job in group) for column in columns},
            "TFLOP": sum(job.flops for job in group) / 1e12,
        }
        for name, group in {**kinds, "total": jobs}.items()
    )


def busiest(costs: Iterable[float], devices: int) -> float:
    """The cost for the busiest device when jobs are handed out in order, each to whichever device is free first."""
    if devices < 1:
        raise InputError(f"`devices` must be at least 1; got {devices}.")
    loads = [0.0] * devices
    for cost in costs:
        heapq.heapreplace(loads, loads[0] + cost)
    return max(loads)
