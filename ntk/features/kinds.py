"""Three kinds of features behind one interface: all parameters, some coordinates, a random projection.

The kernel over all parameters never forms the features of the layers where that is dearer; the other two kinds are rows
of numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ntk.features.contraction import Factors, Rule, Workspace, rule_for
from ntk.features.feature_map import FeatureMap, LayerCost, formed_rows, forward_multiply_adds
from ntk.features.projection import ProjectionMap
from ntk.kernel_config import COORDINATES, EXACT, KernelConfig
from ntk.trace.captured import Captured
from ntk.trace.geometry import patches
from ntk.trace.operations import Convolution, Linear
from ntk.trace.uses import Use
from projnorm.core.errors import InputError

# Coordinates picked at once, so that what is gathered stays in the cache.
_PICKED_AT_ONCE = 1024


class ExactMap(FeatureMap):
    """All parameters, each block by its cheaper rule."""

    def __init__(self, sample: Sequence[Captured], *, route: str = "best") -> None:
        """From one captured sample, which shows the sizes."""
        self._rules: list[Rule] = [rule_for(captured, route=route) for captured in sample]
        self.shapes = tuple(shape for rule in self._rules for shape in rule.shapes)
        self.dtypes = tuple(dtype for rule in self._rules for dtype in rule.dtypes)
        self.costs = tuple(
            LayerCost(
                layer.block.name,
                layer.block.parameters,
                rule.route,
                rule.multiply_adds,
                kept=sum(map(math.prod, rule.shapes)),
                formed=rule.formed,
                forward=forward_multiply_adds(layer),
                forming=0 if rule.route == "structured" else forward_multiply_adds(layer),
            )
            for layer, rule in zip(sample, self._rules, strict=True)
        )

    def write(self, captured: Sequence[Captured], out: Factors) -> None:
        """Block by block."""
        for layer, rule, part in zip(captured, self._rules, self._by_rule(out), strict=True):
            rule.write(layer, part)

    def grams(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor]:
        """Block by block."""
        yield from (gram for gram in self.by_block(a, b, workspace) if gram is not None)

    def by_block(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor | None]:
        """The share of each block; None where it has none."""
        of_b = [None] * len(self._rules) if b is None else self._by_rule(b)
        for rule, part_a, part_b in zip(self._rules, self._by_rule(a), of_b, strict=True):
            yield rule.gram(part_a, part_b, workspace)

    def _by_rule(self, factors: Factors) -> list[Factors]:
        rest = iter(factors)
        return [tuple(islice(rest, len(rule.shapes))) for rule in self._rules]


class CoordinateMap(FeatureMap):
    """A random subset of the coordinates, without replacement: the paper's features."""

    def __init__(
        self, sample: Sequence[Captured], count: int, rng: np.random.Generator, *, route: str = "best"
    ) -> None:
        """Draw `count` of the coordinates; the route "direct" forms every gradient and indexes it."""
        sizes = [captured.block.parameters for captured in sample]
        total = sum(sizes)
        if not 1 <= count <= total:
            raise InputError(f"`count` must be between 1 and the {total:,} parameters; got {count:,}.")
        self.indices = np.sort(rng.choice(total, size=count, replace=False, shuffle=False))
        self.fingerprint = hashlib.sha256(self.indices.astype("<i8").tobytes()).hexdigest()
        starts = np.concatenate([[0], np.cumsum(sizes)])
        cuts = np.searchsorted(self.indices, starts)
        self._picks = [
            torch.from_numpy(self.indices[low:high] - start).to(captured.device)
            for captured, low, high, start in zip(sample, cuts[:-1], cuts[1:], starts[:-1], strict=True)
        ]
        self._may_pick = route != "direct"
        self.shapes, self.dtypes = tuple((len(pick),) for pick in self._picks), (None,) * len(self._picks)
        self.costs = tuple(
            LayerCost(layer.block.name, size, COORDINATES, len(pick), len(pick), forward=cost, forming=cost)
            for layer, size, pick, cost in zip(
                sample, sizes, self._picks, map(forward_multiply_adds, sample), strict=True
            )
        )
        self.fixed_bytes = 2 * self.indices.nbytes

    def write(self, captured: Sequence[Captured], out: Factors) -> None:
        """Form only the coordinates picked where that is cheaper."""
        for layer, pick, rows in zip(captured, self._picks, out, strict=True):
            if len(pick) == 0:
                continue
            use = layer.single
            if self._may_pick and use is not None and _picking_is_cheaper(layer, use, len(pick)):
                _write_picked(use, pick, rows)
            else:
                for part, formed in formed_rows(layer, rows):
                    torch.index_select(formed, 1, pick, out=part)


def feature_map(config: KernelConfig, sample: Sequence[Captured]) -> FeatureMap:
    """The map of the kind, count, seed and route of a configuration, for layers of the sizes of one captured sample."""
    if config.kind == EXACT:
        return ExactMap(sample, route=config.route)
    rng = np.random.default_rng(config.seed)
    if config.kind == COORDINATES:
        return CoordinateMap(sample, config.count, rng, route=config.route)
    return ProjectionMap(sample, config.count, rng)


def _picking_is_cheaper(layer: Captured, use: Use, count: int) -> bool:
    """Whether it pays to form single entries: never for transposed weights, groups, or other than two directions."""
    operation, positions = use.operation, use.operation.positions(use.grads)
    plain = isinstance(operation, Linear) and not operation.transposed
    if isinstance(operation, Convolution):
        plain = operation.is_plain(use.grads) and len(operation.window.size) == 2
    weight = use.roles.get("weight")
    first = weight is not None and weight.roots[0] == layer.block.roots[0]
    return plain and first and 2 * count * positions < layer.block.parameters


def _write_picked(use: Use, pick: Tensor, rows: Tensor) -> None:
    """Coordinate (output c, patch entry d) is the sum over positions of output gradient c times patch entry d."""
    assert use.inputs is not None
    x, grads = use.inputs.to(rows.dtype), use.grads.to(rows.dtype)
    # Samples innermost: what a coordinate picks is then one contiguous run.
    if isinstance(use.operation, Convolution):
        a = patches(use.operation.window, x[:, 0]).permute(1, 2, 0).contiguous()
        g = grads[:, 0].flatten(2).permute(1, 2, 0).contiguous()
    else:
        a, g = (t.flatten(1, -2).permute(2, 1, 0).contiguous() for t in (x, grads))
    outputs, entries = len(g), len(a)
    weights = int(torch.searchsorted(pick, outputs * entries))
    for start in range(0, weights, _PICKED_AT_ONCE):
        chunk = pick[start : min(start + _PICKED_AT_ONCE, weights)]
        products = g.index_select(0, chunk // entries).mul_(a.index_select(0, chunk % entries))
        rows[:, start : start + len(chunk)] = (products.sum(1) if products.shape[1] > 1 else products[:, 0]).T
    if weights < len(pick):
        rows[:, weights:] = g.index_select(0, pick[weights:] - outputs * entries).sum(1).T
