r"""A rule per layer: from what was captured to the layer's share of the kernel.

"direct" forms the gradient of every sample and multiplies; "structured" never forms it. For a convolution with output
gradients :math:`b_s` and patches :math:`a_s` at the positions `s`,

.. math:: \langle\nabla_W f(x), \nabla_W f(x')\rangle = \sum_{s,t} \langle b_s, b'_t\rangle\,\langle a_s, a'_t\rangle

and :math:`\langle a_s, a'_t\rangle` is a sum over the taps of inner products of *pixels*, which neighbouring positions
share; those between a pixel and the padding are zero and never computed. For a linear layer there is one position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

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
    """Room for gradients that are formed, multiplied and forgotten.

    Attributes:
        samples: Number of samples whose gradients are formed at once.
    """

    def __init__(self, samples: int) -> None:
        """Nothing is allocated before it is used."""
        self.samples = samples
        self._buffers: dict[int, Tensor] = {}

    def rows(self, slot: int, like: Tensor, columns: int) -> Tensor:
        """Room in a slot for one row per row of `like`, of its type; what was in the slot is lost."""
        needed = len(like) * columns
        buffer = self._buffers.get(slot)
        if buffer is None or buffer.numel() < needed or (buffer.dtype, buffer.device) != (like.dtype, like.device):
            self._buffers[slot] = buffer = like.new_empty(needed)
        return buffer[:needed].view(len(like), columns)


class Rule(Protocol):
    """A way to contract one layer."""

    @property
    def route(self) -> str:
        """One of "direct" and "structured"."""
        ...

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape per sample of each tensor that is kept."""
        ...

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of the products, for a pair of samples."""
        ...

    @property
    def formed(self) -> int:
        """Number of values that a product needs for a sample besides those kept."""
        ...

    def write(self, captured: Captured, out: Factors) -> None:
        """Put what is kept of a batch into `out`, one sample per row."""
        ...

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:
        """The layer's share of the kernel between two batches; of one with itself, its upper triangle."""
        ...


@dataclass(frozen=True, slots=True)
class DirectRows:
    """The gradients themselves, formed once and kept, one row a sample.

    Attributes:
        parameters: Number of parameters of the layer.
    """

    parameters: int
    route: str = "direct"
    formed: int = 0

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """One row."""
        return ((self.parameters,),)

    @property
    def multiply_adds(self) -> int:
        """One per parameter."""
        return self.parameters

    def write(self, captured: Captured, out: Factors) -> None:
        """The gradient rows."""
        write_gradient_rows(captured, out[0])

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """One product."""
        return upper_product(a[0]) if b is None else a[0] @ b[0].T


class _KeepsCaptured:
    """A rule that keeps inputs and output gradients as they are."""

    __slots__ = ()

    def write(self, captured: Captured, out: Factors) -> None:
        out[0].copy_(captured.inputs)
        out[1].copy_(captured.grads)


@dataclass(frozen=True, slots=True, eq=False)
class DirectFormed(_KeepsCaptured):
    """The gradients formed when they are needed, where inputs and output gradients take less room.

    Attributes:
        name: Name of the layer.
        module: The layer itself.
        shapes: Shapes of its inputs and output gradients for a sample.
    """

    name: str
    module: nn.Module
    shapes: tuple[tuple[int, ...], ...]
    route: str = "direct"

    @property
    def formed(self) -> int:
        """The parameters of the layer."""
        return count_parameters(self.module)

    @property
    def multiply_adds(self) -> int:
        """One per parameter."""
        return self.formed

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
        write_gradient_rows(Captured(self.name, self.module, factors[0][part], factors[1][part]), out)
        return out


@dataclass(frozen=True, slots=True)
class StructuredLinear(_KeepsCaptured):
    """``(A A^T + 1) * (B B^T)``, the one for the bias."""

    inputs: int
    outputs: int
    bias: bool
    route: str = "structured"
    formed: int = 0

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Inputs and output gradients."""
        return (self.inputs,), (self.outputs,)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the two products."""
        return self.inputs + self.outputs

    def gram(self, a: Factors, b: Factors | None, workspace: Workspace) -> Tensor:  # noqa: ARG002
        """Two products, multiplied entry by entry."""
        b = a if b is None else b
        return (a[0] @ b[0].T + float(self.bias)) * (a[1] @ b[1].T)


@dataclass(frozen=True, slots=True)
class StructuredConv(_KeepsCaptured):
    """Inner products of pixels and of output gradients, summed over the pairs of positions."""

    geometry: ConvGeometry
    bias: bool
    route: str = "structured"
    formed: int = 0

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Inputs and output gradients."""
        g = self.geometry
        return (
            (g.channels_in, g.rows.size_in, g.columns.size_in),
            (g.channels_out, g.rows.size_out, g.columns.size_out),
        )

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the products of pixels and of output gradients."""
        g = self.geometry
        return g.positions**2 * g.channels_out + sum(g.phase_size(p) ** 2 * g.channels_in for p in g.phases())

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
        of_patches = torch.full_like(of_grads, float(self.bias))
        strides = self.geometry.rows.stride, self.geometry.columns.stride
        for phase, taps in self.geometry.phases().items():
            rows, columns = (slice(start, None, stride) for start, stride in zip(phase, strides, strict=True))
            of_pixels = _position_pairs(x_a[:, :, rows, columns], x_b[:, :, rows, columns])
            for r_out, c_out, r_in, c_in in taps:
                of_patches[r_out, c_out, :, r_out, c_out] += of_pixels[r_in, c_in, :, r_in, c_in]
        return of_patches.mul_(of_grads).sum(dim=(0, 1, 3, 4))


def rule_for(captured: Captured, *, route: str = "best") -> Rule:
    """The rule for a layer that was captured at the size of image it will be used with.

    The route is "best" for the cheaper one, "direct" or "structured" to force it where the layer has it.
    """
    module = captured.module
    direct = _direct_rule(captured)
    if route == "direct" or isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        return direct
    bias = getattr(module, "bias", None) is not None
    if isinstance(module, nn.Linear):
        linear = StructuredLinear(module.in_features, module.out_features, bias)
        return linear if route == "structured" or linear.multiply_adds < direct.multiply_adds else direct
    structured = StructuredConv(geometry_of(captured), bias)
    return structured if route == "structured" or structured.cost < direct.multiply_adds else direct


def geometry_of(captured: Captured) -> ConvGeometry:
    """The geometry of a convolution that was captured."""
    assert isinstance(captured.module, nn.Conv2d)
    size_in, size_out = captured.inputs.shape[2:], captured.grads.shape[2:]
    return ConvGeometry.of(captured.module, (size_in[0], size_in[1]), (size_out[0], size_out[1]))


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


def _direct_rule(captured: Captured) -> Rule:
    shapes = tuple(captured.inputs.shape[1:]), tuple(captured.grads.shape[1:])
    parameters = count_parameters(captured.module)
    if parameters <= sum(map(math.prod, shapes)):
        return DirectRows(parameters)
    return DirectFormed(captured.name, captured.module, shapes)


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
