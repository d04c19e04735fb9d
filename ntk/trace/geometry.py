r"""Which pixels a convolution multiplies with which weights.

In each direction output position `s` and tap `t` meet at the input pixel

.. math:: i = \mathrm{stride}\cdot s + \mathrm{dilation}\cdot t - \mathrm{padding}

so the pixels that a tap meets are all of one phase, :math:`i \bmod \mathrm{stride}`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution, with one number for each of its one, two or three directions.

    Attributes:
        size: Number of taps.
        stride: Step from one output position to the next.
        dilation: Step from one tap to the next.
        before: Zeros added before the first pixel.
        after: Zeros added after the last one.
    """

    size: Sizes
    stride: Sizes
    dilation: Sizes
    before: Sizes
    after: Sizes

    @classmethod
    def from_options(
        cls, size: Sizes, stride: Sizes | int, padding: Sizes | int | str, dilation: Sizes | int
    ) -> Window:
        """From the arguments of a convolution; a padding of "same" may add one zero more at the end."""
        stride, dilation = (_each(option, len(size)) for option in (stride, dilation))
        if not isinstance(padding, str):
            before = after = _each(padding, len(size))
        else:
            total = tuple(d * (k - 1) if padding == "same" else 0 for k, d in zip(size, dilation, strict=True))
            before = tuple(t // 2 for t in total)
            after = tuple(t - t // 2 for t in total)
        return cls(size, stride, dilation, before, after)


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial direction of a convolution.

    Output position `s` and tap `t` meet at the input pixel ``stride * s + dilation * t - padding``.
    """

    size_in: int
    size_out: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    def taps(self) -> Iterator[tuple[int, int, slice, slice]]:
        """For every tap that meets a pixel: its index, its phase, the output positions, and their pixels in the phase.

        Phase `p` is the pixels ``p, p + stride, p + 2 * stride, ...``; within it a tap is a shift by whole positions.
        """
        for tap in range(self.kernel):
            offset = self.dilation * tap - self.padding
            phase = offset % self.stride
            shift = (offset - phase) // self.stride
            in_phase = len(range(phase, self.size_in, self.stride))
            start, stop = max(0, -shift), min(self.size_out, in_phase - shift)
            if start < stop:
                yield tap, phase, slice(start, stop), slice(start + shift, stop + shift)


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """A convolution at a given input size; `rows` is its vertical direction."""

    channels_in: int
    channels_out: int
    rows: Axis
    columns: Axis

    @classmethod
    def from_window(cls, window: Window, shape_in: Sizes, shape_out: Sizes) -> ConvGeometry:
        """The geometry of a window in two directions between images of two shapes, channels first."""
        axes = [
            Axis(
                shape_in[1 + i],
                shape_out[1 + i],
                window.size[i],
                window.stride[i],
                window.dilation[i],
                window.before[i],
            )
            for i in (0, 1)
        ]
        return cls(shape_in[0], shape_out[0], *axes)

    @property
    def positions(self) -> int:
        """Output positions."""
        return self.rows.size_out * self.columns.size_out

    def phases(self) -> dict[tuple[int, int], list[tuple[slice, slice, slice, slice]]]:
        """The taps by phase: rows and columns of the output, rows and columns of the pixels in the phase."""
        phases: dict[tuple[int, int], list[tuple[slice, slice, slice, slice]]] = {}
        for _, row_phase, rows_out, rows_in in self.rows.taps():
            for _, column_phase, columns_out, columns_in in self.columns.taps():
                taps = phases.setdefault((row_phase, column_phase), [])
                taps.append((rows_out, columns_out, rows_in, columns_in))
        return phases

    def phase_size(self, phase: tuple[int, int]) -> int:
        """Pixels in a phase."""
        rows = range(phase[0], self.rows.size_in, self.rows.stride)
        return len(rows) * len(range(phase[1], self.columns.size_in, self.columns.stride))


def patches(window: Window, x: Tensor) -> Tensor:
    """The patches each output position sees, shape ``(n, channels_in * taps, positions)``."""
    directions = len(window.size)
    if directions == 1:  # a picture of one row
        flat = Window(*((first, *rest) for first, rest in zip((1, 1, 1, 0, 0), _fields(window), strict=True)))
        return patches(flat, x.unsqueeze(2))
    x, before = (_padded(window, x), (0,) * directions) if directions > 2 else _evenly_padded(window, x)
    if directions == 2:
        return functional.unfold(x, window.size, window.dilation, before, window.stride)
    for axis, (size, stride, dilation) in enumerate(zip(window.size, window.stride, window.dilation, strict=True), 2):
        x = x.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    # (n, channels, positions..., taps...) to (n, channels, taps..., positions...)
    order = [0, 1, *range(2 + directions, 2 + 2 * directions), *range(2, 2 + directions)]
    x = x.permute(order)
    return x.reshape(len(x), math.prod(x.shape[1 : 2 + directions]), -1)


def convolved(window: Window, x: Tensor, weight: Tensor) -> Tensor:
    """The convolution with this window, of weights of shape ``(outputs, channels_in, taps...)``."""
    x, before = _evenly_padded(window, x)
    convolution = (functional.conv1d, functional.conv2d, functional.conv3d)[len(window.size) - 1]
    return convolution(x, weight, None, window.stride, before, window.dilation)


def _evenly_padded(window: Window, x: Tensor) -> tuple[Tensor, Sizes]:
    """The input, and the zeros that are still to be added on both sides: all where they are as many on either."""
    if window.before == window.after:
        return x, window.before
    return _padded(window, x), (0,) * len(window.size)


def _padded(window: Window, x: Tensor) -> Tensor:
    ends = zip(reversed(window.before), reversed(window.after), strict=True)
    return functional.pad(x, [end for pair in ends for end in pair])


def _fields(window: Window) -> tuple[Sizes, ...]:
    return window.size, window.stride, window.dilation, window.before, window.after


def _each(option: Sizes | int, directions: int) -> Sizes:
    """An option of every direction, where it may be given once for all."""
    each = (option,) if isinstance(option, int) else tuple(option)
    return each * directions if len(each) == 1 else each
