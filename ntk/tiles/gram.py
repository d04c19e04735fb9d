r"""Exact or sampled kernels between a training set and any number of other sets, tile by tile, resumable.

With the features :math:`\Phi` of the training set and :math:`\tilde\Phi` of a target, one per row, the blocks are

.. math::
   K_\mathrm{train} = \Phi\Phi^\top, \qquad
   K_\mathrm{ood,train} = \tilde\Phi\Phi^\top, \qquad
   K_\mathrm{ood} = \tilde\Phi\tilde\Phi^\top

of whose tiles only the upper triangle of a symmetric block is computed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ntk.features.engine import Engine
from ntk.kernel_config import KernelConfig
from ntk.tiles.kernels import Kernels
from ntk.tiles.panels import PanelFiles, disk_rate
from ntk.tiles.plan import ON_DISK, RECOMPUTED, TRAIN, BatchSizes, Plan, chunks, loads, make_plan
from ntk.tiles.sets import as_sets
from ntk.tiles.tile_runs import TileRuns, count_processes, tile_name
from ntk.tiles.tiles import Tiles, read_manifest
from ntk.trace.inputs import Inputs, Prepare, Samples
from projnorm.core.backends import ONE_PROCESS, Backend
from projnorm.core.device import full_precision, on_device, torch_threads
from projnorm.core.errors import InputError
from projnorm.core.progress import tracked
from projnorm.core.store import Store

# What may differ between two runs that give the same numbers.
_NOT_IN_THE_NUMBERS = ("memory", "panel", "batch", "self_check", "device", "disk")
# Of a manifest that asks for more, the number is not believed.
_MOST_THREADS = 1024
# Part of a free disk that panels may take.
_FREE = 0.8
# Samples that a network is looked at with: from the training set, and from a target.
_OF_TRAIN, _OF_TARGET = 2, 1


def gram(
    models: nn.Module | Sequence[nn.Module],
    train: Inputs,
    targets: Mapping[str, Inputs] | Inputs | None = None,
    *,
    config: KernelConfig | None = None,
    prepare: Prepare | None = None,
    folder: Path | str | None = None,
    fresh: bool = False,
    backend: Backend | None = None,
) -> Kernels:
    r"""The tangent kernel :math:`\langle\nabla_\theta f(x), \nabla_\theta f(x')\rangle`.

    Args:
        models: A network in eval mode, or several whose kernels are averaged. Of several outputs the kernel is the mean
            over them, unless `config` says otherwise. It may return a tensor, or something with `logits`.
        train: Training inputs, one sample per row: a tensor or array, a mapping of them to the network's keyword
            arguments, such as a tokenizer's batch, or a `DataLoader`.
        targets: Other sets by name, or a single one; each gives a block with the training set and one with itself.
        config: Which kernel, and how.
        prepare: Applied to every batch before the network, for example `projnorm.data.ImageNetInput`. Without it,
            images of bytes are divided by 255.
        folder: Folder that stores the tiles, from which a later run goes on; in memory by default.
        fresh: Compute again even what is there.
        backend: Where tiles are computed, runs of them as tasks with one thread each, so that the numbers do not depend
            on it; by default this process, with all of torch's threads.

    Raises:
        UnsupportedNetworkError: If samples have no gradients of their own, as in training mode.
        ChangedInputError: If `folder` holds tiles of other networks, inputs or choices.
        SelfCheckError: If the check against plain autograd fails.
        ClusterError: If the cluster cannot be reached or is lost; tiles that were finished stay.
        InputError: If the inputs or the configuration are no good.

    Example:
        >>> import torch
        >>> from ntk import KernelConfig, gram
        >>> model = torch.nn.Linear(2, 1).eval()  # gradients are (x, 1), so K(x, x') = <x, x'> + 1
        >>> x, x_new = torch.tensor([[1.0, 0.0], [1.0, 2.0]]), torch.tensor([[0.0, 3.0]])
        >>> kernels = gram(model, x, {"new": x_new}, config=KernelConfig(device="cpu"))
        >>> kernels.train
        array([[2., 2.],
               [2., 6.]])
        >>> kernels.ood_train("new"), kernels.ood("new")
        (array([[1., 7.]]), array([[10.]]))
    """
    task = GramTask(models, as_sets(train, targets), config, prepare)
    return task.run(None if folder is None else Path(folder), fresh=fresh, backend=backend)


class GramTask:
    """Kernels that are ready to be computed: networks, inputs and memory are checked, and nothing is written yet."""

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        sets: Mapping[str, Samples],
        config: KernelConfig | None = None,
        prepare: Prepare | None = None,
    ) -> None:
        """As `gram`; `sets` come from `as_sets`."""
        self._models, self._prepare = models, prepare
        self._probes = _drawn(sets, (config or KernelConfig()).seed)
        example = _joined([sets[name][slice(row, row + 1)] for name, row in self._probes])
        with full_precision():
            self.engine = Engine(models, example, config, prepare=prepare)
        rows = self.engine.rows_per_sample
        self._sets = {name: x.for_every_output(rows) for name, x in sets.items()} if rows > 1 else dict(sets)
        self.plan = plan_tiles(self.engine, self._sets)

    def run(self, folder: Path | None = None, *, fresh: bool = False, backend: Backend | None = None) -> Kernels:
        """Compute the tiles that are not in `folder`; arguments and errors are those of `gram`."""
        with nullcontext() if folder is None else Store(folder).lock():
            manifest = {} if fresh or folder is None else read_manifest(folder)
            batch_sizes = _resumed_batch_sizes(manifest)
            plan = self.plan
            if batch_sizes not in (None, plan.batch_sizes):
                plan = plan_tiles(self.engine, self._sets, batch_sizes=batch_sizes)
            # Another number of threads than that of the tiles which are there may change the last bit of a sum.
            threads = _resumed_threads(manifest) or (torch.get_num_threads() if backend is None else 1)
            with full_precision(), torch_threads(threads):
                fingerprints = {} if folder is None else self._fingerprints()
                tiles = Tiles(folder, fingerprints | self._choices(plan, threads), fresh=fresh)
                backend = on_device(backend or ONE_PROCESS, self.engine.device)
                with self._panels(plan, tiles, backend) as (plan, files):
                    computed = self._compute(plan, tiles, threads, backend, files)
                if self.engine.config.self_check:
                    self._check(plan, tiles)
        return Kernels(
            config=self.engine.config,
            plan=plan,
            parameters=self.engine.parameters,
            device=str(self.engine.device),
            threads=threads,
            fingerprints=fingerprints,
            left_out=self.engine.left_out,
            by_autograd=self.engine.by_autograd,
            check_error=self.engine.check_error,
            computed=computed,
            damaged=tuple(tiles.damaged),
            _tiles=tiles,
        )

    def _fingerprints(self) -> dict[str, str]:
        return self.engine.fingerprints | {f"inputs of {name}": x.sha256() for name, x in self._sets.items()}

    def _choices(self, plan: Plan, threads: int) -> dict[str, Any]:
        """Every choice that changes a bit of the tiles."""
        return {
            **{key: value for key, value in self.engine.config.to_json().items() if key not in _NOT_IN_THE_NUMBERS},
            "device": str(self.engine.device),
            "batch_sizes": plan.batch_sizes.to_json(),
            "threads": threads,
            "torch": torch.__version__,
            "sets": dict(plan.sets),
        }

    def planned(self, folder: Path, plan: Plan | None = None, workers: int = 1) -> Plan:
        """The plan with what becomes of panels that are needed again, for tiles in this folder.

        They are, where not all fit into memory, or where several workers need the same.
        """
        plan, config = plan or self.plan, self.engine.config
        on_disk = replace(plan, overflow=ON_DISK)
        again = sum(plan.samples_in(loads(run, plan.panels_in_memory)) for run in chunks(plan, workers))
        if again == plan.samples or config.disk == "never":
            return plan
        folder.mkdir(parents=True, exist_ok=True)
        if on_disk.disk_bytes(workers) > _FREE * shutil.disk_usage(folder).free:
            return plan
        seconds = (plan.samples + again) * plan.sample_bytes / disk_rate(folder)
        pays = seconds < (again - plan.samples) * self.engine.views * self.engine.seconds_per_sample
        return on_disk if pays or config.disk == "always" else plan

    @contextmanager
    def _panels(self, plan: Plan, tiles: Tiles, backend: Backend) -> Iterator[tuple[Plan, PanelFiles | None]]:
        """The plan with the place where panels wait, and their files where that is the disk."""
        workers = count_processes(backend)
        if (workers == 1 and plan.overflow != RECOMPUTED) or backend.scheduler:  # a cluster may not see the folder
            yield plan, None
            return
        with nullcontext("") if tiles.store is not None else tempfile.TemporaryDirectory() as temporary:
            folder = tiles.store.folder if tiles.store is not None else Path(temporary)
            plan = self.planned(folder, plan, workers)
            files = PanelFiles(folder / "panels") if plan.overflow == ON_DISK else None
            yield plan, files
            if files is not None:
                files.clear()

    def _compute(self, plan: Plan, tiles: Tiles, threads: int, backend: Backend, files: PanelFiles | None) -> int:
        """Every tile that is not there, in this process or as tasks; returns how many."""
        todo = [tile for tile in plan.tiles if tile_name(tile) not in tiles]
        total = len(plan.tiles)
        runs = TileRuns(self.engine, self._make_engine, plan, self._sets, tiles, threads, backend, files)
        finished = runs.finished(todo)
        for tile, block in tracked(finished, description="tiles of the kernel", total=total, done=total - len(todo)):
            tiles.put(tile_name(tile), block)
        return len(todo)

    @property
    def _make_engine(self) -> Callable[[], Engine]:
        """Makes the same engine in another process, where nothing is checked again."""
        config = replace(self.engine.config, device=str(self.engine.device))
        example = self.engine.example.clone()
        return partial(
            Engine, self._models, example, config, prepare=self._prepare, trace_options=self.engine.trace_options
        )

    def _check(self, plan: Plan, tiles: Tiles) -> None:
        """The entries of the samples that the network was looked at with are those that it had then."""
        expected = self.engine.example_kernel()
        scale = np.sqrt(np.outer(expected.diagonal(), expected.diagonal()))
        kernel, each = np.empty_like(expected), self.engine.rows_per_sample
        where = [_panel_of(plan, name, row * each) for name, row in self._probes]
        for a, (i, r) in enumerate(where):
            for b, (j, c) in enumerate(where):
                if tile_name((i, j)) in tiles:
                    kernel[a, b] = tiles.get(tile_name((i, j)))[r, c]
                elif tile_name((j, i)) in tiles:
                    kernel[a, b] = tiles.get(tile_name((j, i)))[c, r]
                else:  # two targets have no block in common
                    kernel[a, b] = expected[a, b]
        self.engine.self_check.require_same(kernel, expected, scale)


def _drawn(sets: Mapping[str, Samples], seed: int) -> list[tuple[str, int]]:
    """Samples that a network is looked at with: two of the training set and one of a target, or what there is."""
    rng = np.random.default_rng(seed)
    targets = [name for name in sets if name != TRAIN]
    of_train = _OF_TRAIN if targets else _OF_TRAIN + _OF_TARGET
    rows = rng.choice(len(sets[TRAIN]), size=min(of_train, len(sets[TRAIN])), replace=False)
    drawn = [(TRAIN, int(row)) for row in rows]
    if targets:
        name = targets[int(rng.integers(len(targets)))]
        drawn.append((name, int(rng.integers(len(sets[name])))))
    return drawn


def _joined(parts: Sequence[Samples]) -> Samples:
    joined = {key: torch.cat([part.tensors[key] for part in parts]) for key in parts[0].tensors}
    return Samples(joined if isinstance(parts[0].values, dict) else joined[""])


def _panel_of(plan: Plan, name: str, row: int) -> tuple[int, int]:
    """The panel that a row of a set is in, and its place there."""
    return next(
        (index, row - panel.start)
        for index, panel in enumerate(plan.panels)
        if panel.set == name and panel.start <= row < panel.stop
    )


def plan_tiles(engine: Engine, sets: Mapping[str, Samples], *, batch_sizes: BatchSizes | None = None) -> Plan:
    """The plan that `gram` follows; `batch_sizes` are those of tiles that are there already."""
    sizes = replace(engine.sizes, fixed=engine.sizes.fixed + sum(x.nbytes for x in sets.values()))
    return make_plan(
        {name: len(x) for name, x in sets.items()},
        engine.costs,
        sizes,
        panel=engine.config.panel,
        batch=engine.batch,
        memory=engine.config.memory,
        networks=engine.views,
        batch_sizes=batch_sizes,
    )


def _resumed_batch_sizes(manifest: Mapping[str, Any]) -> BatchSizes | None:
    """Batch sizes of the tiles of a manifest, which a resumed run keeps."""
    try:
        return BatchSizes.from_json(manifest.get("batch_sizes", {}))
    except InputError:
        return None


def _resumed_threads(manifest: Mapping[str, Any]) -> int | None:
    threads = manifest.get("threads")
    return threads if type(threads) is int and 1 <= threads <= _MOST_THREADS else None
