"""A plan on several workers, on paper: what each task computes, what moves, and the hours at a given rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ntk.plan import Plan, chunks, loads
from projnorm.runs.rates import Rates, busiest


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent besides the kernel, in bytes.

    Attributes:
        networks: All networks, sent to every worker once.
        sample: One sample as it is kept, before it is prepared for a network.
    """

    networks: int
    sample: int


@dataclass(frozen=True, slots=True)
class TaskCost:
    """What one task computes and moves.

    Attributes:
        tiles: Tiles it computes.
        passes: Samples it sends through each network.
        flops: Floating-point operations, two a multiply-add: passes, gradients formed, products.
        received: Bytes of samples sent to it.
        returned: Bytes of tiles it sends back.
    """

    tiles: int
    passes: int
    flops: int
    received: int
    returned: int


@dataclass(frozen=True, slots=True)
class Spread:
    """A plan on so many workers.

    Attributes:
        workers: How many.
        tasks: In the order they are handed out.
        networks: Bytes that every worker is sent once.
        memory: Bytes that a worker needs at most, an estimate.
    """

    workers: int
    tasks: tuple[TaskCost, ...]
    networks: int
    memory: float

    @property
    def passes(self) -> int:
        """Samples sent through each network by all tasks."""
        return sum(task.passes for task in self.tasks)

    @property
    def flops(self) -> int:
        """Of all tasks."""
        return sum(task.flops for task in self.tasks)

    @property
    def moved(self) -> int:
        """Bytes: networks to the workers that have a task, samples to tasks, tiles back."""
        copies = min(self.workers, len(self.tasks))
        return copies * self.networks + sum(task.received + task.returned for task in self.tasks)

    def hours(self, rates: Rates) -> float:
        """The busiest worker's operations, then everything over one link."""
        return rates.hours(busiest((task.flops for task in self.tasks), self.workers), self.moved)


def spread(plan: Plan, parcel: Parcel, workers: int) -> Spread:
    """The tasks of `ntk.plan.chunks` and what they cost.

    One worker holds what the plan says. One of several holds the same, but of the samples only those of its task, and
    the tiles of its task until they are sent.

    Raises:
        ValueError: If there is no worker.
    """
    tasks = tuple(_task(plan, parcel, tiles) for tiles in chunks(plan, workers))
    memory = plan.peak_bytes
    if workers > 1:
        memory += max(task.received + task.returned for task in tasks) - plan.samples * parcel.sample
    return Spread(workers, tasks, parcel.networks, memory)


def _task(plan: Plan, parcel: Parcel, tiles: Sequence[tuple[int, int]]) -> TaskCost:
    passes = sum(plan.panels[panel].samples for panel in loads(tiles, plan.room))
    products = sum(plan.tile_multiply_adds(tile) for tile in tiles)
    needed = {panel for tile in tiles for panel in tile}
    return TaskCost(
        len(tiles),
        passes,
        2 * (products + passes * plan.fill_multiply_adds),
        parcel.sample * sum(plan.panels[panel].samples for panel in needed),
        sum(map(plan.bytes_of, tiles)),
    )
