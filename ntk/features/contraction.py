r"""A rule per layer: from what was captured to the layer's share of the kernel.

"direct" forms the gradient of every sample and multiplies; "structured" never forms it. For a convolution with output
gradients :math:`b_s` and patches :math:`a_s` at the positions `s`,

.. math:: \langle\nabla_W f(x), \nabla_W f(x')\rangle = \sum_{s,t} \langle b_s, b'_t\rangle\,\langle a_s, a'_t\rangle

and :math:`\langle a_s, a'_t\rangle` is a sum over the taps of inner products of *pixels*, which neighbouring positions
share; those between a pixel and the padding are zero and never computed. For a linear layer there is one position, and
the shares of weight and bias together are

.. math:: \bigl(\langle x, x'\rangle + 1\bigr)\,\langle b, b'\rangle

For a table whose rows are looked up only pairs of equal numbers :math:`r` count:

.. math:: \sum_{s,t} [r_s = r'_t]\, \langle b_s, b'_t\rangle
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from ntk.trace.geometry import ConvGeometry
from ntk.trace.group_gradients import GroupGradients
from ntk.trace.operations import Convolution, Embedding, Linear
from ntk.trace.parameter_groups import UNUSED
from ntk.trace.uses import TraceMismatchError, Use

Factors = tuple[Tensor, ...]

# Measured on CPUs: a product with a short inner dimension, and an elementwise pass, cost this many multiply-adds more.
_SHORT_PRODUCT = 64
ELEMENTWISE = 40
# Rows of a symmetric product that are multiplied with those after them only.
_STRIP = 128
# Pairs of positions and samples that a structured rule holds at once.
_PAIRS_AT_ONCE = 1 << 22


class Workspace:
    """Reusable memory for gradients that are formed for one product and not stored."""

    def __init__(self, samples: int) -> None:
        """Set the number of samples that are formed at once; memory is allocated at the first use."""
        self.samples = samples
        self._buffers: dict[int, Tensor] = {}

    def rows(self, slot: int, like: Tensor, columns: int) -> Tensor:
        """Memory of shape ``(len(like), columns)``, of the type and device of `like`; it overwrites the slot."""
        needed = len(like) * columns
        buffer = self._buffers.get(slot)
        if buffer is None or buffer.numel() < needed or (buffer.dtype, buffer.device) != (like.dtype, like.device):
            self._buffers[slot] = buffer = like.new_empty(needed)
        return buffer[:needed].view(len(like), columns)


class LayerRule(ABC):
    """A way to compute the share of one group of parameters in the kernel.

    It is made from a captured sample of the input size that it will be used with.

    Attributes:
        route: One of "direct", "structured", "autograd" and "unused".
        shapes: Shape per sample of each tensor that is kept.
        dtypes: Type of each tensor that is kept; None for that of the products.
        multiply_adds: Number of multiply-adds of the products, for a pair of samples.
        formed: Number of values that a product needs for a sample besides those kept.
    """

    route = "structured"
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype | None, ...]
    multiply_adds: int
    formed = 0

    @property
    def cost(self) -> int:
        """The cost by which the rules of a group are compared: the multiply-adds, unless a subclass adds to them."""
        return self.multiply_adds

    @abstractmethod
    def write(self, captured: GroupGradients, out: Factors) -> None:
        """Store a batch in `out`, tensors of shape ``(samples, *shape)`` for each of `shapes`."""

    @abstractmethod
    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor | None:
        """The group's share of the kernel between two batches; of one with itself, its upper triangle."""


class Unused(LayerRule):
    """A rule for parameters that the output does not depend on; they add nothing to the kernel."""

    route = UNUSED

    def __init__(self) -> None:
        """Set empty shapes: no tensor is stored, and no product is computed."""
        self.shapes, self.dtypes, self.multiply_adds = (), (), 0

    def write(self, captured: GroupGradients, out: Factors) -> None:
        """Store nothing; `out` is empty."""

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> None:
        """Return None: the group adds nothing to the kernel."""


class _Kept(LayerRule):
    """A rule that stores the inputs and the output gradients of a layer that is used once."""

    def __init__(self, use: Use) -> None:
        """Take the shapes of the stored tensors from one captured sample."""
        assert use.inputs is not None
        self.shapes = tuple(use.inputs.shape[1:]), tuple(use.grads.shape[1:])
        self.dtypes = (None, None)
        self._bias = "bias" in use.roles

    def write(self, captured: GroupGradients, out: Factors) -> None:
        """Store the inputs and the output gradients, each of shape ``(samples, *shape)``."""
        use = captured.uses[0]
        assert use.inputs is not None
        _put((use.inputs, use.grads), out, use)


class DirectRows(LayerRule):
    """A rule that forms the gradients once and stores them, one row per sample."""

    def __init__(self, captured: GroupGradients) -> None:
        """Take the shape of the stored rows from one captured sample: one number per parameter."""
        self.route = captured.group.route or "direct"
        self.multiply_adds = captured.group.size
        self.shapes, self.dtypes = ((self.multiply_adds,),), (None,)

    def write(self, captured: GroupGradients, out: Factors) -> None:
        """Store the gradients, one row per sample, shape ``(samples, parameters)``."""
        captured.write_rows(out[0])

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Return the product of the stored rows, shape ``(len(a), len(b))``."""
        return upper_product(a[0]) if b is None else a[0] @ b[0].T


class DirectFormed(_Kept):
    """A rule that stores inputs and output gradients, where these are smaller, and forms gradients for each product."""

    route = "direct"

    def __init__(self, captured: GroupGradients, use: Use) -> None:
        """Take the shapes of inputs and output gradients from one captured sample."""
        super().__init__(use)
        # Only what says how the parameters are used; the tensors of the sample are not held.
        self._empty = captured.part(slice(0, 0))
        self.multiply_adds = self.formed = captured.group.size

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:
        """Return the products of the gradients, formed for a few samples at a time, shape ``(len(a), len(b))``."""
        other = a if b is None else b
        size, columns = workspace.samples, self.formed
        out = a[0].new_zeros(len(a[0]), len(other[0]))
        for i in range(0, len(a[0]), size):
            left = self._rows(a, slice(i, i + size), workspace.rows(0, a[0][i : i + size], columns))
            for j in range(i if b is None else 0, len(other[0]), size):
                if b is None and i == j:
                    out[i : i + size, j : j + size] = upper_product(left)
                    continue
                right = self._rows(other, slice(j, j + size), workspace.rows(1, other[0][j : j + size], columns))
                torch.mm(left, right.T, out=out[i : i + size, j : j + size])
        return out

    def _rows(self, factors: Factors, part: slice, out: Tensor) -> Tensor:
        use = replace(self._empty.uses[0], inputs=factors[0][part], grads=factors[1][part])
        replace(self._empty, samples=len(out), uses=(use,)).write_rows(out)
        return out


class StructuredLinear(_Kept):
    """``(A A^T + 1) * (B B^T)`` for a layer that each sample uses once; the 1 is the share of the bias."""

    def __init__(self, use: Use) -> None:
        """Take the shapes of inputs and output gradients from one captured sample."""
        super().__init__(use)
        self._weight = "weight" in use.roles
        self.multiply_adds = sum(map(math.prod, self.shapes))

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Return the product of the inputs times, entry by entry, that of the output gradients."""
        (x_a, g_a), (x_b, g_b) = ([t.flatten(1) for t in factors] for factors in (a, a if b is None else b))
        of_grads = g_a @ g_b.T
        if not self._weight:
            return of_grads
        return (x_a @ x_b.T + float(self._bias)) * of_grads


class StructuredEmbedding(LayerRule):
    """Inner products of gradients wherever two samples look up the same row."""

    def __init__(self, operation: Embedding, use: Use) -> None:
        """Take the number of tokens and the width from one captured sample."""
        self._operation = operation
        assert use.inputs is not None
        numbers, grads = operation.pairs(use.inputs, use.grads)
        self.shapes, self.dtypes = (tuple(numbers.shape[1:]), tuple(grads.shape[1:])), (torch.int64, None)
        self.tokens, width = grads.shape[1:]
        self.multiply_adds = self.tokens**2 * width

    @property
    def cost(self) -> int:
        """The multiply-adds, and the comparison of the indices of every pair of tokens."""
        return self.multiply_adds + 2 * ELEMENTWISE * self.tokens**2

    def write(self, captured: GroupGradients, out: Factors) -> None:
        """Store the looked-up indices, ``(samples, tokens)``, and their gradients, ``(samples, tokens, width)``."""
        use = captured.uses[0]
        assert use.inputs is not None
        _put(self._operation.pairs(use.inputs, use.grads), out, use)

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Return the sums over pairs of tokens with one index, in blocks that bound the memory for these pairs."""
        other = a if b is None else b
        size = max(1, int(math.sqrt(_PAIRS_AT_ONCE)) // self.tokens)
        out = a[1].new_zeros(len(a[1]), len(other[1]))
        for i in range(0, len(out), size):
            for j in range(i if b is None else 0, out.shape[1], size):
                (n_a, g_a), (n_b, g_b) = (t[i : i + size] for t in a), (t[j : j + size] for t in other)
                products = g_a.flatten(0, 1) @ g_b.flatten(0, 1).T
                products *= n_a.reshape(-1, 1) == n_b.reshape(1, -1)
                by_sample = products.view(len(n_a), self.tokens, len(n_b), self.tokens)
                out[i : i + size, j : j + size] = by_sample.sum((1, 3))
        return out


class StructuredConv(_Kept):
    """Inner products of pixels and of output gradients, summed over the pairs of positions."""

    def __init__(self, operation: Convolution, use: Use) -> None:
        """Take the geometry and the shapes from one captured sample, and count the products."""
        super().__init__(use)
        (_, *shape_in), (_, *shape_out) = self.shapes
        self.geometry = g = ConvGeometry.from_window(operation.window, tuple(shape_in), tuple(shape_out))
        of_pixels = sum(g.phase_size(phase) ** 2 * g.channels_in for phase in g.phases())
        self.multiply_adds = g.positions**2 * g.channels_out + of_pixels

    @property
    def cost(self) -> int:
        """The multiply-adds, and the overhead of short products and elementwise passes."""
        g = self.geometry
        passes = g.positions**2 + sum(
            math.prod((part.stop - part.start) ** 2 for part in tap[:2]) for taps in g.phases().values() for tap in taps
        )
        products = g.positions**2 + sum(g.phase_size(p) ** 2 for p in g.phases())
        return self.multiply_adds + _SHORT_PRODUCT * products + ELEMENTWISE * passes

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Return the sums over pairs of positions, in blocks that bound the memory for these pairs."""
        a, other = (tuple(t[:, 0] for t in factors) for factors in (a, a if b is None else b))
        largest = max([self.geometry.positions, *map(self.geometry.phase_size, self.geometry.phases())])
        pairs = max(1, _PAIRS_AT_ONCE // largest**2)
        rows = max(1, min(len(a[0]), pairs // len(other[0])))
        columns = max(1, pairs // rows)
        out = a[0].new_zeros(len(a[0]), len(other[0]))
        for i in range(0, len(a[0]), rows):
            for j in range(i if b is None else 0, len(other[0]), columns):
                part = self._block(*(t[i : i + rows] for t in a), *(t[j : j + columns] for t in other))
                out[i : i + rows, j : j + columns] = part
        return out

    def _block(self, x_a: Tensor, g_a: Tensor, x_b: Tensor, g_b: Tensor) -> Tensor:
        of_grads = _position_pairs(g_a, g_b)
        of_patches = torch.full_like(of_grads, float(self._bias))
        strides = self.geometry.rows.stride, self.geometry.columns.stride
        for phase, taps in self.geometry.phases().items():
            rows, columns = (slice(start, None, stride) for start, stride in zip(phase, strides, strict=True))
            of_pixels = _position_pairs(x_a[:, :, rows, columns], x_b[:, :, rows, columns])
            for r_out, c_out, r_in, c_in in taps:
                of_patches[r_out, c_out, :, r_out, c_out] += of_pixels[r_in, c_in, :, r_in, c_in]
        return of_patches.mul_(of_grads).sum(dim=(0, 1, 3, 4))


def rule_for(captured: GroupGradients, *, route: str = "best") -> LayerRule:
    """The rule for a group of parameters, from a captured sample of the input size that it will be used with.

    The route is "best" for the cheaper one, "direct" or "structured" to force it where the group has it.
    """
    if captured.group.route == UNUSED:
        return Unused()
    rows, use = DirectRows(captured), captured.single
    if use is None or use.inputs is None:
        return rows
    direct: LayerRule = rows
    if isinstance(use.operation, Linear | Convolution):
        formed = DirectFormed(captured, use)
        direct = rows if rows.multiply_adds <= sum(map(math.prod, formed.shapes)) else formed
    structured = _structured(use)
    if route == "direct" or structured is None:
        return direct
    return structured if route == "structured" or structured.cost < direct.cost else direct


def _structured(use: Use) -> LayerRule | None:
    """The rule that forms no gradients; None for groups without such a rule."""
    operation = use.operation
    if isinstance(operation, Linear):
        return StructuredLinear(use) if operation.positions(use.grads) == 1 else None
    if isinstance(operation, Embedding):
        return StructuredEmbedding(operation, use)
    if isinstance(operation, Convolution) and "weight" in use.roles:
        plain = operation.is_plain(use.grads) and len(operation.window.size) == 2
        return StructuredConv(operation, use) if plain else None
    return None


def upper_product(rows: Tensor) -> Tensor:
    """Inner products of the rows, on and above the diagonal; some below are computed too, the others are zero."""
    out = rows.new_zeros(len(rows), len(rows))
    for i in range(0, len(rows), _STRIP):
        out[i : i + _STRIP, i:] = rows[i : i + _STRIP] @ rows[i:].T
    return out


def _put(tensors: Factors, out: Factors, use: Use) -> None:
    """Copy tensors after a check of their shapes, since `copy_` would broadcast a sample with a single token."""
    for kept, tensor in zip(out, tensors, strict=True):
        if kept.shape != tensor.shape:
            raise TraceMismatchError(use.parameters)
        kept.copy_(tensor)


def _position_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Inner products over channels, shape ``(rows, columns, len(a), rows, columns, len(b))``."""
    (n_a, channels, rows, columns), n_b = a.shape, b.shape[0]
    left = a.permute(2, 3, 0, 1).reshape(-1, channels)
    right = b.permute(2, 3, 0, 1).reshape(-1, channels)
    return (left @ right.T).view(rows, columns, n_a, rows, columns, n_b)
