"""Which pixels a convolution multiplies with which weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional


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
    def of(cls, module: nn.Conv2d, size_in: tuple[int, int], size_out: tuple[int, int]) -> ConvGeometry:
        """The geometry of `module` between images of the two sizes."""
        axes = [
            Axis(
                size_in[i], size_out[i], module.kernel_size[i], module.stride[i], module.dilation[i], _before(module, i)
            )
            for i in (0, 1)
        ]
        return cls(module.in_channels, module.out_channels, *axes)

    @property
    def positions(self) -> int:
        """Output positions."""
        return self.rows.size_out * self.columns.size_out

    def phases(self) -> dict[tuple[int, int], list[tuple[slice, slice, slice, slice]]]:
        """The taps by phase: rows and columns of the output, rows and columns of the pixels in the phase."""
        found: dict[tuple[int, int], list[tuple[slice, slice, slice, slice]]] = {}
        for _, row_phase, rows_out, rows_in in self.rows.taps():
            for _, column_phase, columns_out, columns_in in self.columns.taps():
                taps = found.setdefault((row_phase, column_phase), [])
                taps.append((rows_out, columns_out, rows_in, columns_in))
        return found

    def phase_size(self, phase: tuple[int, int]) -> int:
        """Pixels in a phase."""
        rows = range(phase[0], self.rows.size_in, self.rows.stride)
        return len(rows) * len(range(phase[1], self.columns.size_in, self.columns.stride))


def patches(module: nn.Conv2d, x: Tensor) -> Tensor:
    """The patches each output position sees, shape ``(n, channels_in * kernel, positions)``."""
    before, after = (_before(module, 0), _before(module, 1)), (_after(module, 0), _after(module, 1))
    if before != after:
        x = functional.pad(x, (before[1], after[1], before[0], after[0]))
        before = (0, 0)
    return functional.unfold(x, module.kernel_size, module.dilation, before, module.stride)


def _before(module: nn.Conv2d, axis: int) -> int:
    return _total(module, axis) // 2 if isinstance(module.padding, str) else module.padding[axis]


def _after(module: nn.Conv2d, axis: int) -> int:
    return _total(module, axis) - _total(module, axis) // 2 if isinstance(module.padding, str) else module.padding[axis]


def _total(module: nn.Conv2d, axis: int) -> int:
    """Zeros that padding "same" adds along an axis; none for "valid"."""
    return module.dilation[axis] * (module.kernel_size[axis] - 1) if module.padding == "same" else 0
