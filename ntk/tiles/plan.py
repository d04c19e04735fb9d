r"""What a kernel will cost before it is computed: panels, tiles, multiply-adds and bytes, fitted to a limit of memory.

A panel is the factors of some samples of one set; a tile is the kernel between two panels. Panels are held while the
memory allows, so that with enough memory every sample passes the network once. With `b` bytes kept for a sample,
panels of `p` samples and `S` bytes held besides, the number of panels in memory is

.. math:: \left\lfloor\frac{\mathrm{memory} - S}{p\,b}\right\rfloor

and the panel that makes way for the next is the one needed again last (Belady, "A study of replacement algorithms for
a virtual-storage computer", 1966).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ntk.features.feature_maps import LayerCost
from ntk.features.sizes import Sizes
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError

# Indices of two panels.
Tile = tuple[int, int]

TRAIN = "train"
FITS, ON_DISK, RECOMPUTED = "none", "disk", "recomputed"
# What an interpreter with torch in it holds before anything is computed, in bytes.
_INTERPRETER = 0.7e9
# Samples whose gradients are formed at once before more panels are held.
_LEAST_FORMED = 128
# Bytes per pair of samples of a tile: its sum, and the share of a layer twice.
_TILES = 24.0
# A task ends early at this share of a worker's, if what it fills again is so small a share of its products.
_EARLY, _FILLED_AGAIN = 1 / 8, 1 / 32
# It ends in any case at this share, or when its tiles take this much of the memory.
_LATE, _HELD = 1 / 2, 1 / 8
# Panels that a worker fills before tiles are computed from them.
_PANELS_EACH = 3
# Blocks of position pairs of a structured convolution, and gradients formed only to be picked from, in bytes.
_SCRATCH = 0.25e9


@dataclass(frozen=True)
class BatchSizes(Config):
    """Grouping of the samples; another grouping may change the last bit of a sum."""

    panel: int = setting(help="Number of samples in a panel.", least=1)
    batch: int = setting(help="Number of samples in a forward and backward pass.", least=1)
    formed: int = setting(help="Number of samples whose gradients are formed at once, if not kept.", least=0)


@dataclass(frozen=True, slots=True)
class Panel:
    """Samples `start` to `stop` of one set."""

    set: str
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Panels and tiles of the blocks, and what they cost.

    Attributes:
        sets: Number of samples of each set by name; "train" first.
        panels: All panels, set by set.
        tiles: Pairs of indices into `panels`, in the order they are computed; of a symmetric block the upper half.
        panels_in_memory: Number of panels held at once.
        batch_sizes: Grouping of the samples.
        layers: Route and cost of each layer.
        networks: Number of networks whose kernels are averaged.
        sample_bytes: Number of bytes kept for a sample.
        peak_bytes: Estimate of the most memory held at once, in bytes.
        memory: Largest number of bytes allowed.
        overflow: What becomes of panels that do not fit into memory: "none" where all fit, "disk" where they are
            written and read again, "recomputed" where their samples pass the network again.
    """

    sets: Mapping[str, int]
    panels: tuple[Panel, ...]
    tiles: tuple[Tile, ...]
    panels_in_memory: int
    batch_sizes: BatchSizes
    layers: tuple[LayerCost, ...]
    networks: int
    sample_bytes: int
    peak_bytes: float
    memory: float
    overflow: str = RECOMPUTED

    @property
    def pairs(self) -> int:
        """Number of pairs of samples computed; a diagonal tile counts half."""
        return sum(map(self.pairs_of, self.tiles))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the products of all tiles."""
        return self.pairs * self.networks * sum(layer.multiply_adds for layer in self.layers)

    def pairs_of(self, tile: Tile) -> int:
        """Number of pairs of samples of a tile."""
        rows, columns = (self.panels[index].samples for index in tile)
        return rows * ((rows + 1) // 2 if tile[0] == tile[1] else columns)

    @property
    def fill_multiply_adds(self) -> int:
        """Multiply-adds for a sample of a panel: forward, backward, and forming the gradients that are kept."""
        return self.networks * sum(2 * layer.forward + (0 if layer.formed else layer.forming) for layer in self.layers)

    def tile_multiply_adds(self, tile: Tile) -> int:
        """Multiply-adds of a tile: its products, and forming the gradients that are not kept."""
        rows, columns = (self.panels[index].samples for index in tile)
        products = self.pairs_of(tile) * sum(layer.multiply_adds for layer in self.layers)
        forming = sum(layer.forming for layer in self.layers if layer.formed)
        formed = _formed_samples(rows, columns, self.batch_sizes.formed, diagonal=tile[0] == tile[1]) if forming else 0
        return self.networks * (products + formed * forming)

    @property
    def passes(self) -> int:
        """Number of samples sent through each network, again where their panel was dropped."""
        return (
            self.samples_in(loads(self.tiles, self.panels_in_memory)) if self.overflow == RECOMPUTED else self.samples
        )

    def disk_bytes(self, workers: int = 1) -> int:
        """Number of bytes of the panels on disk: those of the training set and of one group of targets at a time."""
        if self.overflow != ON_DISK:
            return 0
        groups = ([self.sets[name] for name in names if name != TRAIN] for names in set_groups(self, workers))
        return self.sample_bytes * (self.sets[TRAIN] + max(map(sum, groups)))

    def samples_in(self, panels: Iterable[int]) -> int:
        """Number of samples in some panels."""
        return sum(self.panels[panel].samples for panel in panels)

    @property
    def tile_bytes(self) -> int:
        """Number of bytes of all tiles on disk."""
        return sum(map(self.bytes_of, self.tiles))

    def bytes_of(self, tile: Tile) -> int:
        """Number of bytes of a tile, in double precision."""
        return 8 * self.panels[tile[0]].samples * self.panels[tile[1]].samples

    @property
    def samples(self) -> int:
        """Number of samples in all sets."""
        return sum(self.sets.values())


def make_plan(
    sets: Mapping[str, int],
    layers: Sequence[LayerCost],
    sizes: Sizes,
    *,
    panel: int,
    batch: int,
    memory: float,
    networks: int = 1,
    batch_sizes: BatchSizes | None = None,
) -> Plan:
    """Fit panels of at most `panel` samples, which pass a network at most `batch` at once, to `memory` bytes.

    `sets` are numbers of samples by name, "train" among them. `batch_sizes` that are given, those of tiles
    which are there already, are kept.
    """
    if batch_sizes is None:
        batch_sizes = _fit(sets, sizes, memory, panel=panel, batch=batch)
    count = _panel_count(sets, batch_sizes.panel)
    standing, panel_bytes = _standing_bytes(sizes, batch_sizes), max(1, batch_sizes.panel * sizes.sample)
    panels_in_memory = min(int((memory - standing) // panel_bytes), count)
    if panels_in_memory < min(2, count):
        least = standing + 2 * panel_bytes
        raise InputError(
            f"`memory` of {memory / 1e9:.3g} GB is too small; {math.ceil(least / 1e7) / 100:g} GB is needed."
        )
    panels = _panels(sets, batch_sizes.panel)
    return Plan(
        sets=dict(sets),
        panels=panels,
        tiles=tuple(_tiles(panels, panels_in_memory)),
        panels_in_memory=panels_in_memory,
        batch_sizes=batch_sizes,
        layers=tuple(layers),
        networks=networks,
        sample_bytes=sizes.sample,
        peak_bytes=standing + panels_in_memory * panel_bytes,
        memory=memory,
        overflow=FITS if panels_in_memory == count else RECOMPUTED,
    )


def _fit(sets: Mapping[str, int], sizes: Sizes, memory: float, *, panel: int, batch: int) -> BatchSizes:
    """The largest panels up to `panel` of which two fit, then as many gradients formed at once as the memory allows."""
    panel = min(panel, max(sets.values()))
    while True:
        batch = min(batch, panel)
        while batch > 1 and batch * sizes.capture > memory / 4:
            batch //= 2
        formed = min(panel, _LEAST_FORMED) if sizes.formed else 0
        needed = min(2, _panel_count(sets, panel)) * panel * sizes.sample
        if panel == 1 or _standing_bytes(sizes, BatchSizes(panel, batch, formed)) + needed <= memory:
            break
        panel //= 2
    while 0 < formed < panel:
        more = BatchSizes(panel, batch, min(2 * formed, panel))
        if _standing_bytes(sizes, more) + needed > memory:
            break
        formed = more.formed
    return BatchSizes(panel, batch, formed)


def _standing_bytes(sizes: Sizes, batch_sizes: BatchSizes) -> float:
    """Bytes held besides the panels."""
    formed = 2 * batch_sizes.formed * sizes.formed
    return (
        _INTERPRETER
        + _SCRATCH
        + sizes.fixed
        + batch_sizes.batch * sizes.capture
        + _TILES * batch_sizes.panel**2
        + formed
    )


def set_groups(plan: Plan, workers: int) -> list[list[str]]:
    """Sets whose panels are filled together: one by one for one worker, else as many as give each worker some."""
    groups: list[list[str]] = [[]]
    panels = 0
    for name in plan.sets:
        if groups[-1] and (workers == 1 or panels >= _PANELS_EACH * workers):
            groups.append([])
            panels = 0
        groups[-1].append(name)
        panels += sum(panel.set == name for panel in plan.panels)
    return groups


def chunks(plan: Plan, workers: int) -> tuple[tuple[Tile, ...], ...]:
    """The tiles divided into tasks, each a run of consecutive tiles that a worker begins with no panel filled.

    One worker has one task, in which no panel is filled that the plan does not fill. Of several, a task ends with the
    tile that brings it to an eighth of a worker's share of all multiply-adds, if filling the panels that the task
    before had filled already costs at most a 32nd of its tiles; else it goes on until it does, or until it has half of
    a worker's share, or its tiles, which a worker holds until they are sent, take an eighth of the memory. So where
    there are tiles enough a worker has two to eight tasks, or more where there is little memory.
    """
    if workers < 1:
        raise InputError(f"`workers` must be at least 1; got {workers}.")
    if workers == 1:
        return (plan.tiles,)
    costs = [plan.tile_multiply_adds(tile) for tile in plan.tiles]
    share = sum(costs) / workers
    unbroken, alone = (PanelCache(plan.tiles, plan.panels_in_memory) for _ in range(2))
    tasks: list[tuple[Tile, ...]] = []
    start, done, again, held = 0, 0, 0, 0
    for position, cost in enumerate(costs):
        extra = plan.samples_in(panel for panel, _ in alone.at(position))
        extra -= plan.samples_in(panel for panel, _ in unbroken.at(position))
        done, again = done + cost, again + extra * plan.fill_multiply_adds
        held += plan.bytes_of(plan.tiles[position])
        enough = done >= _EARLY * share and again <= _FILLED_AGAIN * done
        if enough or done >= _LATE * share or held >= _HELD * plan.memory:
            tasks.append(plan.tiles[start : position + 1])
            start, done, again, held = position + 1, 0, 0, 0
            alone.forget()
    return (*tasks, plan.tiles[start:]) if start < len(plan.tiles) else tuple(tasks)


def loads(tiles: Sequence[Tile], panels_in_memory: int) -> Iterator[int]:
    """Panels in the order in which they are filled, for tiles computed in this order with that many panels held."""
    cache = PanelCache(tiles, panels_in_memory)
    for position in range(len(tiles)):
        yield from (panel for panel, _ in cache.at(position))


class PanelCache:
    """Panels that are held while tiles are computed in order; the one needed again last makes way for the next."""

    def __init__(self, tiles: Sequence[Tile], capacity: int) -> None:
        """`capacity` is the number of panels held at once."""
        self._tiles, self._capacity = tiles, capacity
        self._held: set[int] = set()
        self._uses: dict[int, list[int]] = {}
        for position, tile in enumerate(tiles):
            for panel in dict.fromkeys(tile):
                self._uses.setdefault(panel, []).append(position)

    def at(self, position: int) -> list[tuple[int, int | None]]:
        """The panels filled for the tile at this position, each with the one that makes way for it, if one must."""
        filled: list[tuple[int, int | None]] = []
        for panel in dict.fromkeys(self._tiles[position]):
            if panel in self._held:
                continue
            dropped = self._last_needed(position) if len(self._held) == self._capacity else None
            self._held -= {dropped}
            self._held.add(panel)
            filled.append((panel, dropped))
        return filled

    def forget(self) -> None:
        """Begin with no panel held."""
        self._held.clear()

    def _last_needed(self, position: int) -> int:
        coming = {panel: bisect_left(self._uses[panel], position) for panel in self._held}
        next_use = {
            panel: self._uses[panel][at] if at < len(self._uses[panel]) else math.inf for panel, at in coming.items()
        }
        last = max(next_use.values())
        latest = sorted(panel for panel, use in next_use.items() if use == last)
        if len(latest) == 1 or last == math.inf:
            return latest[0]
        # Both of one tile: the one whose next use after it is later, and so on.
        return max(latest, key=lambda panel: (*self._uses[panel][coming[panel] :], math.inf))


def _formed_samples(rows: int, columns: int, at_once: int, *, diagonal: bool) -> int:
    """Samples whose gradients are formed for a tile: rows once, columns again for every `at_once` rows."""
    if diagonal:
        return rows + sum(max(0, rows - start - at_once) for start in range(0, rows, at_once))
    return rows + columns * math.ceil(rows / at_once)


def _panel_count(sets: Mapping[str, int], size: int) -> int:
    return sum(math.ceil(count / size) for count in sets.values())


def _panels(sets: Mapping[str, int], size: int) -> tuple[Panel, ...]:
    return tuple(
        Panel(name, start, min(start + size, count)) for name, count in sets.items() for start in range(0, count, size)
    )


def _tiles(panels: Sequence[Panel], panels_in_memory: int) -> Iterator[Tile]:
    """Set by set: with itself, and with the training set; rows in strips that fit, columns to and fro."""
    by_set: dict[str, list[int]] = {}
    for index, panel in enumerate(panels):
        by_set.setdefault(panel.set, []).append(index)
    strip = max(1, panels_in_memory - 1)
    for name, rows in by_set.items():
        columns = rows if name == TRAIN else [*by_set[TRAIN], *rows]
        for turn, start in enumerate(range(0, len(rows), strip)):
            strip_rows = rows[start : start + strip]
            for column in columns[:: -1 if turn % 2 else 1]:
                for row in strip_rows:
                    if panels[column].set != name or column >= row:
                        yield row, column
