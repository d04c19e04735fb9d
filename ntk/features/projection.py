r"""A random projection of gradients, of most layers without forming them.

The gradient by a weight is a sum over positions of output gradient times input. Where that is cheaper, the inputs are
projected first:

.. math:: G = \sum_s b_s a_s^\top, \qquad G R^\top = \sum_s b_s (R a_s)^\top

with :math:`p` random orthonormal rows in :math:`R`, scaled so that :math:`\mathbb E\,R^\top R = I`. For a convolution
:math:`R a_s` is itself a convolution, with few outputs. Then every number :math:`v_i` goes, with a random sign
:math:`\sigma_i`, into one of `width` sums (Charikar, Chen and Farach-Colton, "Finding frequent items in data streams",
2002):

.. math:: \phi_j = \sum_{i:\, h(i) = j} \sigma_i v_i

Both steps keep inner products on average.

Only the inputs are projected: output gradients of different samples are often nearly parallel, so that few directions
would not tell them apart.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ntk.features.contraction import ELEMENTWISE, Factors
from ntk.features.feature_maps import FORMED_AT_ONCE, FeatureMap, LayerCost, formed_rows, forward_multiply_adds
from ntk.kernel_config import PROJECTION
from ntk.trace.geometry import convolved
from ntk.trace.group_gradients import GroupGradients
from ntk.trace.operations import Convolution, Embedding, Linear
from ntk.trace.parameter_groups import UNUSED
from ntk.trace.uses import Use

# Directions that the inputs of a layer are projected onto: at least the first number, one for every
# `_SUMS_PER_DIRECTION` sums that follow, and one for every `_SUMS_PER_POSITION` sums for each position. Where a layer
# has one position its gradient has rank one, and the error of its kernel is one over the root of the directions; many
# positions average it out.
_FEWEST_DIRECTIONS, _SUMS_PER_DIRECTION, _SUMS_PER_POSITION = 64, 1024, 16


class ProjectionMap(FeatureMap):
    """A random projection onto `width` numbers, whose inner products are those of the gradients on average."""

    def __init__(self, sample: Sequence[GroupGradients], width: int, rng: np.random.Generator) -> None:
        """Draw a projection for layers of the sizes of one captured sample."""
        self._parts = [_group_projection(layer, width, rng) for layer in sample]
        sizes = [part.size for part in self._parts]
        buckets = torch.from_numpy(rng.integers(width, size=sum(sizes), dtype=np.int32))
        signs = torch.from_numpy(rng.integers(2, size=sum(sizes), dtype=np.int8) * 2 - 1)
        drawn = [buckets, signs, *(t for part in self._parts for t in part.drawn)]
        self.fingerprint = hashlib.sha256(b"".join(t.cpu().numpy().tobytes() for t in drawn)).hexdigest()
        device = sample[0].device
        halves = (torch.split(t.to(device), sizes) for t in (buckets, signs))
        self._sums = [_SignedSums(*drawn_for_part) for drawn_for_part in zip(*halves, strict=True)]
        self.shapes, self.dtypes = ((width,),), (None,)
        # One product for all layers together.
        parameters = sum(layer.group.size for layer in sample)
        forward, forming = sum(map(forward_multiply_adds, sample)), sum(part.multiply_adds for part in self._parts)
        self.costs = (LayerCost("all layers", parameters, PROJECTION, width, width, forward=forward, forming=forming),)
        self.fixed_bytes = sum(t.nbytes for t in drawn)

    def write(self, captured: Sequence[GroupGradients], out: Factors) -> None:
        """Store the projected gradients, shape ``(samples, width)``: the sum over all layers."""
        rows = out[0].zero_()
        for layer, part, sums in zip(captured, self._parts, self._sums, strict=True):
            part.add(layer, sums, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _SignedSums:
    """The sum that each number is added to, and the sign with which it is added."""

    buckets: Tensor
    signs: Tensor

    def add(self, values: Tensor, rows: Tensor) -> None:
        """Add the numbers, one row a sample, to the sums in `rows`; `values` are overwritten."""
        rows.index_add_(1, self.buckets, values.mul_(self.signs))

    def add_some(self, indices: Tensor, values: Tensor, rows: Tensor) -> None:
        """Add numbers at `indices` of the whole row; `indices` and `values` have the shape ``(samples, numbers)``."""
        rows.scatter_add_(1, self.buckets[indices].long(), values * self.signs[indices])


class _GroupProjection(ABC):
    """The numbers into which the gradients of one group of parameters are turned before they are summed.

    Attributes:
        size: Number of these for a sample.
        multiply_adds: Number of multiply-adds that make them of a captured sample.
        drawn: What was drawn at random besides the sums.
    """

    size: int
    multiply_adds: int
    drawn: tuple[Tensor, ...] = ()

    @abstractmethod
    def add(self, layer: GroupGradients, sums: _SignedSums, rows: Tensor) -> None:
        """Add the numbers of a captured batch to the sums in `rows`, one row per sample."""


class _Formed(_GroupProjection):
    """The gradients themselves, one number per parameter; none for unused parameters."""

    def __init__(self, layer: GroupGradients) -> None:
        """Take the number of parameters and the cost from one captured sample."""
        self.size = 0 if layer.group.route == UNUSED else layer.group.size
        self.multiply_adds = forward_multiply_adds(layer)

    def add(self, layer: GroupGradients, sums: _SignedSums, rows: Tensor) -> None:
        """Add the gradients, formed for a few samples at a time."""
        if self.size:
            for some, formed in formed_rows(layer, rows):
                sums.add(formed, some)


class _LookedUp(_GroupProjection):
    """The gradients of an embedding, of which only the rows that a sample looks up are formed."""

    def __init__(self, layer: GroupGradients, operation: Embedding) -> None:
        """Take the number of entries of the table from one captured sample."""
        self.size, self.multiply_adds, self._operation = layer.group.size, 0, operation

    def add(self, layer: GroupGradients, sums: _SignedSums, rows: Tensor) -> None:
        """Add the gradients of the looked-up rows, for a few samples at a time."""
        use = layer.uses[0]
        assert use.inputs is not None
        numbers, grads = self._operation.pairs(use.inputs, use.grads.to(rows.dtype))
        width = grads.shape[-1]
        columns = torch.arange(width, device=grads.device)
        held = 4 * math.prod(grads.shape[1:])  # indices and what is looked up with them, besides the numbers
        at_once = max(1, FORMED_AT_ONCE // max(1, held))
        for start in range(0, len(rows), at_once):
            some = slice(start, start + at_once)
            indices = (numbers[some, :, None] * width + columns).flatten(1)
            sums.add_some(indices, grads[some].flatten(1), rows[some])


class _Narrowed(_GroupProjection):
    """The gradients of a weight with randomly projected inputs, and the gradients of the bias."""

    def __init__(self, use: Use, directions: int, rng: np.random.Generator) -> None:
        """Draw the orthogonal directions that the inputs are projected onto."""
        outputs, entries = _weight_shape(use)
        basis, _ = np.linalg.qr(rng.normal(size=(entries, directions)))
        drawn = (basis.T * math.sqrt(entries / directions)).astype(np.float32)
        self.drawn = (torch.from_numpy(drawn).to(use.grads.device),)
        self.size = outputs * (directions + ("bias" in use.roles))
        self.multiply_adds = _narrowing(use, directions)

    def add(self, layer: GroupGradients, sums: _SignedSums, rows: Tensor) -> None:
        """Add the gradients with projected inputs, for a few samples at a time."""
        (basis,), use = self.drawn, layer.uses[0]
        assert use.inputs is not None
        held = self.size + len(basis) * use.operation.positions(use.grads)
        at_once = min(max(1, FORMED_AT_ONCE // held), len(rows))
        buffer = rows.new_empty(at_once, self.size)
        for start in range(0, len(rows), at_once):
            some = slice(start, start + at_once)
            x, g = (t[some].to(rows.dtype) for t in (use.inputs, use.grads))
            out = buffer[: len(x)]
            inputs, grads = _by_position(use, x, g, basis.to(rows.dtype))
            weights = torch.bmm(grads, inputs)
            out[:, : weights[0].numel()] = weights.flatten(1)
            if "bias" in use.roles:
                torch.sum(grads, 2, out=out[:, weights[0].numel() :])
            sums.add(out, rows[some])


def _group_projection(layer: GroupGradients, width: int, rng: np.random.Generator) -> _GroupProjection:
    """The cheapest way to project a group onto `width` numbers."""
    use = layer.single
    if use is not None and isinstance(use.operation, Embedding):
        return _LookedUp(layer, use.operation)
    if use is None or not _may_narrow(use):
        return _Formed(layer)
    (outputs, entries), positions = _weight_shape(use), max(1, use.operation.positions(use.grads))
    directions = max(_FEWEST_DIRECTIONS, width // _SUMS_PER_DIRECTION, width // (_SUMS_PER_POSITION * positions))
    unfolded = positions * entries if isinstance(use.operation, Convolution) else 0
    formed = positions * outputs * entries + ELEMENTWISE * (unfolded + outputs * entries)
    narrowed = _narrowing(use, directions) + ELEMENTWISE * outputs * directions
    return _Narrowed(use, directions, rng) if directions < entries and narrowed < formed else _Formed(layer)


def _narrowing(use: Use, directions: int) -> int:
    """Multiply-adds that project the inputs of a sample, and multiply them with the output gradients."""
    return use.operation.positions(use.grads) * directions * sum(_weight_shape(use))


def _may_narrow(use: Use) -> bool:
    """Whether a use is of a weight whose inputs may be projected."""
    operation = use.operation
    plain = isinstance(operation, Linear) or (isinstance(operation, Convolution) and operation.is_plain(use.grads))
    return plain and "weight" in use.roles and use.inputs is not None


def _weight_shape(use: Use) -> tuple[int, int]:
    """Number of outputs, and of entries of the input that each is a sum over."""
    assert use.inputs is not None
    if isinstance(use.operation, Convolution):
        return use.grads.shape[2], use.inputs.shape[2] * math.prod(use.operation.window.size)
    return use.grads.shape[-1], use.inputs.shape[-1]


def _by_position(use: Use, x: Tensor, g: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """Projected inputs, shape ``(samples, positions, directions)``, and gradients ``(samples, outputs, positions)``."""
    if isinstance(use.operation, Convolution):
        window = use.operation.window
        weight = basis.view(len(basis), x.shape[2], *window.size)
        return convolved(window, x[:, 0], weight).flatten(2).transpose(1, 2), g[:, 0].flatten(2)
    return x.flatten(1, -2) @ basis.T, g.flatten(1, -2).transpose(1, 2)
