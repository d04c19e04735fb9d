r"""Calls of torch that use parameters as the weights of a layer, and the gradient of every sample that follows.

An operation sees its input :math:`x` and the gradient :math:`g` of the samples' outputs by its own output, both with
the samples first, then the rows that a sample has in the batch, then the other axes. The gradient by a weight follows
from these two alone. With `s` for the positions of a sample (tokens, or pixels of the output) it is

.. math::
   \nabla_W f = \sum_s g_s x_s^\top, \qquad
   \nabla_W f = \sum_s g_s\, a_s(x)^\top, \qquad
   \nabla_\gamma f = \sum_s g_s \odot \hat x_s, \qquad
   \nabla_{E_r} f = \sum_{s:\, x_s = r} g_s

for a linear layer, a convolution with patches :math:`a_s`, a normalisation to :math:`\hat x`, and a table whose rows
:math:`E_r` are looked up; and :math:`\nabla_b f = \sum_s g_s` for every bias.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ntk.trace.geometry import Window, patches

# Entries of patches unfolded at once.
PATCH_ENTRIES_AT_ONCE = 1 << 24


class Operation(ABC):
    """A way to use a weight, and a bias where there is one."""

    def suits(self, axis: int, ndim: int) -> bool:
        """Whether samples may be along this axis of an input of `ndim` axes."""
        return axis == 0 and ndim > 1

    @abstractmethod
    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:
        """Put the gradient by the "weight" or the "bias" of every sample into `out`, one row a sample.

        The type of `out`, shape ``(samples, numbers)``, is that of the arithmetic.
        """

    def positions(self, g: Tensor) -> int:  # noqa: ARG002
        """Number of places at which a sample uses the weight."""
        return 0


@dataclass(frozen=True, slots=True)
class Linear(Operation):
    """``x @ weight.T + bias`` on the last axis, or ``x @ weight`` where the weight is transposed."""

    transposed: bool = False

    def suits(self, axis: int, ndim: int) -> bool:
        """Whether the axis is not the last one, which has the features."""
        return axis < ndim - 1

    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:
        """Write the sum over tokens of output gradient times input, or of the output gradients for the bias."""
        g = g.reshape(len(g), -1, g.shape[-1]).to(out.dtype)
        if role == "bias":
            torch.sum(g, 1, out=out) if g.shape[1] > 1 else out.copy_(g[:, 0])
            return
        x = x.reshape(len(x), -1, x.shape[-1]).to(out.dtype)
        left, right = (x, g) if self.transposed else (g, x)
        rows = out.view(len(out), left.shape[2], right.shape[2])
        if x.shape[1] == 1:
            torch.mul(left.transpose(1, 2), right, out=rows)
        else:
            product_into(left.transpose(1, 2), right, rows)

    def positions(self, g: Tensor) -> int:
        """Number of tokens."""
        return math.prod(g.shape[1:-1])


@dataclass(frozen=True, slots=True)
class Convolution(Operation):
    """A convolution in one, two or three directions, in groups or not; or a transposed one, with the roles changed."""

    window: Window
    groups: int
    transposed: bool

    def suits(self, axis: int, ndim: int) -> bool:
        """Whether the axis is the first one of a batch."""
        return axis == 0 and ndim == len(self.window.size) + 2

    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:
        """Write the sum over positions of output gradient times patch, or of the output gradients for the bias."""
        if role == "bias":
            out.copy_(g.flatten(3).sum((1, 3)).to(out.dtype))
            return
        seen, weighed = (g, x) if self.transposed else (x, g)
        channels, positions = weighed.shape[2], math.prod(weighed.shape[3:])
        entries = out.shape[1] // channels
        at_once = max(1, PATCH_ENTRIES_AT_ONCE // max(1, self.groups * entries * positions * seen.shape[1]))
        rows = out.view(len(out), channels, entries)
        for start in range(0, len(out), at_once):
            part = slice(start, start + at_once)
            self._write(seen[part].to(out.dtype), weighed[part].to(out.dtype), rows[part])

    def _write(self, seen: Tensor, weighed: Tensor, rows: Tensor) -> None:
        samples, times, channels = weighed.shape[:3]
        unfolded = patches(self.window, seen.flatten(0, 1))
        unfolded = unfolded.view(samples, times, *unfolded.shape[1:])
        # (samples, times, entries or channels, positions) to (samples and groups, entries or channels, positions)
        left, right = (_grouped(t, self.groups) for t in (weighed.flatten(3), unfolded))
        if self.groups == 1:
            product_into(left, right.transpose(1, 2), rows)
        else:
            rows.copy_(torch.bmm(left, right.transpose(1, 2)).view(samples, channels, -1))

    def is_plain(self, g: Tensor) -> bool:
        """Whether every output sees all channels, with one row of the batch for each sample."""
        return self.groups == g.shape[1] == 1 and not self.transposed

    def positions(self, g: Tensor) -> int:
        """Number of positions of the output, or of the input of a transposed convolution."""
        return math.prod(g.shape[3:]) * g.shape[1]


@dataclass(frozen=True, slots=True)
class Normalisation(Operation):
    """A weight and a bias for each entry of normalised inputs, all of whose statistics are the sample's or fixed.

    Attributes:
        normalise: The function without weight and bias.
        trailing: Number of last axes that the weight has; 0 where it has one number for each channel.
    """

    normalise: Callable[[Tensor], Tensor]
    trailing: int

    def suits(self, axis: int, ndim: int) -> bool:
        """Whether the axis is not among those that are normalised together."""
        return axis < ndim - self.trailing if self.trailing else axis == 0 and ndim > 1

    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:
        """Write sums over positions of normalised input times output gradient, or of the latter for the bias."""
        g = g.to(out.dtype)
        if role == "weight":
            x = x.to(out.dtype)
            x = self.normalise(x) if self.trailing else self.normalise(x.flatten(0, 1)).view(x.shape)
            g = x * g
        if self.trailing:
            summed = g.reshape(len(g), -1, *g.shape[g.ndim - self.trailing :]).sum(1)
        else:
            summed = g.flatten(3).sum((1, 3)) if g.ndim > 3 else g.sum(1)
        out.copy_(summed.reshape(len(out), -1))


@dataclass(frozen=True, slots=True)
class Embedding(Operation):
    """Rows of a table, looked up by number; `padding` is the row without a gradient."""

    rows: int
    padding: int | None

    def suits(self, axis: int, ndim: int) -> bool:  # noqa: ARG002
        """Return True: indices may have the samples along any axis."""
        return True

    def pairs(self, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers that a sample looks up, shape ``(samples, tokens)``, and the gradients by what it finds."""
        numbers, g = x.reshape(len(x), -1), g.reshape(len(g), -1, g.shape[-1])
        return (numbers, g) if self.padding is None else (numbers, g * (numbers != self.padding)[..., None])

    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:  # noqa: ARG002
        """Write the sum of the gradients over all lookups of each row of the table."""
        numbers, g = self.pairs(x, g.to(out.dtype))
        width = g.shape[-1]
        flat = (numbers + self.rows * torch.arange(len(numbers), device=numbers.device)[:, None]).reshape(-1)
        rows = out.new_zeros(len(out) * self.rows, width).index_add_(0, flat, g.reshape(-1, width))
        out.copy_(rows.view(len(out), -1))


class Broadcast(Operation):
    """A parameter that is added to, or multiplied with, every sample: each gets a copy of it, which has a gradient."""

    def write(self, role: str, x: Tensor, g: Tensor, out: Tensor) -> None:  # noqa: ARG002
        """Write the gradient with respect to the copy that each sample got."""
        out.copy_(g.to(out.dtype).sum(1).reshape(len(out), -1))


def product_into(left: Tensor, right: Tensor, out: Tensor) -> None:
    """Products of the matrices of two batches, into their place: a fresh result costs more than a small product."""
    if out.is_contiguous():
        torch.bmm(left, right, out=out)
    else:
        out.copy_(torch.bmm(left, right))


def _grouped(t: Tensor, groups: int) -> Tensor:
    """From (samples, times, channels, positions) to (samples * groups, channels / groups, times * positions)."""
    samples, times, channels = t.shape[:3]
    if times == 1:
        return t.reshape(samples * groups, channels // groups, -1)
    t = t.reshape(samples, times, groups, channels // groups, -1).permute(0, 2, 3, 1, 4)
    return t.reshape(samples * groups, channels // groups, -1)


# From here on: which calls of torch these are.

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WeightedCall:
    """A function of torch that uses a weight.

    Attributes:
        names: Names of its arguments, in order; "input", "weight" and "bias" are those that rules speak of.
        operation: The operation of a call with these arguments; None where there is no rule for them.
    """

    names: tuple[str, ...]
    operation: Callable[[Arguments], Operation | None]

    def bound(self, args: Sequence[Any], kwargs: Arguments) -> dict[str, Any]:
        """The arguments of a call by name."""
        return dict(zip(self.names, args, strict=False)) | dict(kwargs)


def _linear(arguments: Arguments, *, transposed: bool = False) -> Operation | None:
    return Linear(transposed) if arguments["weight"].ndim == 2 else None


def _addmm(arguments: Arguments) -> Operation | None:
    plain = arguments.get("beta", 1) == arguments.get("alpha", 1) == 1 and arguments["bias"].ndim == 1
    return Linear(transposed=True) if plain else None


def _convolution(arguments: Arguments, *, transposed: bool = False) -> Operation | None:
    options = (arguments.get("stride", 1), arguments.get("padding", 0), arguments.get("dilation", 1))
    window = Window.from_options(tuple(arguments["weight"].shape[2:]), *options)
    return Convolution(window, int(arguments.get("groups", 1)), transposed)


def _layer_norm(arguments: Arguments) -> Operation | None:
    shape, eps = tuple(arguments["normalized_shape"]), arguments.get("eps", 1e-5)
    return Normalisation(lambda x: functional.layer_norm(x, shape, eps=eps), len(shape))


def _rms_norm(arguments: Arguments) -> Operation | None:
    shape, eps = tuple(arguments["normalized_shape"]), arguments.get("eps")
    least = torch.finfo(arguments["input"].dtype).eps if eps is None else eps
    return Normalisation(lambda x: functional.rms_norm(x, shape, eps=least), len(shape))


def _group_norm(arguments: Arguments) -> Operation | None:
    groups, eps = arguments["num_groups"], arguments.get("eps", 1e-5)
    return Normalisation(lambda x: functional.group_norm(x, groups, eps=eps), 0)


def _batch_norm(arguments: Arguments) -> Operation | None:
    """In training mode samples are not independent, so it has no rule."""
    mean, variance, eps = arguments["running_mean"], arguments["running_var"], arguments.get("eps", 1e-5)

    def normalise(x: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (x.ndim - 2))
        return (x - mean.to(x).view(shape)) * (variance.to(x) + eps).rsqrt().view(shape)

    return None if arguments.get("training", False) else Normalisation(normalise, 0)


def _instance_norm(arguments: Arguments) -> Operation | None:
    if not arguments.get("use_input_stats", True):
        return _batch_norm(arguments)
    eps = arguments.get("eps", 1e-5)
    return Normalisation(lambda x: functional.instance_norm(x, eps=eps), 0)


def _embedding(arguments: Arguments) -> Operation | None:
    """Rows that are rescaled when looked up have no rule."""
    if arguments.get("max_norm") is not None or arguments.get("scale_grad_by_freq", False):
        return None
    rows, padding = len(arguments["weight"]), arguments.get("padding_idx")
    return Embedding(rows, None if padding is None or padding == -1 else padding % rows)


_WEIGHTED = ("input", "weight", "bias")
_STATISTICS = ("input", "running_mean", "running_var", "weight", "bias")
_PRODUCT = WeightedCall(("input", "weight"), partial(_linear, transposed=True))
_CONVOLUTION = WeightedCall((*_WEIGHTED, "stride", "padding", "dilation", "groups"), _convolution)
_TRANSPOSED = WeightedCall(
    (*_WEIGHTED, "stride", "padding", "output_padding", "groups", "dilation"), partial(_convolution, transposed=True)
)
CALLS: dict[str, WeightedCall] = {
    "linear": WeightedCall(_WEIGHTED, _linear),
    **dict.fromkeys(("matmul", "__matmul__", "mm"), _PRODUCT),
    "addmm": WeightedCall(("bias", "input", "weight"), _addmm),
    **{f"conv{n}d": _CONVOLUTION for n in (1, 2, 3)},
    **{f"conv_transpose{n}d": _TRANSPOSED for n in (1, 2, 3)},
    "layer_norm": WeightedCall(("input", "normalized_shape", "weight", "bias", "eps"), _layer_norm),
    "rms_norm": WeightedCall(("input", "normalized_shape", "weight", "eps"), _rms_norm),
    "group_norm": WeightedCall(("input", "num_groups", "weight", "bias", "eps"), _group_norm),
    "batch_norm": WeightedCall((*_STATISTICS, "training", "momentum", "eps"), _batch_norm),
    "instance_norm": WeightedCall((*_STATISTICS, "use_input_stats", "momentum", "eps"), _instance_norm),
    "embedding": WeightedCall(
        ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"), _embedding
    ),
}
