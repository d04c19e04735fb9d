"""The tiles of a kernel as they are computed: in this process, or as tasks on several, with panels on disk or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ntk.features.contraction import Factors, Workspace
from ntk.features.engine import Engine
from ntk.tiles.panels import PanelFiles
from ntk.tiles.plan import TRAIN, BatchSizes, PanelCache, Plan, Tile, chunks, set_groups
from ntk.tiles.tiles import Tiles, write_tile
from ntk.trace.inputs import Samples
from projnorm.core.backends import ONE_PROCESS, Backend, count_workers, run_each
from projnorm.core.device import full_precision, torch_threads
from projnorm.core.progress import tracked
from projnorm.core.store import Store

# Tiles that follow each other in a plan, and the inputs of their panels.
_Job = tuple[Sequence[Tile], Mapping[int, Samples]]
# Tasks that a worker has tiles for, where panels are on disk.
_TASKS_EACH = 4


@dataclass(frozen=True, slots=True, eq=False)
class TileRuns:
    """Everything that tiles are computed with.

    Attributes:
        engine: The engine of this process.
        make_engine: Makes the same engine in another process.
        plan: Panels and tiles.
        sets: Samples of each set.
        tiles: Tiles that are there.
        threads: Number of threads of torch.
        backend: Where tiles are computed.
        files: Panels on disk; None where none is.
    """

    engine: Engine
    make_engine: Callable[[], Engine]
    plan: Plan
    sets: Mapping[str, Samples]
    tiles: Tiles
    threads: int
    backend: Backend
    files: PanelFiles | None

    def finished(self, todo: Sequence[Tile]) -> Iterator[tuple[Tile, np.ndarray | None]]:
        """The tiles as they are computed; None for one that a worker has put into the store."""
        plan, files = self.plan, self.files
        workers = count_processes(self.backend)
        if files is None:
            runs = [todo] if workers == 1 else [[t for t in run if t in set(todo)] for run in chunks(plan, workers)]
            yield from self._computed([run for run in runs if run])
            return
        for names in set_groups(plan, workers):  # the disk holds the panels of one group at a time
            own = [tile for tile in todo if plan.panels[tile[0]].set in names]
            panels = sorted({panel for tile in own for panel in tile})
            self._fill(files, [panel for panel in panels if panel not in files])
            size = math.ceil(len(own) / (1 if workers == 1 else _TASKS_EACH * workers)) or 1
            yield from self._computed([own[start : start + size] for start in range(0, len(own), size)])
            for panel in panels:
                if plan.panels[panel].set != TRAIN:
                    files.drop(panel)

    def _computed(self, runs: Sequence[Sequence[Tile]]) -> Iterator[tuple[Tile, np.ndarray | None]]:
        """The tiles of each run."""
        plan, backend = self.plan, self.backend
        if backend == ONE_PROCESS:
            for run in runs:
                yield from _blocks(self.engine, self._inputs, plan.batch_sizes, plan.panels_in_memory, run, self.files)
            return
        work = partial(
            _compute_job,
            make_engine=self.make_engine,
            batch_sizes=plan.batch_sizes,
            panels_in_memory=plan.panels_in_memory,
            threads=self.threads,
            store=None if backend.scheduler else self.tiles.store,
            files=self.files,
        )
        # Copies: of a view, all that it is a view of would travel.
        jobs = ((run, {panel: self._inputs(panel).clone() for tile in run for panel in tile}) for run in runs)
        with run_each(work, jobs, backend=backend.for_tasks(len(runs))) as running:
            for number, blocks in running:
                yield from zip(runs[number], blocks, strict=True)

    def _fill(self, files: PanelFiles, panels: Sequence[int]) -> None:
        """Pass the samples of some panels through the networks, and write what is kept."""
        if not panels:
            return
        jobs = ((panel, self._inputs(panel).clone()) for panel in panels)
        in_process = self.backend == ONE_PROCESS
        make_engine = (lambda: self.engine) if in_process else self.make_engine
        work = partial(
            _fill_file, make_engine=make_engine, batch_sizes=self.plan.batch_sizes, threads=self.threads, files=files
        )
        if in_process:
            for job in tracked(jobs, description="samples through the network", total=len(panels)):
                work(job)
            return
        with run_each(work, jobs, backend=self.backend.for_tasks(len(panels))) as running:
            for _ in tracked(running, description="samples through the network", total=len(panels)):
                pass

    def _inputs(self, panel: int) -> Samples:
        where = self.plan.panels[panel]
        return self.sets[where.set][where.start : where.stop]


def count_processes(backend: Backend) -> int:
    """Number of processes that tiles are computed in."""
    return 1 if backend == ONE_PROCESS else max(2, count_workers(backend))


def tile_name(tile: Tile) -> str:
    """Name of a tile in the store."""
    return f"{tile[0]:05d}-{tile[1]:05d}"


def _compute_job(
    job: _Job,
    *,
    make_engine: Callable[[], Engine],
    batch_sizes: BatchSizes,
    panels_in_memory: int,
    threads: int,
    store: Store | None,
    files: PanelFiles | None,
) -> list[np.ndarray | None]:
    """The tiles of a job, in another process.

    A process of this machine puts each tile into the store when it is done, so that nothing is lost with a job that is
    not; a worker of a cluster may not see the folder, and sends the tiles.
    """
    tiles, inputs = job
    blocks: list[np.ndarray | None] = []
    with full_precision(), torch_threads(threads):
        for tile, block in _blocks(make_engine(), inputs.__getitem__, batch_sizes, panels_in_memory, tiles, files):
            if store is not None:
                write_tile(store, tile_name(tile), block)
            blocks.append(block if store is None else None)
    return blocks


def _fill_file(
    job: tuple[int, Samples],
    *,
    make_engine: Callable[[], Engine],
    batch_sizes: BatchSizes,
    threads: int,
    files: PanelFiles,
) -> None:
    """Write what is kept of the samples of one panel."""
    panel, inputs = job
    with full_precision(), torch_threads(threads):
        engine = make_engine()
        files.put(panel, engine.fill(engine.empty_panel(len(inputs)), inputs, batch=batch_sizes.batch))


def _blocks(
    engine: Engine,
    inputs: Callable[[int], Samples],
    batch_sizes: BatchSizes,
    panels_in_memory: int,
    tiles: Sequence[Tile],
    files: PanelFiles | None,
) -> Iterator[tuple[Tile, np.ndarray]]:
    """The kernel of each tile in order, with as many filled panels as fit into memory."""
    workspace, cache = Workspace(batch_sizes.formed), PanelCache(tiles, panels_in_memory)
    buffers: dict[int, list[Factors]] = {}
    filled: dict[int, list[Factors]] = {}
    for position, (i, j) in enumerate(tiles):
        for panel, dropped in cache.at(position):
            if dropped is None:
                buffers[panel] = engine.empty_panel(batch_sizes.panel)
            else:
                buffers[panel] = buffers.pop(dropped)
                del filled[dropped]
            x = inputs(panel)
            read = None if files is None else files.get(panel, buffers[panel], len(x))
            filled[panel] = engine.fill(buffers[panel], x, batch=batch_sizes.batch) if read is None else read
        yield (i, j), engine.block(filled[i], filled[j], workspace)
