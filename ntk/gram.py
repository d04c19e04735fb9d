"""Exact or sampled kernels between a training set and any number of other sets, tile by tile, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ntk.config import KernelConfig
from ntk.contraction import Factors, Workspace
from ntk.engine import Engine, Inputs, Prepare, as_inputs, tensor_hash
from ntk.plan import TRAIN, Cut, Plan, Sizes, Tile, chunks, make_plan, to_drop
from ntk.store import TileFiles, TileStore, read_manifest
from projnorm.device import full_precision, on_device, torch_threads
from projnorm.progress import tracked
from projnorm.runs import ONE_PROCESS, Backend, count_workers, run_each, sole_writer

# What may differ between two runs that give the same numbers.
_NOT_IN_THE_NUMBERS = ("memory", "panel", "batch", "checks", "device")
# Of a manifest that asks for more, the number is not believed.
_MOST_THREADS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """The blocks of a kernel, and how they were computed.

    Attributes:
        config: What was asked.
        plan: Panels, tiles, routes and cost.
        parameters: Coordinates of the full gradient.
        device: Where it was computed.
        threads: Threads of torch.
        fingerprints: Hashes of networks, inputs and what was drawn, where the tiles are kept in a folder.
        check_error: Largest difference from plain autograd in the entries checked, against ``sqrt(K_ii K_jj)``.
        computed: Tiles computed in this run.
        damaged: Tiles that were found damaged and computed again.
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
    _store: TileStore

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

    def _block(self, rows: str, columns: str) -> np.ndarray:
        out = np.empty((self.plan.sets[rows], self.plan.sets[columns]))
        for i, j in self.plan.tiles:
            row, column = self.plan.panels[i], self.plan.panels[j]
            if (row.set, column.set) == (rows, columns):
                tile = self._store.get(_name((i, j)))
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
    folder: Path | None = None,
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
        folder: Keep the tiles here, and go on from those that are there; in memory by default.
        fresh: Compute again even what is there.
        backend: Where tiles are computed, runs of them as tasks with one thread each, so that the numbers do not depend
            on it; by default this process, with all of torch's threads.

    Raises:
        UnsupportedNetworkError: If a layer has no exact rule.
        ChangedInputError: If `folder` holds tiles of other networks, inputs or choices.
        SelfCheckError: If the spot check against plain autograd fails.
        ClusterError: If the cluster cannot be reached or is lost; tiles that were finished stay.
        ValueError: If the inputs or the configuration are no good.
    """
    config = config or KernelConfig()
    sets = as_sets(train, targets)
    with nullcontext() if folder is None else sole_writer(folder):
        return _gram(models, sets, config, prepare, folder, fresh, backend)


def _gram(
    models: nn.Module | Sequence[nn.Module],
    sets: Mapping[str, Tensor],
    config: KernelConfig,
    prepare: Prepare | None,
    folder: Path | None,
    fresh: bool,
    backend: Backend | None,
) -> Kernels:
    manifest = None if fresh or folder is None else read_manifest(folder)
    # What is there was computed with so many threads, and another number may change the last bit of a sum.
    threads = _resumed_threads(manifest) or (torch.get_num_threads() if backend is None else 1)
    with full_precision(), torch_threads(threads):
        engine = Engine(models, sets[TRAIN], config, prepare=prepare)
        plan = plan_kernels(engine, sets, cut=_resumed_cut(manifest))
        fingerprints = (
            {}
            if folder is None
            else engine.fingerprints | {f"inputs of {name}": tensor_hash(x) for name, x in sets.items()}
        )
        identity = {
            **fingerprints,
            **{key: value for key, value in asdict(config).items() if key not in _NOT_IN_THE_NUMBERS},
            "device": str(engine.device),
            "cut": asdict(plan.cut),
            "threads": threads,
            "torch": torch.__version__,
            "sets": dict(plan.sets),
        }
        store = TileStore(folder, identity, fresh=fresh)
        backend = on_device(backend or ONE_PROCESS, engine.device)
        if backend == ONE_PROCESS:
            computed = _compute(engine, plan, sets, store)
        else:
            there = replace(config, device=str(engine.device))
            files = None if backend.scheduler else store.files
            work = _TileWork(models, sets[TRAIN][:1].clone(), there, prepare, plan.cut, plan.room, threads, files)
            computed = _compute_on(backend, work, plan, sets, store)
        error = _spot_check(engine, plan, sets, store)
    return Kernels(
        config,
        plan,
        engine.parameters,
        str(engine.device),
        threads,
        fingerprints,
        error,
        computed,
        tuple(store.damaged),
        store,
    )


def plan_kernels(engine: Engine, sets: Mapping[str, Tensor], *, cut: Cut | None = None) -> Plan:
    """The plan that `gram` follows; `cut` groups the samples as tiles that are there were cut."""
    inputs = sum(x.nbytes for x in sets.values())
    sizes = Sizes(engine.sample_bytes, engine.formed_bytes, engine.capture_bytes, engine.fixed_bytes + inputs)
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
    """The inputs as tensors by name, the training set first.

    Raises:
        ValueError: If a set is empty or its samples differ in shape from the training set's.
    """
    given = {TRAIN: train, **(targets or {})}
    if targets and TRAIN in targets:
        raise ValueError(f"a target must not be called {TRAIN!r}.")
    sets = {name: as_inputs(x, f"inputs of {name}") for name, x in given.items()}
    for name, x in sets.items():
        if x.shape[1:] != sets[TRAIN].shape[1:]:
            raise ValueError(
                f"inputs of {name} must be of shape {tuple(sets[TRAIN].shape[1:])} like the training inputs; got "
                f"{tuple(x.shape[1:])}."
            )
    return sets


def _compute(engine: Engine, plan: Plan, sets: Mapping[str, Tensor], store: TileStore) -> int:
    """Every tile that is not there, in this process; returns how many."""
    todo = [tile for tile in plan.tiles if _name(tile) not in store]
    panels = _Panels(engine, partial(_panel_inputs, plan, sets), plan.cut, plan.room)
    computed = _blocks(engine, panels, todo)
    done = len(plan.tiles) - len(todo)
    for tile, block in tracked(computed, description="kernel", total=len(plan.tiles), done=done):
        store.put(_name(tile), block)
    return len(todo)


def _compute_on(backend: Backend, work: _TileWork, plan: Plan, sets: Mapping[str, Tensor], store: TileStore) -> int:
    """Every tile that is not there, as tasks; returns how many."""
    runs = [[tile for tile in run if _name(tile) not in store] for run in chunks(plan, max(2, count_workers(backend)))]
    runs = [run for run in runs if run]
    jobs = (_job(plan, sets, run) for run in runs)
    todo = sum(map(len, runs))
    with run_each(work, jobs, backend=backend.for_tasks(len(runs))) as running:
        finished = (tile for number, blocks in running for tile in zip(runs[number], blocks, strict=True))
        done = len(plan.tiles) - todo
        for tile, block in tracked(finished, description="kernel", total=len(plan.tiles), done=done):
            store.put(_name(tile), block)
    return todo


def _job(plan: Plan, sets: Mapping[str, Tensor], tiles: Sequence[Tile]) -> _TileJob:
    # Copies: of a view, all that it is a view of would travel.
    return _TileJob(tiles, {panel: _panel_inputs(plan, sets, panel).clone() for tile in tiles for panel in tile})


@dataclass(frozen=True, slots=True, eq=False)
class _TileJob:
    """Tiles that follow each other in a plan, and the inputs of their panels."""

    tiles: Sequence[Tile]
    inputs: Mapping[int, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class _TileWork:
    """What every task of a kernel needs; it travels to the workers.

    A process of this machine puts each tile into its file when it is done, so that nothing is lost with a task that is
    not, and says where; a worker of a cluster may not see the folder, and sends the tiles.
    """

    models: nn.Module | Sequence[nn.Module]
    example: Tensor
    config: KernelConfig
    prepare: Prepare | None
    cut: Cut
    room: int
    threads: int
    files: TileFiles | None

    def __call__(self, job: _TileJob) -> list[np.ndarray | Path]:
        found: list[np.ndarray | Path] = []
        with full_precision(), torch_threads(self.threads):
            engine = Engine(self.models, self.example, self.config, prepare=self.prepare)
            panels = _Panels(engine, job.inputs.__getitem__, self.cut, self.room)
            for tile, block in _blocks(engine, panels, job.tiles):
                found.append(block if self.files is None else self.files.write(_name(tile), block))
        return found


def _blocks(engine: Engine, panels: _Panels, tiles: Sequence[Tile]) -> Iterator[tuple[Tile, np.ndarray]]:
    workspace = Workspace(panels.cut.formed)
    for position, (i, j) in enumerate(tiles):
        a, b = (panels.get(index, tiles[position:]) for index in (i, j))
        yield (i, j), engine.block(a, b, workspace)


class _Panels:
    """Filled panels, as many as there is room for; the one needed again last makes way for the next."""

    def __init__(self, engine: Engine, inputs: Callable[[int], Tensor], cut: Cut, room: int) -> None:
        self.cut = cut
        self._engine, self._inputs, self._room = engine, inputs, room
        self._rooms: dict[int, list[Factors]] = {}
        self._filled: dict[int, list[Factors]] = {}

    def get(self, index: int, coming: Sequence[Tile]) -> list[Factors]:
        """The factors of a panel, for the first of the tiles that are coming."""
        if index not in self._filled:
            if len(self._filled) < self._room:
                room = self._engine.empty_panel(self.cut.panel)
            else:
                dropped = to_drop(set(self._filled), coming)
                room = self._rooms.pop(dropped)
                del self._filled[dropped]
            self._rooms[index] = room
            self._filled[index] = self._engine.fill(room, self._inputs(index), batch=self.cut.batch)
        return self._filled[index]


def _panel_inputs(plan: Plan, sets: Mapping[str, Tensor], index: int) -> Tensor:
    where = plan.panels[index]
    return sets[where.set][where.start : where.stop]


def _spot_check(engine: Engine, plan: Plan, sets: Mapping[str, Tensor], store: TileStore) -> float:
    """Largest error of a few entries against plain autograd.

    Raises:
        SelfCheckError: If it is more than rounding.
    """
    rng = np.random.default_rng(engine.config.seed)
    worst = 0.0
    for _ in range(engine.config.checks):
        i, j = plan.tiles[rng.integers(len(plan.tiles))]
        tile = store.get(_name((i, j)))
        r, c = (int(rng.integers(plan.panels[k].samples)) for k in (i, j))
        x, y = (_plain_features(engine, plan, sets, panel, index) for panel, index in ((i, r), (j, c)))
        scale = float(x.norm() * y.norm())
        worst = max(worst, abs(float(tile[r, c]) - float(x @ y)) / scale if scale else abs(float(tile[r, c])))
    engine.require_rounding(worst)
    return worst


def _plain_features(engine: Engine, plan: Plan, sets: Mapping[str, Tensor], panel: int, index: int) -> Tensor:
    """Features of a sample by plain autograd, in the batch it was computed in."""
    batch = plan.cut.batch
    first = index - index % batch
    x = _panel_inputs(plan, sets, panel)[first : first + batch]
    return engine.plain_features(x, index - first)


def _name(tile: Tile) -> str:
    return f"{tile[0]:05d}-{tile[1]:05d}"


def _resumed_cut(manifest: Mapping[str, Any] | None) -> Cut | None:
    """How the tiles of a manifest were cut, so that a resumed run cuts the rest the same way."""
    cut = manifest["identity"].get("cut") if manifest is not None else None
    if not isinstance(cut, dict) or set(cut) != {field.name for field in fields(Cut)}:
        return None
    values = {key: value for key, value in cut.items() if type(value) is int and value >= (key != "formed")}
    return Cut(**values) if len(values) == len(cut) else None


def _resumed_threads(manifest: Mapping[str, Any] | None) -> int | None:
    threads = manifest["identity"].get("threads") if manifest is not None else None
    return threads if type(threads) is int and 1 <= threads <= _MOST_THREADS else None
