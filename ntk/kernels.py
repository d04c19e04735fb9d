"""Exact or sampled kernels between a training set and any number of other sets, tile by tile, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ntk.config import KernelConfig
from ntk.contraction import Factors, Workspace
from ntk.engine import Engine, Inputs, Prepare, as_inputs, tensor_hash
from ntk.plan import TRAIN, Cut, Filling, Plan, Tile, chunks, make_plan
from ntk.tiles import Tiles, read_manifest, write_tile
from projnorm.backends import ONE_PROCESS, Backend, count_workers, run_each
from projnorm.device import full_precision, on_device, torch_threads
from projnorm.errors import InputError
from projnorm.progress import tracked
from projnorm.store import Store

# What may differ between two runs that give the same numbers.
_NOT_IN_THE_NUMBERS = ("memory", "panel", "batch", "checks", "device")
# Of a manifest that asks for more, the number is not believed.
_MOST_THREADS = 1024
# Targets that are printed by name.
_NAMED = 3
# Tiles that follow each other in a plan, and the inputs of their panels.
_Job = tuple[Sequence[Tile], Mapping[int, Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """The blocks of a kernel, and how they were computed.

    Attributes:
        config: Settings of the kernel.
        plan: Panels, tiles, routes and cost.
        parameters: Number of parameters, which are the coordinates of the full gradient.
        device: Device that computed it.
        threads: Number of threads of torch.
        fingerprints: Hashes of networks, inputs and what was drawn, where the tiles are stored in a folder.
        check_error: Largest difference from plain autograd in the entries checked, against ``sqrt(K_ii K_jj)``.
        computed: Number of tiles computed in this run.
        damaged: Names of tiles that were found damaged and computed again.
    """

    config: KernelConfig
    plan: Plan
    parameters: int
    device: str
    threads: int
    fingerprints: Mapping[str, str]
    check_error: float
    computed: int
    damaged: tuple[str, ...]
    _tiles: Tiles

    @property
    def train(self) -> np.ndarray:
        """``k_train``, shape ``(n, n)``."""
        return self._block(TRAIN, TRAIN)

    def ood_train(self, target: str) -> np.ndarray:
        """``k_ood_train`` of a target, shape ``(m, n)``, one row per sample of the target."""
        return self._block(target, TRAIN)

    def ood(self, target: str) -> np.ndarray:
        """``k_ood`` of a target, shape ``(m, m)``."""
        return self._block(target, target)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the sets besides the training set."""
        return tuple(name for name in self.plan.sets if name != TRAIN)

    def to_dict(self) -> dict[str, Any]:
        """What they are of and how they were computed as plain values, without the blocks."""
        plain = ("parameters", "device", "threads", "check_error", "computed")
        return {
            "train": self.plan.sets[TRAIN],
            "targets": {name: self.plan.sets[name] for name in self.targets},
            **{name: getattr(self, name) for name in plain},
            "damaged": list(self.damaged),
            "fingerprints": dict(self.fingerprints),
            "config": self.config.to_json(),
        }

    def __str__(self) -> str:
        sizes = [f"{name} {self.plan.sets[name]:,}" for name in self.targets]
        named = ", ".join(sizes[:_NAMED]) + (", ..." if len(sizes) > _NAMED else "")
        targets = f"{len(sizes)} target{'' if len(sizes) == 1 else 's'}" + (f" ({named})" if sizes else "")
        return (
            f"{self.plan.sets[TRAIN]:,} training samples, {targets}, {self.parameters:,} parameters, device "
            f"{self.device}, check error {self.check_error:.2g}"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def _block(self, rows: str, columns: str) -> np.ndarray:
        out = np.empty((self.plan.sets[rows], self.plan.sets[columns]))
        for i, j in self.plan.tiles:
            row, column = self.plan.panels[i], self.plan.panels[j]
            if (row.set, column.set) == (rows, columns):
                tile = self._tiles.get(_name((i, j)))
                out[row.start : row.stop, column.start : column.stop] = tile
                if rows == columns and i != j:
                    out[column.start : column.stop, row.start : row.stop] = tile.T
        return out


def gram(
    models: nn.Module | Sequence[nn.Module],
    train: Inputs,
    targets: Mapping[str, Inputs] | None = None,
    *,
    config: KernelConfig | None = None,
    prepare: Prepare | None = None,
    folder: Path | str | None = None,
    fresh: bool = False,
    backend: Backend | None = None,
) -> Kernels:
    r"""The tangent kernel :math:`\langle\nabla_\theta f(x), \nabla_\theta f(x')\rangle`.

    Args:
        models: A network with one output per sample, in eval mode, or several whose kernels are averaged.
        train: Training inputs, one sample per row.
        targets: Other sets by name; each gives a block with the training set and one with itself.
        config: Which kernel, and how.
        prepare: Applied to every batch before the network, for example `projnorm.vision.ImageNetInput`.
        folder: Folder that stores the tiles, from which a later run goes on; in memory by default.
        fresh: Compute again even what is there.
        backend: Where tiles are computed, runs of them as tasks with one thread each, so that the numbers do not depend
            on it; by default this process, with all of torch's threads.

    Raises:
        UnsupportedNetworkError: If a layer has no exact rule.
        ChangedInputError: If `folder` holds tiles of other networks, inputs or choices.
        SelfCheckError: If the spot check against plain autograd fails.
        ClusterError: If the cluster cannot be reached or is lost; tiles that were finished stay.
        InputError: If the inputs or the configuration are no good.
    """
    task = GramTask(models, as_sets(train, targets), config, prepare)
    return task.run(None if folder is None else Path(folder), fresh=fresh, backend=backend)


class GramTask:
    """Kernels that are ready to be computed: networks, inputs and memory are checked, and nothing is written yet."""

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        sets: Mapping[str, Tensor],
        config: KernelConfig | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        """As `gram`; `sets` come from `as_sets`."""
        self._models, self._sets, self._prepare = models, sets, prepare
        self.engine = Engine(models, sets[TRAIN], config, prepare=prepare)
        self.plan = plan_kernels(self.engine, sets)

    def run(self, folder: Path | None = None, *, fresh: bool = False, backend: Backend | None = None) -> Kernels:
        """Compute the tiles that are not in `folder`; arguments and errors are those of `gram`."""
        with nullcontext() if folder is None else Store(folder).lock():
            manifest = {} if fresh or folder is None else read_manifest(folder)
            cut = _resumed_cut(manifest)
            plan = self.plan if cut in (None, self.plan.cut) else plan_kernels(self.engine, self._sets, cut=cut)
            # What is there was computed with so many threads, and another number may change the last bit of a sum.
            threads = _resumed_threads(manifest) or (torch.get_num_threads() if backend is None else 1)
            with full_precision(), torch_threads(threads):
                fingerprints = {} if folder is None else self._fingerprints()
                tiles = Tiles(folder, fingerprints | self._choices(plan, threads), fresh=fresh)
                computed = self._compute(plan, tiles, threads, on_device(backend or ONE_PROCESS, self.engine.device))
                error = self.engine.largest_error(_spot_checks(self.engine, plan, self._sets, tiles))
        return Kernels(
            self.engine.config,
            plan,
            self.engine.parameters,
            str(self.engine.device),
            threads,
            fingerprints,
            error,
            computed,
            tuple(tiles.damaged),
            tiles,
        )

    def _fingerprints(self) -> dict[str, str]:
        return self.engine.fingerprints | {f"inputs of {name}": tensor_hash(x) for name, x in self._sets.items()}

    def _choices(self, plan: Plan, threads: int) -> dict[str, Any]:
        """Every choice that changes a bit of the tiles."""
        return {
            **{key: value for key, value in self.engine.config.to_json().items() if key not in _NOT_IN_THE_NUMBERS},
            "device": str(self.engine.device),
            "cut": plan.cut.to_json(),
            "threads": threads,
            "torch": torch.__version__,
            "sets": dict(plan.sets),
        }

    def _compute(self, plan: Plan, tiles: Tiles, threads: int, backend: Backend) -> int:
        """Every tile that is not there, in this process or as tasks; returns how many."""
        if backend == ONE_PROCESS:
            todo = [tile for tile in plan.tiles if _name(tile) not in tiles]
            inputs = partial(_panel_inputs, plan, self._sets)
            _store_blocks(_blocks(self.engine, inputs, plan.cut, plan.room, todo), tiles, plan, todo)
            return len(todo)
        runs = [[t for t in run if _name(t) not in tiles] for run in chunks(plan, max(2, count_workers(backend)))]
        runs = [run for run in runs if run]
        todo = [tile for run in runs for tile in run]
        config = replace(self.engine.config, device=str(self.engine.device))
        work = partial(
            _compute_job,
            make_engine=partial(Engine, self._models, self._sets[TRAIN][:1].clone(), config, prepare=self._prepare),
            cut=plan.cut,
            room=plan.room,
            threads=threads,
            store=None if backend.scheduler else tiles.store,
        )
        # Copies: of a view, all that it is a view of would travel.
        jobs = (
            (run, {panel: _panel_inputs(plan, self._sets, panel).clone() for tile in run for panel in tile})
            for run in runs
        )
        with run_each(work, jobs, backend=backend.for_tasks(len(runs))) as running:
            finished = (tile for number, blocks in running for tile in zip(runs[number], blocks, strict=True))
            _store_blocks(finished, tiles, plan, todo)
        return len(todo)


def plan_kernels(engine: Engine, sets: Mapping[str, Tensor], *, cut: Cut | None = None) -> Plan:
    """The plan that `gram` follows; `cut` groups the samples as tiles that are there were cut."""
    sizes = replace(engine.sizes, fixed=engine.sizes.fixed + sum(x.nbytes for x in sets.values()))
    return make_plan(
        {name: len(x) for name, x in sets.items()},
        engine.costs,
        sizes,
        panel=engine.config.panel,
        batch=engine.config.batch,
        memory=engine.config.memory,
        networks=len(engine.maps),
        cut=cut,
    )


def as_sets(train: Inputs, targets: Mapping[str, Inputs] | None) -> dict[str, Tensor]:
    """The inputs as tensors by name, the training set first."""
    targets = {} if targets is None else targets
    if not isinstance(targets, Mapping):
        raise InputError(f"`targets` must be a mapping from names to inputs; got a {type(targets).__name__}.")
    if TRAIN in targets:
        raise InputError(f"a target must not be called {TRAIN!r}.")
    sets = {name: as_inputs(x, f"inputs of {name}") for name, x in {TRAIN: train, **targets}.items()}
    for name, x in sets.items():
        if x.shape[1:] != sets[TRAIN].shape[1:]:
            raise InputError(
                f"inputs of {name} must be of shape {tuple(sets[TRAIN].shape[1:])} like the training inputs; got "
                f"{tuple(x.shape[1:])}."
            )
    return sets


def _store_blocks(
    blocks: Iterator[tuple[Tile, np.ndarray | None]], tiles: Tiles, plan: Plan, todo: Sequence[Tile]
) -> None:
    total = len(plan.tiles)
    for tile, block in tracked(blocks, description="tiles of the kernel", total=total, done=total - len(todo)):
        tiles.put(_name(tile), block)


def _compute_job(
    job: _Job, *, make_engine: Callable[[], Engine], cut: Cut, room: int, threads: int, store: Store | None
) -> list[np.ndarray | None]:
    """The tiles of a job, in another process.

    A process of this machine puts each tile into the store when it is done, so that nothing is lost with a job that is
    not; a worker of a cluster may not see the folder, and sends the tiles.
    """
    tiles, inputs = job
    blocks: list[np.ndarray | None] = []
    with full_precision(), torch_threads(threads):
        for tile, block in _blocks(make_engine(), inputs.__getitem__, cut, room, tiles):
            if store is not None:
                write_tile(store, _name(tile), block)
            blocks.append(block if store is None else None)
    return blocks


def _blocks(
    engine: Engine, inputs: Callable[[int], Tensor], cut: Cut, room: int, tiles: Sequence[Tile]
) -> Iterator[tuple[Tile, np.ndarray]]:
    """The kernel of each tile in order, with as many filled panels as there is room for."""
    workspace, filling = Workspace(cut.formed), Filling(tiles, room)
    rooms: dict[int, list[Factors]] = {}
    filled: dict[int, list[Factors]] = {}
    for position, (i, j) in enumerate(tiles):
        for panel, dropped in filling.at(position):
            if dropped is None:
                rooms[panel] = engine.empty_panel(cut.panel)
            else:
                rooms[panel] = rooms.pop(dropped)
                del filled[dropped]
            filled[panel] = engine.fill(rooms[panel], inputs(panel), batch=cut.batch)
        yield (i, j), engine.block(filled[i], filled[j], workspace)


def _panel_inputs(plan: Plan, sets: Mapping[str, Tensor], index: int) -> Tensor:
    where = plan.panels[index]
    return sets[where.set][where.start : where.stop]


def _spot_checks(engine: Engine, plan: Plan, sets: Mapping[str, Tensor], tiles: Tiles) -> Iterator[tuple[float, float]]:
    """Errors of a few entries against plain autograd, with their scales."""
    rng = np.random.default_rng(engine.config.seed)
    for _ in range(engine.config.checks):
        i, j = plan.tiles[rng.integers(len(plan.tiles))]
        tile = tiles.get(_name((i, j)))
        r, c = (int(rng.integers(plan.panels[k].samples)) for k in (i, j))
        x, y = (
            engine.plain_features(_panel_inputs(plan, sets, panel), index, batch=plan.cut.batch)
            for panel, index in ((i, r), (j, c))
        )
        yield abs(float(tile[r, c]) - float(x @ y)), float(x.norm() * y.norm())


def _name(tile: Tile) -> str:
    return f"{tile[0]:05d}-{tile[1]:05d}"


def _resumed_cut(manifest: Mapping[str, Any]) -> Cut | None:
    """How the tiles of a manifest were cut, so that a resumed run cuts the rest the same way."""
    try:
        return Cut.from_json(manifest.get("cut", {}))
    except InputError:
        return None


def _resumed_threads(manifest: Mapping[str, Any]) -> int | None:
    threads = manifest.get("threads")
    return threads if type(threads) is int and 1 <= threads <= _MOST_THREADS else None
