"""Where parameters are used in a pass: the call, the samples in its tensors, its input and its output gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ntk.trace.operations import Operation

Shape = tuple[int, ...]

# Numbers of samples of the two passes that shapes are compared between.
_FEW, _MORE = 2, 3


class TraceMismatchError(Exception):
    """The forward pass makes other calls with other samples, in general or where `parameters` are used."""

    def __init__(self, indices: tuple[int, ...] = ()) -> None:
        """Take the indices of the parameters at the call; empty for the whole pass."""
        super().__init__()
        self.parameters = indices


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the samples of a batch are in a tensor.

    Attributes:
        axis: The axis they are along.
        times: Number of entries along it for each sample.
        samples_innermost: Whether neighbouring entries are of neighbouring samples, not of the same one.
    """

    axis: int
    times: int
    samples_innermost: bool = False

    def samples_first(self, t: Tensor) -> Tensor:
        """The tensor with an axis of samples, one of the entries of each, and then the others."""
        if self.times == 1:
            return t.movedim(self.axis, 0).unsqueeze(1)
        split = (self.times, -1) if self.samples_innermost else (-1, self.times)
        t = t.reshape(*t.shape[: self.axis], *split, *t.shape[self.axis + 1 :])
        return t.movedim((self.axis + self.samples_innermost, self.axis + (not self.samples_innermost)), (0, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A parameter, or what was computed from parameters alone.

    Attributes:
        parameters: Indices of the parameters.
        value: The value that is a function of them for autograd; None for a parameter itself.
    """

    parameters: tuple[int, ...]
    value: Tensor | None = None


@dataclass(slots=True, eq=False)
class Use:
    """One use of parameters in a pass.

    Attributes:
        operation: What the call does with them.
        roles: What was used, by its role in the call.
        inputs: Input of the call, samples first; None where it does not matter.
        grads: Gradient of each sample's output by the result of the call, samples first.
    """

    operation: Operation
    roles: Mapping[str, Traced]
    inputs: Tensor | None
    grads: Tensor

    @property
    def parameters(self) -> tuple[int, ...]:
        """Indices of the parameters that enter it."""
        return _entering(self.roles)


@dataclass(frozen=True, slots=True)
class Step:
    """What to do at a call that parameters enter.

    Attributes:
        call: Name of the function.
        parameters: Parameters that enter it.
        kind: "use", "copy", "derive" or "leave".
        operation: The operation of a use; of copies, one for each parameter.
        layouts: Where the samples are in the input and in the result.
    """

    call: str
    parameters: tuple[int, ...]
    kind: str
    operation: tuple[Operation, ...] = ()
    layouts: tuple[Layout, ...] = ()


@dataclass(slots=True, eq=False)
class PendingUse:
    """A use whose gradient is not there yet; `like` is of the type and on the device that it will have."""

    step: int
    roles: dict[str, Traced]
    operation: Operation
    inputs: Tensor | None
    version: int
    layouts: tuple[Layout, ...]
    shape: Shape
    like: Tensor
    grads: Tensor | None = None

    def closed(self, samples: int) -> Use:
        """The use with the samples first; without a gradient the outputs do not depend on it."""
        grads = self.like.new_zeros(self.shape) if self.grads is None else self.grads
        for t, layout in ((self.inputs, self.layouts[0]), (grads, self.layouts[-1])):
            if t is not None and t.shape[layout.axis] != samples * layout.times:
                raise TraceMismatchError(_entering(self.roles))
        first = None if self.inputs is None else self.layouts[0].samples_first(self.inputs)
        return Use(self.operation, self.roles, first, self.layouts[-1].samples_first(grads.detach()))


def _entering(roles: Mapping[str, Traced]) -> tuple[int, ...]:
    return tuple(index for traced in roles.values() for index in traced.parameters)


def layout_of(few: Shape, more: Shape) -> Layout | bool | None:
    """Where samples are in a tensor of these shapes with two and with three; None if nowhere, False if not clear."""
    if few == more:
        return None
    if len(few) != len(more):
        return False
    changed = [axis for axis, sizes in enumerate(zip(few, more, strict=True)) if sizes[0] != sizes[1]]
    axis = changed[0]
    if len(changed) > 1 or few[axis] % _FEW or more[axis] * _FEW != few[axis] * _MORE:
        return False
    return Layout(axis, few[axis] // _FEW)


def aligned_shape(t: Tensor, ndim: int, *, channels: bool) -> Shape:
    """The shape of a parameter among the axes of a result: the last ones, or the second where it is of channels."""
    if channels:
        return (1, t.numel(), *[1] * (ndim - 2)) if ndim > 1 else (1,)
    return (*[1] * (ndim - t.ndim), *t.shape)
