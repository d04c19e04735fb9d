"""Three kinds of features behind one interface: all parameters, some coordinates, a random projection.

A `FeatureMap` says what is kept of a batch and how two batches give a block of the kernel. The kernel over all
parameters never forms the features of the layers where that is dearer; the other two kinds are rows of numbers.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from ntk.captured import Captured
from ntk.config import COORDINATES, EXACT, PROJECTION, KernelConfig
from ntk.contraction import Factors, Rule, Workspace, rule_for, upper_product
from ntk.geometry import patches
from ntk.operations import Convolution, Linear
from ntk.uses import Use
from projnorm.errors import InputError

# Entries of a gradient formed only to be picked from or projected, at once.
_FORMED_AT_ONCE = 1 << 24
# Coordinates picked at once, so that what is gathered stays in the cache.
_PICKED_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One line of a plan.

    Attributes:
        name: Name of the layer.
        parameters: Number of its parameters.
        route: Route by which its share of the kernel is computed.
        multiply_adds: Number of multiply-adds for a pair of samples.
        kept: Number of values kept for a sample.
        formed: Number of values that a product needs for a sample besides those.
        forward: Number of multiply-adds of a forward pass of one sample; a backward pass takes as many again.
    """

    name: str
    parameters: int
    route: str
    multiply_adds: int
    kept: int
    formed: int = 0
    forward: int = 0

    @property
    def forming(self) -> int:
        """Multiply-adds that form the gradient of one sample: every weight at every position, as in a pass."""
        return 0 if self.route in ("structured", "passed") else self.forward


class FeatureMap(ABC):
    """What is kept of a batch, and how two batches give a block of the kernel.

    Attributes:
        shapes: Shape per sample of each tensor that is kept.
        dtypes: Type of each; None for that of the products.
        costs: Route and cost of each layer.
        fingerprint: Hash of everything drawn at random; empty where nothing is.
        fixed_bytes: Number of bytes of what was drawn.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype | None, ...]
    costs: tuple[LayerCost, ...]
    fingerprint: str = ""
    fixed_bytes: int = 0

    @abstractmethod
    def write(self, captured: Sequence[Captured], out: Factors) -> None:
        """Put what is kept of a batch into `out`, one sample per row."""

    @abstractmethod
    def of_gradient(self, gradient: Tensor) -> Tensor:
        """The features that a full gradient, shape ``(parameters,)``, stands for."""

    def grams(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor]:  # noqa: ARG002
        """Blocks whose sum is the kernel, for the caller to add in double precision; without `b`, upper triangles.

        What is kept are the features themselves, rows of numbers, unless a subclass says otherwise.
        """
        for i, rows in enumerate(a):
            yield upper_product(rows) if b is None else rows @ b[i].T


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
                forward=_forward_multiply_adds(layer),
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

    def of_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient itself."""
        return gradient

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
            LayerCost(layer.block.name, size, COORDINATES, len(pick), len(pick), forward=_forward_multiply_adds(layer))
            for layer, size, pick in zip(sample, sizes, self._picks, strict=True)
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
                for part, formed in _formed(layer, rows):
                    torch.index_select(formed, 1, pick, out=part)

    def of_gradient(self, gradient: Tensor) -> Tensor:
        """The coordinates picked."""
        return gradient[torch.from_numpy(self.indices).to(gradient.device)]


class ProjectionMap(FeatureMap):
    r"""A sparse random projection: every coordinate goes, with a random sign, into one of `width` sums.

    Charikar, Chen and Farach-Colton, "Finding frequent items in data streams" (2002). The inner product of two
    projected gradients is unbiased, with variance at most :math:`2\|g\|^2\|g'\|^2 / \mathrm{width}`, as for a dense
    Johnson-Lindenstrauss matrix of random signs, at the cost of one addition per parameter.
    """

    def __init__(self, sample: Sequence[Captured], width: int, rng: np.random.Generator) -> None:
        """Draw a projection onto `width` numbers."""
        self._width = width
        self._sizes = [captured.block.parameters for captured in sample]
        size, forward = sum(self._sizes), sum(map(_forward_multiply_adds, sample))
        self._buckets = torch.from_numpy(rng.integers(width, size=size))
        self._signs = torch.from_numpy(rng.integers(2, size=size, dtype=np.int8) * 2 - 1)
        digest = hashlib.sha256(self._buckets.numpy().astype("<i8").tobytes() + self._signs.numpy().tobytes())
        self._buckets, self._signs = (t.to(sample[0].device) for t in (self._buckets, self._signs))
        self.fingerprint = digest.hexdigest()
        self.shapes, self.dtypes = ((width,),), (None,)
        # One product for all layers together.
        self.costs = (LayerCost("all layers", size, PROJECTION, width, width, forward=forward),)
        self.fixed_bytes = self._buckets.nbytes + self._signs.nbytes

    def write(self, captured: Sequence[Captured], out: Factors) -> None:
        """The sum of what the layers project to."""
        out[0].zero_()
        parts = (torch.split(drawn, self._sizes) for drawn in (self._buckets, self._signs))
        for layer, buckets, signs in zip(captured, *parts, strict=True):
            for rows, formed in _formed(layer, out[0]):
                rows.index_add_(1, buckets, formed.mul_(signs))

    def of_gradient(self, gradient: Tensor) -> Tensor:
        """The projection of it."""
        return gradient.new_zeros(self._width).index_add_(0, self._buckets, gradient * self._signs)


def feature_map(config: KernelConfig, sample: Sequence[Captured]) -> FeatureMap:
    """The map of the kind, count, seed and route of a configuration, for layers of the sizes of one captured sample."""
    if config.kind == EXACT:
        return ExactMap(sample, route=config.route)
    rng = np.random.default_rng(config.seed)
    if config.kind == COORDINATES:
        return CoordinateMap(sample, config.count, rng, route=config.route)
    return ProjectionMap(sample, config.count, rng)


def _forward_multiply_adds(layer: Captured) -> int:
    """Every weight of a linear layer or a convolution at every position; other layers are not counted."""
    return sum(
        size * use.operation.positions(use.grads)
        for use in layer.uses
        for role, size in _role_sizes(layer, use).items()
        if role == "weight"
    )


def _role_sizes(layer: Captured, use: Use) -> dict[str, int]:
    """Number of entries of what has each role in a use."""
    sizes = dict(zip(layer.block.roots, layer.block.sizes, strict=True))
    return {role: sizes[one.roots[0]] if one.value is None else one.value.numel() for role, one in use.roles.items()}


def _formed(layer: Captured, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A few samples at a time: the rows they will fill, and their whole gradients in a buffer used again and again."""
    size = layer.block.parameters
    at_once = min(max(1, _FORMED_AT_ONCE // size), len(rows))
    buffer = rows.new_empty(at_once, size)
    for start in range(0, len(rows), at_once):
        part = slice(start, start + at_once)
        formed = buffer[: len(rows[part])]
        layer.part(part).write_rows(formed)
        yield rows[part], formed


def _picking_is_cheaper(layer: Captured, use: Use, count: int) -> bool:
    """Whether it pays to form single entries: never for transposed weights, groups, or other than two directions."""
    operation, positions = use.operation, use.operation.positions(use.grads)
    plain = isinstance(operation, Linear) and not operation.transposed
    if isinstance(operation, Convolution):
        plain = operation.groups == use.grads.shape[1] == 1 and not operation.transposed
        plain = plain and len(operation.window.size) == 2
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
