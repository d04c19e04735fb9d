"""Follows the parameters of a network through a forward pass, to where each is used.

Every call of torch in the pass is seen by a `TorchFunctionMode`. A call that uses a parameter as the weight of a layer
keeps its input and, in the backward pass, the gradient by its output. A parameter that is added to every sample, or
multiplied with it, is replaced by one copy per sample. What is computed from parameters alone (a slice, a normalised
weight, rows looked up once for the whole batch) is followed like a parameter, and gradients by it are taken back to
those. Parameters that end up in any other call are named, with the call, and left to plain autograd.

Where the samples are in a tensor is found by comparing two passes, with two and with three samples.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ntk.trace.operations import CALLS, Broadcast
from ntk.trace.uses import Layout, PendingUse, Shape, Step, Traced, TraceMismatchError, Use, aligned_shape, layout_of

# Elementwise calls that a parameter may enter as a copy for each sample, with what they are called as operators.
_ELEMENTWISE = frozenset(
    f"{under}{name}{under}" if under else name
    for name in ("add", "sub", "mul", "div", "true_divide", "radd", "rsub", "rmul", "truediv", "rtruediv")
    for under in ("", "__")
) | {"add_", "sub_", "mul_", "div_", "__iadd__", "__isub__", "__imul__", "__itruediv__", "maximum", "minimum"}
_IN_PLACE = frozenset(name for name in _ELEMENTWISE if name.endswith("_") != name.startswith("__") or "__i" in name)
_REPEATS = frozenset({"expand", "expand_as", "repeat", "tile", "broadcast_to"})


class ShapeLog(TorchFunctionMode):
    """The name of every call, with the shapes that go in and come out."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        super().__init__()
        self.calls: list[tuple[str, list[Shape], list[Shape]]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (inner := _COMPOSITES.get(func)) is not None:
            with self:
                return inner(*args, **kwargs)
        entry: tuple[str, list[Shape], list[Shape]] = (_name(func), _shapes((args, kwargs)), [])
        self.calls.append(entry)
        out = func(*args, **kwargs)
        entry[2].extend(_shapes(out))
        return out


@dataclass(eq=False)
class Tracer(TorchFunctionMode):
    """Follows parameters through one pass: by `steps` that are known, or finding them with the `log` of a pass.

    Attributes:
        parameters: The parameters.
        steps: What to do at each call that parameters enter; found where a log is given.
        log: Calls of the same pass with two samples, where this one has three.
        leaves: Tensors that the backward pass may end at.
        graph_leaves: By the index of a parameter, the leaf that values derived from it are functions of.
    """

    parameters: Sequence[Tensor]
    steps: list[Step] = field(default_factory=list)
    log: list[tuple[str, list[Shape], list[Shape]]] | None = None
    leaves: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._known = {id(p): (p, Traced((i,))) for i, p in enumerate(self.parameters)}
        self.graph_leaves: dict[int, Tensor] = {}
        self._open: list[PendingUse] = []
        self._copies: dict[int, PendingUse] = {}
        self._calls = self._taken = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (inner := _COMPOSITES.get(func)) is not None:
            with self:
                return inner(*args, **kwargs)
        self._calls += 1
        entering = [self._known[id(t)][1] for t in _tensors((args, kwargs)) if id(t) in self._known]
        if not entering or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        return self._taken_step(func, tuple(args), kwargs, entering)

    @property
    def opened(self) -> list[tuple[int, Mapping[str, Traced]]]:
        """The step of every use, and what was used in it."""
        return [(use.step, use.roles) for use in self._open]

    def uses(self, gradients: Iterable[Tensor | None], samples: int, numbers: Iterable[int]) -> dict[int, Use]:
        """The uses of a batch with these numbers, after the gradients by `leaves` were computed."""
        for leaf, gradient in zip(self.leaves, gradients, strict=True):
            if (copy := self._copies.get(id(leaf))) is not None:
                copy.grads = gradient
        chosen = set(numbers)
        if chosen and max(chosen) >= len(self._open):
            raise TraceMismatchError
        return {number: self._open[number].closed(samples) for number in chosen}

    def changed_inputs(self) -> list[str]:
        """Calls whose input was changed in place after it was used."""
        return [
            self.steps[use.step].call
            for use in self._open
            if use.inputs is not None and use.inputs._version != use.version  # noqa: SLF001
        ]

    def _taken_step(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], entering: list[Traced]) -> Any:
        if any(is_functorch_wrapped_tensor(t) for t in _tensors((args, kwargs))):  # inside a vmap of the network's own
            raise TraceMismatchError
        name, number = _name(func), self._taken
        indices = tuple(sorted({index for traced in entering for index in traced.parameters}))
        out = None
        # A parameter that is written into a tensor, and a derived value that is changed in place, are not followed.
        changes = name == "__setitem__" or (_is_in_place(name) and id(args[0]) in self._known)
        if name not in _ELEMENTWISE:  # which may change something in place, so it is called once
            out = func(*args, **kwargs)
            if not changes and not any(True for _ in _tensors(out)):
                return out
        if self.log is not None:
            self.steps.append(
                Step(name, indices, "leave") if changes else self._step_at(name, indices, args, kwargs, out)
            )
        elif number >= len(self.steps) or (self.steps[number].call, self.steps[number].parameters) != (name, indices):
            raise TraceMismatchError
        step = self.steps[number]
        self._taken += 1
        if step.kind == "use":
            assert isinstance(out, Tensor)
            return self._used(number, step, args, kwargs, out)
        if step.kind == "copy":
            return self._copied(number, step, func, args, kwargs, out)
        if step.kind == "derive":
            return self._derived(func, args, kwargs, indices)
        return func(*args, **kwargs) if name in _ELEMENTWISE else out

    # What to do, found from the shapes with two and with three samples.

    def _step_at(self, name: str, indices: tuple[int, ...], args: Any, kwargs: dict[str, Any], out: Any) -> Step:
        assert self.log is not None
        if self._calls > len(self.log) or self.log[self._calls - 1][0] != name:
            raise TraceMismatchError
        _, before_in, before_out = self.log[self._calls - 1]
        shapes = _shapes(out) if out is not None else [_broadcast(args, kwargs)]
        if len(before_out) != len(shapes) or len(before_in) != len(_shapes((args, kwargs))):
            raise TraceMismatchError
        results = [layout_of(*pair) for pair in zip(before_out, shapes, strict=True)]
        if all(layout is None for layout in results):
            return Step(name, indices, "derive")
        left = Step(name, indices, "leave")
        if len(results) != 1 or not isinstance(results[0], Layout):
            return left
        layouts = {
            id(t): layout_of(*pair)
            for t, pair in zip(
                _tensors((args, kwargs)), zip(before_in, _shapes((args, kwargs)), strict=True), strict=True
            )
        }
        step = None
        if name in CALLS:
            step = self._use_at(name, args, kwargs, layouts, results[0])
        elif name in _ELEMENTWISE or name in _REPEATS or name == "prelu":
            step = self._copies_at(name, args, kwargs, shapes[0], results[0])
        return left if step is None else replace(step, call=name, parameters=indices)

    def _use_at(
        self, name: str, args: Any, kwargs: dict[str, Any], layouts: Mapping[int, Any], result: Layout
    ) -> Step | None:
        bound = CALLS[name].bound(args, kwargs)
        x, weight, bias = (bound.get(key) for key in ("input", "weight", "bias"))
        followed = [t for t in (weight, bias) if isinstance(t, Tensor) and id(t) in self._known]
        entering = [t for t in _tensors((args, kwargs)) if id(t) in self._known]
        layout = layouts.get(id(x))
        if not isinstance(layout, Layout) or not isinstance(weight, Tensor) or len(followed) != len(entering):
            return None
        operation = CALLS[name].operation(bound)
        assert isinstance(x, Tensor)
        if operation is None or not operation.suits(layout.axis, x.ndim) or layout.times != result.times:
            return None
        return Step("", (), "use", (operation,), (layout, result))

    def _copies_at(self, name: str, args: Any, kwargs: dict[str, Any], shape: Shape, result: Layout) -> Step | None:
        """A copy for each sample of every parameter that enters, if it has one entry where the samples are."""
        operations = []
        entering = [t for t in _tensors((args, kwargs)) if id(t) in self._known]
        if (name in _IN_PLACE and id(args[0]) in self._known) or (len(entering) > 1 and name in _REPEATS):
            return None
        for t in entering:
            aligned = aligned_shape(t, len(shape), channels=name == "prelu")
            fits = len(aligned) == len(shape) and all(a in (1, b) for a, b in zip(aligned, shape, strict=True))
            if not fits or aligned[result.axis] != 1:
                return None
            operations.append(Broadcast())
        return Step("", (), "copy", tuple(operations), (result,))

    # Doing it.

    def _used(self, number: int, step: Step, args: Any, kwargs: dict[str, Any], out: Tensor) -> Tensor:
        bound = CALLS[step.call].bound(args, kwargs)
        x = bound["input"]
        roles = {
            role: self._known[id(bound[role])][1]
            for role in ("weight", "bias")
            if isinstance(bound.get(role), Tensor) and id(bound[role]) in self._known
        }
        kept = x.detach()
        opened = PendingUse(
            number,
            roles,
            step.operation[0],
            kept,
            kept._version,  # noqa: SLF001
            step.layouts,
            tuple(out.shape),
            out.new_empty(0),
        )
        self._open.append(opened)
        if not out.requires_grad:
            # Nothing before this call has a gradient: the backward pass may end here. The copy can be changed in
            # place by a ReLU, which a leaf cannot.
            self.leaves.append(out.requires_grad_())
            out = out.clone()
        out.register_hook(partial(_take_gradient, opened))  # type: ignore[no-untyped-call]
        return out

    def _copied(
        self, number: int, step: Step, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], out: Tensor | None
    ) -> Tensor:
        result, operations = step.layouts[0], iter(step.operation)
        shape = _broadcast(args, kwargs) if out is None else tuple(out.shape)

        def copy(t: Any) -> Any:
            if not isinstance(t, Tensor) or id(t) not in self._known:
                return t
            sizes = [-1] * len(shape)
            sizes[result.axis] = shape[result.axis]
            aligned = t.detach().reshape(aligned_shape(t, len(shape), channels=step.call == "prelu"))
            leaf = aligned.expand(sizes).requires_grad_()
            roles = {"weight": self._known[id(t)][1]}
            opened = PendingUse(
                number, roles, next(operations), None, 0, (result,), tuple(leaf.shape), aligned.new_empty(0)
            )
            self._open.append(opened)
            self.leaves.append(leaf)
            self._copies[id(leaf)] = opened
            return leaf

        if step.call in _REPEATS:
            return copy(args[0]).expand(shape).clone()
        copied, named = _replaced(args, copy), {key: _replaced(value, copy) for key, value in kwargs.items()}
        if step.call != "prelu":
            return func(*copied, **named)
        x, slope = [*tuple(copied), *named.values()]
        return torch.where(x >= 0, x, slope * x)

    def _derived(self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any], indices: tuple[int, ...]) -> Any:
        def graph(t: Any) -> Any:
            if not isinstance(t, Tensor) or id(t) not in self._known:
                return t
            followed = self._known[id(t)][1]
            if followed.value is not None:
                return followed.value
            return self.graph_leaves.setdefault(followed.parameters[0], t.detach().requires_grad_())

        derived = func(*_replaced(args, graph), **{key: _replaced(value, graph) for key, value in kwargs.items()})
        leaves = {id(leaf): index for index, leaf in self.graph_leaves.items()}

        def shown(t: Any) -> Any:
            if not isinstance(t, Tensor) or not t.requires_grad:
                return t
            detached = t.detach()
            followed = Traced((leaves[id(t)],)) if id(t) in leaves else Traced(indices, t)
            self._known[id(detached)] = (detached, followed)
            return detached

        return _replaced(derived, shown)


def _take_gradient(opened: PendingUse, gradient: Tensor) -> None:
    opened.grads = gradient


def _broadcast(args: Any, kwargs: Mapping[str, Any]) -> Shape:
    """The shape of the result of an elementwise call."""
    return tuple(torch.broadcast_shapes(*_shapes((args, kwargs))))  # type: ignore[no-untyped-call]


def _tensors(nested: Any) -> Iterator[Tensor]:
    if isinstance(nested, Tensor):
        yield nested
    elif isinstance(nested, Mapping):
        for value in nested.values():
            yield from _tensors(value)
    elif isinstance(nested, tuple | list):
        for value in nested:
            yield from _tensors(value)


def _shapes(nested: Any) -> list[Shape]:
    return [tuple(t.shape) for t in _tensors(nested)]


def _replaced(nested: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(nested, tuple) and hasattr(nested, "_fields"):
        return type(nested)(*(_replaced(value, change) for value in nested))
    if isinstance(nested, tuple | list):
        return type(nested)(_replaced(value, change) for value in nested)
    return change(nested)


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", str(func))


def _is_in_place(name: str) -> bool:
    return name not in _ELEMENTWISE and name.endswith("_") and not name.endswith("__")


def _unguarded(func: Any) -> Callable[..., Any]:
    """The same function without its own hand-over to a mode, so that the calls inside it are seen."""
    own = {**func.__globals__, "has_torch_function": lambda *_: False}
    copied = types.FunctionType(func.__code__, own, func.__name__, func.__defaults__, func.__closure__)
    copied.__kwdefaults__ = func.__kwdefaults__
    return copied


_COMPOSITES: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.multi_head_attention_forward: _unguarded(functional.multi_head_attention_forward)
}
