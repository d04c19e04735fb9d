r"""What features of a network are to a kernel: all parameters or some coordinates, behind one interface.

With gradients :math:`\nabla f(x)` cut into those of the layers, the kernel over all `p` parameters is

.. math:: K(x, x') = \sum_\ell \langle\nabla_\ell f(x), \nabla_\ell f(x')\rangle

and its share of a layer is computed without its gradients where that is cheaper. The paper's features are the
coordinates :math:`\nabla f(x)_S` of a random set `S`; they are kept as rows of numbers, and the kernel is their plain
product, not scaled by :math:`p / |S|`.
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

from ntk.features.contraction import Factors, LayerRule, Workspace, rule_for, upper_product
from ntk.kernel_config import COORDINATES
from ntk.trace.geometry import patches
from ntk.trace.group_gradients import GroupGradients
from ntk.trace.operations import Convolution, Linear
from ntk.trace.uses import Use
from projnorm.core.errors import InputError

# Entries of a gradient formed only to be picked from or projected, at once.
FORMED_AT_ONCE = 1 << 24
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
        forming: Number of multiply-adds that make of a captured sample what is kept, or multiplied.
    """

    name: str
    parameters: int
    route: str
    multiply_adds: int
    kept: int
    formed: int = 0
    forward: int = 0
    forming: int = 0


class FeatureMap(ABC):
    """How a batch is stored, and how two stored batches give a block of the kernel matrix.

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
    def write(self, captured: Sequence[GroupGradients], out: Factors) -> None:
        """Store a batch in `out`, tensors of shape ``(samples, *shape)`` for each of `shapes`."""

    def grams(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor]:  # noqa: ARG002
        """Parts whose sum is the kernel, for the caller to add in double precision; without `b`, upper triangles.

        What is kept are the features themselves, rows of numbers, unless a subclass says otherwise.
        """
        for i, rows in enumerate(a):
            yield upper_product(rows) if b is None else rows @ b[i].T


class ExactMap(FeatureMap):
    """The exact kernel of all parameters, with the cheaper rule for each group."""

    def __init__(self, sample: Sequence[GroupGradients], *, route: str = "best") -> None:
        """Choose the rule of each group by its sizes in one captured sample."""
        self._rules: list[LayerRule] = [rule_for(captured, route=route) for captured in sample]
        self.shapes = tuple(shape for rule in self._rules for shape in rule.shapes)
        self.dtypes = tuple(dtype for rule in self._rules for dtype in rule.dtypes)
        self.costs = tuple(
            LayerCost(
                layer.group.name,
                layer.group.size,
                rule.route,
                rule.multiply_adds,
                kept=sum(map(math.prod, rule.shapes)),
                formed=rule.formed,
                forward=forward_multiply_adds(layer),
                forming=0 if rule.route == "structured" else forward_multiply_adds(layer),
            )
            for layer, rule in zip(sample, self._rules, strict=True)
        )

    def write(self, captured: Sequence[GroupGradients], out: Factors) -> None:
        """Store what the rule of each group needs, one group after the other."""
        for layer, rule, part in zip(captured, self._rules, self._by_rule(out), strict=True):
            rule.write(layer, part)

    def grams(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor]:
        """Yield the shares of the groups in the kernel, without unused ones."""
        yield from (gram for gram in self.by_group(a, b, workspace) if gram is not None)

    def by_group(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor | None]:
        """The share of each group in the kernel; None for unused parameters."""
        of_b = [None] * len(self._rules) if b is None else self._by_rule(b)
        for rule, part_a, part_b in zip(self._rules, self._by_rule(a), of_b, strict=True):
            yield rule.gram(part_a, part_b, workspace)

    def _by_rule(self, factors: Factors) -> list[Factors]:
        rest = iter(factors)
        return [tuple(islice(rest, len(rule.shapes))) for rule in self._rules]


class CoordinateMap(FeatureMap):
    """A random subset of the coordinates, without replacement: the paper's features."""

    def __init__(
        self, sample: Sequence[GroupGradients], count: int, rng: np.random.Generator, *, route: str = "best"
    ) -> None:
        """Draw `count` of the coordinates; the route "direct" forms every gradient and indexes it."""
        sizes = [captured.group.size for captured in sample]
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
            LayerCost(layer.group.name, size, COORDINATES, len(pick), len(pick), forward=cost, forming=cost)
            for layer, size, pick, cost in zip(
                sample, sizes, self._picks, map(forward_multiply_adds, sample), strict=True
            )
        )
        self.fixed_bytes = 2 * self.indices.nbytes

    def write(self, captured: Sequence[GroupGradients], out: Factors) -> None:
        """Store the drawn coordinates, one tensor of shape ``(samples, drawn)`` per group."""
        for layer, pick, rows in zip(captured, self._picks, out, strict=True):
            if len(pick) == 0:
                continue
            use = layer.single
            if self._may_pick and use is not None and _picking_is_cheaper(layer, use, len(pick)):
                _write_picked(use, pick, rows)
            else:
                for part, formed in formed_rows(layer, rows):
                    torch.index_select(formed, 1, pick, out=part)


def forward_multiply_adds(layer: GroupGradients) -> int:
    """Multiply-adds of a forward pass: weights of linear layers and convolutions, times their positions."""
    return sum(
        size * use.operation.positions(use.grads)
        for use in layer.uses
        for role, size in role_sizes(layer, use).items()
        if role == "weight"
    )


def role_sizes(layer: GroupGradients, use: Use) -> dict[str, int]:
    """Number of entries of the weight and of the bias in one use, by role."""
    sizes = dict(zip(layer.group.parameters, layer.group.sizes, strict=True))
    return {
        role: sizes[traced.parameters[0]] if traced.value is None else traced.value.numel()
        for role, traced in use.roles.items()
    }


def formed_rows(layer: GroupGradients, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over a few samples at a time: their rows of the output, and their gradients in a reused buffer."""
    size = layer.group.size
    at_once = min(max(1, FORMED_AT_ONCE // size), len(rows))
    buffer = rows.new_empty(at_once, size)
    for start in range(0, len(rows), at_once):
        part = slice(start, start + at_once)
        formed = buffer[: len(rows[part])]
        layer.part(part).write_rows(formed)
        yield rows[part], formed


def _picking_is_cheaper(layer: GroupGradients, use: Use, count: int) -> bool:
    """Whether it pays to form single entries: never for transposed weights, groups, or other than two directions."""
    operation, positions = use.operation, use.operation.positions(use.grads)
    plain = isinstance(operation, Linear) and not operation.transposed
    if isinstance(operation, Convolution):
        plain = operation.is_plain(use.grads) and len(operation.window.size) == 2
    weight = use.roles.get("weight")
    first = weight is not None and weight.parameters[0] == layer.group.parameters[0]
    return plain and first and 2 * count * positions < layer.group.size


def _write_picked(use: Use, pick: Tensor, rows: Tensor) -> None:
    """Write the drawn coordinates (c, d): sums over positions of output gradient c times patch entry d."""
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
