r"""A rule per layer: from what was captured to the layer's share of the kernel.

"direct" forms the gradient of every sample and multiplies; "structured" never forms it. For a convolution with output
gradients :math:`b_s` and patches :math:`a_s` at the positions `s`,

.. math:: \langle\nabla_W f(x), \nabla_W f(x')\rangle = \sum_{s,t} \langle b_s, b'_t\rangle\,\langle a_s, a'_t\rangle

and :math:`\langle a_s, a'_t\rangle` is a sum over the taps of inner products of *pixels*, which neighbouring positions
share; those between a pixel and the padding are zero and never computed. For a linear layer there is one position.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from ntk.capture import Captured, count_parameters
from ntk.geometry import ConvGeometry, patches

Factors = tuple[Tensor, ...]

# Measured on CPUs: a product with a short inner dimension, and an elementwise pass, cost this many multiply-adds more.
_SHORT_PRODUCT = 64
_ELEMENTWISE = 40
# Rows of a symmetric product that are multiplied with those after them only.
_STRIP = 128
# Entries of patches unfolded at once.
_PATCH_ENTRIES_AT_ONCE = 1 << 24
# Pairs of positions and samples that a structured convolution holds at once.
_PAIRS_AT_ONCE = 1 << 22


class Workspace:
    """Room for gradients that are formed, multiplied and forgotten."""

    def __init__(self, samples: int) -> None:
        """Room for so many samples at once; nothing is allocated before it is used."""
        self.samples = samples
        self._buffers: dict[int, Tensor] = {}

    def rows(self, slot: int, like: Tensor, columns: int) -> Tensor:
        """Room in a slot for one row per row of `like`, of its type; what was in the slot is lost."""
        needed = len(like) * columns
        buffer = self._buffers.get(slot)
        if buffer is None or buffer.numel() < needed or (buffer.dtype, buffer.device) != (like.dtype, like.device):
            self._buffers[slot] = buffer = like.new_empty(needed)
        return buffer[:needed].view(len(like), columns)


class Rule(ABC):
    """A way to contract one layer, which was captured at the size of image that it will be used with.

    Inputs and output gradients are kept as they are, unless a subclass says otherwise.

    Attributes:
        route: One of "direct" and "structured".
        shapes: Shape per sample of each tensor that is kept.
        multiply_adds: Number of multiply-adds of the products, for a pair of samples.
        formed: Number of values that a product needs for a sample besides those kept.
    """

    route = "structured"
    multiply_adds: int
    formed = 0

    def __init__(self, captured: Captured) -> None:
        """Look at one captured sample."""
        self.shapes: tuple[tuple[int, ...], ...] = tuple(captured.inputs.shape[1:]), tuple(captured.grads.shape[1:])
        self._bias = getattr(captured.module, "bias", None) is not None

    @property
    def cost(self) -> int:
        """What the rules of a layer are compared by: the multiply-adds, unless a subclass says otherwise."""
        return self.multiply_adds

    def write(self, captured: Captured, out: Factors) -> None:
        """Put what is kept of a batch into `out`, one sample per row."""
        out[0].copy_(captured.inputs)
        out[1].copy_(captured.grads)

    @abstractmethod
    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:
        """The layer's share of the kernel between two batches; of one with itself, its upper triangle."""


class DirectRows(Rule):
    """The gradients themselves, formed once and kept, one row a sample."""

    route = "direct"

    def __init__(self, captured: Captured) -> None:
        """One number kept per parameter."""
        super().__init__(captured)
        self.multiply_adds = count_parameters(captured.module)
        self.shapes = ((self.multiply_adds,),)

    def write(self, captured: Captured, out: Factors) -> None:
        """The gradient rows."""
        write_gradient_rows(captured, out[0])

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """One product."""
        return upper_product(a[0]) if b is None else a[0] @ b[0].T


class DirectFormed(Rule):
    """The gradients formed when they are needed, where inputs and output gradients take less room."""

    route = "direct"

    def __init__(self, captured: Captured) -> None:
        """One number formed per parameter."""
        super().__init__(captured)
        self._layer = captured.name, captured.module
        self.multiply_adds = self.formed = count_parameters(captured.module)

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:
        """Some samples at a time, each against each."""
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
        write_gradient_rows(Captured(*self._layer, factors[0][part], factors[1][part]), out)
        return out


class StructuredLinear(Rule):
    """``(A A^T + 1) * (B B^T)``, the one for the bias."""

    def __init__(self, captured: Captured) -> None:
        """Two products, of inputs and of output gradients."""
        super().__init__(captured)
        self.multiply_adds = sum(map(math.prod, self.shapes))

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Two products, multiplied entry by entry."""
        b = a if b is None else b
        return (a[0] @ b[0].T + float(self._bias)) * (a[1] @ b[1].T)


class StructuredConv(Rule):
    """Inner products of pixels and of output gradients, summed over the pairs of positions."""

    def __init__(self, captured: Captured) -> None:
        """Products of output gradients at every pair of positions, and of pixels at every pair in a phase."""
        super().__init__(captured)
        assert isinstance(captured.module, nn.Conv2d)
        (_, *size_in), (_, *size_out) = self.shapes
        self.geometry = g = ConvGeometry.of(captured.module, (size_in[0], size_in[1]), (size_out[0], size_out[1]))
        of_pixels = sum(g.phase_size(phase) ** 2 * g.channels_in for phase in g.phases())
        self.multiply_adds = g.positions**2 * g.channels_out + of_pixels

    @property
    def cost(self) -> int:
        """The multiply-adds, with what short products and elementwise passes cost on top."""
        g = self.geometry
        passes = g.positions**2 + sum(
            math.prod((part.stop - part.start) ** 2 for part in tap[:2]) for taps in g.phases().values() for tap in taps
        )
        products = g.positions**2 + sum(g.phase_size(p) ** 2 for p in g.phases())
        return self.multiply_adds + _SHORT_PRODUCT * products + _ELEMENTWISE * passes

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Block by block, so that the pairs of positions stay few."""
        other = a if b is None else b
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


# Layers whose gradients need not be formed; those of the others are.
_STRUCTURED: dict[type[nn.Module], type[Rule]] = {nn.Linear: StructuredLinear, nn.Conv2d: StructuredConv}


def rule_for(captured: Captured, *, route: str = "best") -> Rule:
    """The rule for a layer that was captured at the size of image it will be used with.

    The route is "best" for the cheaper one, "direct" or "structured" to force it where the layer has it.
    """
    rows, formed = DirectRows(captured), DirectFormed(captured)
    direct: Rule = rows if rows.multiply_adds <= sum(map(math.prod, formed.shapes)) else formed
    structured_rule = _STRUCTURED.get(type(captured.module))
    if route == "direct" or structured_rule is None:
        return direct
    structured = structured_rule(captured)
    return structured if route == "structured" or structured.cost < direct.cost else direct


def write_gradient_rows(captured: Captured, out: Tensor) -> None:
    """Put the gradient of every sample into `out`: the layer's weight, then its bias, one row a sample.

    The type of `out`, of shape ``(samples, parameters)``, is that of the arithmetic.
    """
    module, x, grads = captured.module, captured.inputs.to(out.dtype), captured.grads.to(out.dtype)
    weight, bias = out, None
    if getattr(module, "bias", None) is not None:
        outputs = grads.shape[1]
        weight, bias = out[:, :-outputs], out[:, -outputs:]
    if isinstance(module, nn.Conv2d):
        by_output = weight.view(len(weight), grads.shape[1], -1)
        at_once = max(1, _PATCH_ENTRIES_AT_ONCE // (by_output.shape[2] * math.prod(grads.shape[2:])))
        for start in range(0, len(x), at_once):
            part = slice(start, start + at_once)
            _write_conv_weight(module, x[part], grads[part].flatten(2), by_output[part])
    elif isinstance(module, nn.Linear):
        torch.mul(grads[:, :, None], x[:, None, :], out=weight.view(len(weight), grads.shape[1], -1))
    else:
        weight.copy_(_over_positions(_normalised(module, x) * grads))
    if bias is not None:
        bias.copy_(_over_positions(grads))


def upper_product(rows: Tensor) -> Tensor:
    """Inner products of the rows, on and above the diagonal; some below are computed too, the others are zero."""
    out = rows.new_zeros(len(rows), len(rows))
    for i in range(0, len(rows), _STRIP):
        out[i : i + _STRIP, i:] = rows[i : i + _STRIP] @ rows[i:].T
    return out


def _write_conv_weight(module: nn.Conv2d, x: Tensor, grads: Tensor, out: Tensor) -> None:
    right = patches(module, x).transpose(1, 2)
    if out.is_contiguous():  # into its place: a fresh result of this size costs more than the product
        torch.bmm(grads, right, out=out)
    else:
        out.copy_(torch.bmm(grads, right))


def _normalised(module: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
    assert module.running_mean is not None
    assert module.running_var is not None
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, variance = (s.to(x).reshape(shape) for s in (module.running_mean, module.running_var))
    return (x - mean) * (variance + module.eps).rsqrt()


def _over_positions(values: Tensor) -> Tensor:
    return values.flatten(2).sum(2) if values.ndim > 2 else values


def _position_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Inner products over channels, shape ``(rows, columns, len(a), rows, columns, len(b))``."""
    (n_a, channels, rows, columns), n_b = a.shape, b.shape[0]
    left = a.permute(2, 3, 0, 1).reshape(-1, channels)
    right = b.permute(2, 3, 0, 1).reshape(-1, channels)
    return (left @ right.T).view(rows, columns, n_a, rows, columns, n_b)
