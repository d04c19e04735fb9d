"""What a kernel will cost before it is computed: panels, tiles, multiply-adds and bytes, fitted to a memory ceiling.

A panel is the factors of some samples of one set; a tile is the kernel between two panels. Panels are kept while the
ceiling allows, so that with enough memory every sample passes the network once.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ntk.kinds import LayerCost
from projnorm.errors import InputError

# Indices of two panels.
Tile = tuple[int, int]

TRAIN = "train"
# What an interpreter with torch in it holds before anything is computed, in bytes.
_INTERPRETER = 0.7e9
# Samples whose gradients are formed at once before more panels are kept.
_LEAST_FORMED = 128
# Bytes per pair of samples of a tile: its sum, and the share of a layer twice.
_TILES = 24.0
# A task ends early at this share of a worker's, if what it fills again is so small a share of its products.
_EARLY, _FILLED_AGAIN = 1 / 8, 1 / 32
# It ends in any case at this share, or when its tiles take this much of the ceiling.
_LATE, _HELD = 1 / 2, 1 / 8
# Blocks of position pairs of a structured convolution, and gradients formed only to be picked from, in bytes.
_SCRATCH = 0.25e9


@dataclass(frozen=True, slots=True)
class Panel:
    """Samples `start` to `stop` of one set."""

    set: str
    start: int
    stop: int

    @property
    def samples(self) -> int:
        """How many."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Cut:
    """How samples are grouped; another grouping may change the last bit of a sum.

    Attributes:
        panel: Samples per panel.
        batch: Samples per forward and backward pass.
        formed: Samples whose gradients are formed at once, in layers where they are not kept.
    """

    panel: int
    batch: int
    formed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How the blocks are cut and what they cost.

    Attributes:
        sets: Samples of each set by name; "train" first.
        panels: All panels.
        tiles: Pairs of indices into `panels`, in the order they are computed; of a symmetric block the upper half.
        room: Panels kept at once.
        cut: How samples are grouped.
        layers: Route and cost of each layer.
        networks: Networks whose kernels are averaged.
        sample_bytes: Kept per sample.
        peak_bytes: Estimate of the most memory held at once.
        memory: The ceiling.
    """

    sets: Mapping[str, int]
    panels: tuple[Panel, ...]
    tiles: tuple[Tile, ...]
    room: int
    cut: Cut
    layers: tuple[LayerCost, ...]
    networks: int
    sample_bytes: int
    peak_bytes: float
    memory: float

    @property
    def pairs(self) -> int:
        """Pairs of samples computed; a diagonal tile counts half."""
        return sum(
            self.panels[i].samples * (self.panels[j].samples if i != j else (self.panels[i].samples + 1) // 2)
            for i, j in self.tiles
        )

    @property
    def multiply_adds(self) -> int:
        """Of the contraction."""
        return self.pairs * self.networks * sum(layer.multiply_adds for layer in self.layers)

    @property
    def fill_multiply_adds(self) -> int:
        """Per sample that a panel is filled with: forward, backward, and forming the gradients that are kept."""
        return self.networks * sum(2 * layer.forward + (0 if layer.formed else layer.forming) for layer in self.layers)

    def tile_multiply_adds(self, tile: Tile) -> int:
        """Products of a tile, and forming the gradients that are not kept."""
        rows, columns = (self.panels[index].samples for index in tile)
        diagonal = tile[0] == tile[1]
        pairs = rows * ((rows + 1) // 2 if diagonal else columns)
        forming = sum(layer.forming for layer in self.layers if layer.formed)
        formed = _formed_samples(rows, columns, self.cut.formed, diagonal=diagonal) if forming else 0
        return self.networks * (pairs * sum(layer.multiply_adds for layer in self.layers) + formed * forming)

    @property
    def passes(self) -> int:
        """Samples sent through each network, counting those that are sent again because their panel was dropped."""
        return sum(self.panels[load].samples for load in loads(self.tiles, self.room))

    @property
    def tile_bytes(self) -> int:
        """All tiles on disk."""
        return sum(map(self.bytes_of, self.tiles))

    def bytes_of(self, tile: Tile) -> int:
        """A tile, in double precision."""
        return 8 * self.panels[tile[0]].samples * self.panels[tile[1]].samples

    @property
    def samples(self) -> int:
        """Samples in all sets."""
        return sum(self.sets.values())


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a plan is made from, in bytes.

    Attributes:
        sample: Kept per sample.
        formed: Formed per sample in the widest layer whose gradients are not kept.
        capture: Needed per sample of a forward and backward pass.
        fixed: The networks, the inputs and what was drawn.
    """

    sample: int
    formed: int
    capture: int
    fixed: int

    def standing(self, cut: Cut) -> float:
        """What is held besides the panels."""
        formed = 2 * cut.formed * self.formed
        return _INTERPRETER + _SCRATCH + self.fixed + cut.batch * self.capture + _TILES * cut.panel**2 + formed


def make_plan(
    sets: Mapping[str, int],
    layers: Sequence[LayerCost],
    sizes: Sizes,
    *,
    panel: int,
    batch: int,
    memory: float,
    networks: int = 1,
    cut: Cut | None = None,
) -> Plan:
    """Fit the panels to the ceiling.

    Args:
        sets: Samples of each set by name, the training set under "train".
        layers: From a feature map.
        sizes: What a sample takes.
        panel: Samples per panel wanted.
        batch: Samples per pass wanted.
        memory: Ceiling in bytes.
        networks: Networks whose kernels are averaged.
        cut: Group the samples like this, because tiles cut like this are there already.

    Raises:
        InputError: If the ceiling is too low for two panels.
    """
    if cut is None:
        cut = _fit(sets, sizes, memory, panel=panel, batch=batch)
    count = _panel_count(sets, cut.panel)
    standing, panel_bytes = sizes.standing(cut), cut.panel * sizes.sample
    room = min(int((memory - standing) // panel_bytes), count)
    if room < min(2, count):
        least = standing + 2 * panel_bytes
        raise InputError(
            f"`memory` of {memory / 1e9:.3g} GB is too small; {math.ceil(least / 1e7) / 100:g} GB is needed."
        )
    panels = _panels(sets, cut.panel)
    return Plan(
        dict(sets),
        panels,
        tuple(_tiles(panels, room)),
        room,
        cut,
        tuple(layers),
        networks,
        sizes.sample,
        standing + room * panel_bytes,
        memory,
    )


def _fit(sets: Mapping[str, int], sizes: Sizes, memory: float, *, panel: int, batch: int) -> Cut:
    """The largest panels up to `panel` of which two fit, then as many gradients formed at once as there is room for."""
    panel = min(panel, max(sets.values()))
    while True:
        batch = min(batch, panel)
        while batch > 1 and batch * sizes.capture > memory / 4:
            batch //= 2
        formed = min(panel, _LEAST_FORMED) if sizes.formed else 0
        needed = min(2, _panel_count(sets, panel)) * panel * sizes.sample
        if panel == 1 or sizes.standing(Cut(panel, batch, formed)) + needed <= memory:
            break
        panel //= 2
    while 0 < formed < panel:
        more = Cut(panel, batch, min(2 * formed, panel))
        if sizes.standing(more) + needed > memory:
            break
        formed = more.formed
    return Cut(panel, batch, formed)


def chunks(plan: Plan, workers: int) -> tuple[tuple[Tile, ...], ...]:
    """The tiles cut into tasks, each a run of consecutive tiles that a worker begins with no panel filled.

    One worker has one task, in which no panel is filled that the plan does not fill. Of several, a task ends with the
    tile that brings it to an eighth of a worker's share of all multiply-adds, if filling the panels that the task
    before had filled already costs at most a 32nd of its tiles; else it goes on until it does, or until it has half of
    a worker's share, or its tiles, which a worker holds until they are sent, take an eighth of the ceiling. So where
    there are tiles enough a worker has two to eight tasks, or more where the ceiling is low.

    Raises:
        InputError: If there is no worker.
    """
    if workers < 1:
        raise InputError(f"`workers` must be at least 1; got {workers}.")
    if workers == 1:
        return (plan.tiles,)
    costs = [plan.tile_multiply_adds(tile) for tile in plan.tiles]
    share = sum(costs) / workers
    unbroken, alone = (_Filling(plan.tiles, plan.room) for _ in range(2))
    cut: list[tuple[Tile, ...]] = []
    start, done, again, held = 0, 0, 0, 0
    for position, cost in enumerate(costs):
        extra = sum(plan.panels[p].samples for p in alone.at(position))
        extra -= sum(plan.panels[p].samples for p in unbroken.at(position))
        done, again = done + cost, again + extra * plan.fill_multiply_adds
        held += plan.bytes_of(plan.tiles[position])
        enough = done >= _EARLY * share and again <= _FILLED_AGAIN * done
        if enough or done >= _LATE * share or held >= _HELD * plan.memory:
            cut.append(plan.tiles[start : position + 1])
            start, done, again, held = position + 1, 0, 0, 0
            alone.forget()
    return (*cut, plan.tiles[start:]) if start < len(plan.tiles) else tuple(cut)


def loads(tiles: Sequence[Tile], room: int) -> Iterator[int]:
    """Which panel is filled when, for tiles computed in this order with `room` panels kept."""
    filling = _Filling(tiles, room)
    for position in range(len(tiles)):
        yield from filling.at(position)


class _Filling:
    """Which panels are kept while tiles are computed in order; as `to_drop`, without looking at every tile to come."""

    def __init__(self, tiles: Sequence[Tile], room: int) -> None:
        self._tiles, self._room = tiles, room
        self._kept: set[int] = set()
        self._uses: dict[int, list[int]] = {}
        for position, tile in enumerate(tiles):
            for panel in dict.fromkeys(tile):
                self._uses.setdefault(panel, []).append(position)

    def at(self, position: int) -> list[int]:
        """The panels filled for this tile."""
        filled = [panel for panel in dict.fromkeys(self._tiles[position]) if panel not in self._kept]
        for panel in filled:
            if len(self._kept) == self._room:
                self._kept.remove(self._last_needed(position))
            self._kept.add(panel)
        return filled

    def forget(self) -> None:
        """Begin with nothing kept."""
        self._kept.clear()

    def _last_needed(self, position: int) -> int:
        coming = {panel: bisect_left(self._uses[panel], position) for panel in self._kept}
        following = {
            panel: self._uses[panel][at] if at < len(self._uses[panel]) else math.inf for panel, at in coming.items()
        }
        last = max(following.values())
        latest = sorted(panel for panel, use in following.items() if use == last)
        if len(latest) == 1 or last == math.inf:
            return latest[0]
        # Both of one tile: the one whose next use after it is later, and so on.
        return max(latest, key=lambda panel: (*self._uses[panel][coming[panel] :], math.inf))


def to_drop(kept: set[int], coming: Sequence[Tile]) -> int:
    """The panel that is needed again last, or never."""
    waiting = set(kept)
    for tile in coming:
        if len(waiting) == 1:
            break
        waiting -= set(tile) if len(waiting - set(tile)) else set()
    return min(waiting)


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


def _tiles(panels: Sequence[Panel], room: int) -> Iterator[Tile]:
    """Set by set: with itself, and with the training set; rows in strips that fit, columns to and fro."""
    by_set: dict[str, list[int]] = {}
    for index, panel in enumerate(panels):
        by_set.setdefault(panel.set, []).append(index)
    strip = max(1, room - 1)
    for name, rows in by_set.items():
        columns = rows if name == TRAIN else [*by_set[TRAIN], *rows]
        for turn, start in enumerate(range(0, len(rows), strip)):
            wanted = rows[start : start + strip]
            for column in columns[:: -1 if turn % 2 else 1]:
                for row in wanted:
                    if panels[column].set != name or column >= row:
                        yield row, column
