"""Exact or sampled kernels between a training set and any number of other sets, tile by tile, resumable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ntk.config import KernelConfig
from ntk.contraction import Factors, Workspace
from ntk.device import full_precision, torch_threads
from ntk.engine import Engine, Inputs, Prepare, as_inputs, tensor_hash
from ntk.plan import TRAIN, Cut, Plan, Sizes, make_plan, to_drop
from ntk.store import TileStore, read_manifest
from projnorm.runs.progress import tracked

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

    Raises:
        UnsupportedNetworkError: If a layer has no exact rule.
        ChangedInputError: If `folder` holds tiles of other networks, inputs or choices.
        SelfCheckError: If the spot check against plain autograd fails.
        ValueError: If the inputs or the configuration are no good.
    """
    config = config or KernelConfig()
    sets = as_sets(train, targets)
    manifest = None if fresh or folder is None else read_manifest(folder)
    # What is there was computed with so many threads, and another number may change the last bit of a sum.
    threads = _resumed_threads(manifest) or torch.get_num_threads()
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
        computed = _compute(engine, plan, sets, store)
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
    """Every tile that is not there; returns how many."""
    todo = [tile for tile in plan.tiles if _name(tile) not in store]
    panels = _Panels(engine, plan, sets)
    workspace = Workspace(plan.cut.formed)
    done = len(plan.tiles) - len(todo)
    for position, (i, j) in enumerate(tracked(todo, description="kernel", total=len(plan.tiles), done=done)):
        a, b = (panels.get(index, todo[position:]) for index in (i, j))
        store.put(_name((i, j)), engine.block(a, b, workspace))
    return len(todo)


class _Panels:
    """Filled panels, as many as there is room for; the one needed again last makes way for the next."""

    def __init__(self, engine: Engine, plan: Plan, sets: Mapping[str, Tensor]) -> None:
        self._engine, self._plan, self._sets = engine, plan, sets
        self._rooms: dict[int, list[Factors]] = {}
        self._filled: dict[int, list[Factors]] = {}

    def get(self, index: int, coming: Sequence[tuple[int, int]]) -> list[Factors]:
        """The factors of a panel, for the first of the tiles that are coming."""
        if index not in self._filled:
            if len(self._filled) < self._plan.room:
                room = self._engine.empty_panel(self._plan.cut.panel)
            else:
                dropped = to_drop(set(self._filled), coming)
                room = self._rooms.pop(dropped)
                del self._filled[dropped]
            where = self._plan.panels[index]
            x = self._sets[where.set][where.start : where.stop]
            self._rooms[index] = room
            self._filled[index] = self._engine.fill(room, x, batch=self._plan.cut.batch)
        return self._filled[index]


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
    where, batch = plan.panels[panel], plan.cut.batch
    first = index - index % batch
    x = sets[where.set][where.start : where.stop][first : first + batch]
    return engine.plain_features(x, index - first)


def _name(tile: tuple[int, int]) -> str:
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
