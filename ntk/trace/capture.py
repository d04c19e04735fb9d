"""One batched forward and backward pass that keeps, wherever parameters are used, what their gradients are made of.

The samples of a batch do not see each other, so the backward pass of ``f(x).sum()`` holds the output gradient of every
sample at every layer. The parameters are frozen meanwhile: no weight gradient is formed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrizations import _SpectralNorm

from ntk.trace.captured import AUTOGRAD, UNUSED, Block, Captured
from ntk.trace.inputs import Values, called, count_rows, doubled
from ntk.trace.per_sample import per_sample_gradients, requiring_only
from ntk.trace.tracing import ShapeLog, Tracer
from ntk.trace.uses import Step, Traced, TraceMismatchError, Use
from projnorm.core.errors import InputError
from projnorm.core.files import reason

# How the outputs of a batch, shape (samples, outputs), become one number per sample.
Scalar = Callable[[Tensor], Tensor]


class UnsupportedNetworkError(InputError):
    """A network whose samples have no gradients of their own; the message names the layer."""


class Network:
    """A network whose parameters were followed to their uses.

    Attributes:
        model: The network, in eval mode.
        names: Names of the parameters whose gradients are the features, in the order of the network.
        parameters: Those parameters.
        left_out: Names of the others: frozen, or outside the layers that were chosen.
        outputs: Number of outputs per sample.
        batch_dependence: By how much an output moved with the other samples of its batch, against the largest or 1.
        blocks: Parameters that are computed together.
        reasons: Names of parameters that no rule covers, each with the call that it ends up in.
        samples_innermost: Numbers of steps at which neighbouring rows of a batch are of neighbouring samples.
        one_by_one: Whether plain autograd takes the samples one by one.
    """

    def __init__(
        self,
        model: nn.Module,
        values: Callable[[int], Values],
        *,
        layers: Sequence[str] = (),
        frozen: bool = False,
        by_autograd: Mapping[str, str] | None = None,
        samples_innermost: frozenset[int] = frozenset(),
        only_autograd: bool = False,
        one_by_one: bool = False,
    ) -> None:
        """Look at the network.

        Args:
            model: The network.
            values: Gives the values of so many samples; the first ones are always the same.
            layers: Modules or parameters to use; all where there is none.
            frozen: Whether parameters that require no gradient are used, too.
            by_autograd: Names of parameters to leave to plain autograd, and why.
            samples_innermost: Numbers of steps at which neighbouring rows are of neighbouring samples.
            only_autograd: Whether all parameters are left to plain autograd.
            one_by_one: Whether plain autograd takes the samples one by one.
        """
        _require_independence(model)
        self.model = model
        named, self.left_out = used_parameters(model, layers, frozen=frozen)
        self.names, self.parameters = tuple(named), tuple(named.values())
        self.reasons = dict.fromkeys(named, "as asked") if only_autograd else dict(by_autograd or {})
        self._values, self.samples_innermost, self.one_by_one = values, samples_innermost, one_by_one
        self._steps: list[Step] = []
        self._trace()

    def _trace(self, *, first: bool = True) -> None:
        few, more = self._values(2), self._values(3)
        log = ShapeLog()
        drawn = torch.get_rng_state()
        with requiring_only(self.model):
            with log:
                outputs = called(self.model, few).detach()
            if not torch.equal(drawn, torch.get_rng_state()):
                _require_eval(self.model)
            tracer = Tracer(self.parameters, log=log.calls)
            try:
                with tracer:
                    others = called(self.model, more).detach()
            except TraceMismatchError:
                if first:  # which may have filled a cache, such as one of positions
                    self._trace(first=False)
                    return
                why = "a forward pass that differs with the number of samples"
                self.reasons = dict.fromkeys(self.names, why)
                others, tracer = called(self.model, more).detach(), Tracer(self.parameters)
        self.outputs, self.output_dtype = outputs.shape[1], outputs.dtype
        moved = (others[:2] - outputs).abs().max() / max(1.0, float(outputs.abs().max()))
        self.batch_dependence = float(moved)
        self._steps = [
            replace(
                step,
                layouts=tuple(replace(one, samples_innermost=number in self.samples_innermost) for one in step.layouts),
            )
            for number, step in enumerate(tracer.steps)
        ]
        for step in self._steps:
            if step.kind == "leave":
                self.reasons |= {
                    self.names[root]: step.call for root in step.roots if self.names[root] not in self.reasons
                }
        self.blocks = tuple(self._blocks([list(roles.values()) for _, roles in tracer.opened]))
        self._step_of_use = [number for number, _ in tracer.opened]

    def _blocks(self, uses: Sequence[Sequence[Traced]]) -> Iterator[Block]:
        sizes = [p.numel() for p in self.parameters]
        groups = _Groups(len(sizes))
        left = {root for root, name in enumerate(self.names) if name in self.reasons}
        # Of parameters that a value was computed from together, all are left if one is.
        derived = [one.roots for use in uses for one in use if len(one.roots) > 1]
        while more := {root for roots in derived if left & set(roots) for root in roots} - left:
            left |= more
            self.reasons |= {self.names[root]: "a value computed with others of these" for root in more}
        entered: dict[int, list[int]] = {}
        for number, use in enumerate(uses):
            joined = [root for one in use for root in one.roots if root not in left]
            groups.join(joined)
            for root in joined:
                entered.setdefault(root, []).append(number)
        ruled = [roots for roots in groups.all() if not left & set(roots)]
        for roots in sorted([*ruled, *([tuple(sorted(left))] if left else [])]):
            numbers = tuple(sorted({number for root in roots for number in entered.get(root, [])}))
            is_left = roots[0] in left
            route = AUTOGRAD if is_left else "" if numbers else UNUSED
            yield Block(
                self._name(roots), roots, tuple(sizes[root] for root in roots), () if is_left else numbers, route
            )

    def _name(self, roots: Sequence[int]) -> str:
        names = [self.names[root] for root in roots]
        owners = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
        if len(names) == 1 and not names[0].endswith((".weight", ".bias")):
            return names[0]
        return owners[0] + (f" and {len(owners) - 1} more" if len(owners) > 1 else "") or names[0]

    def folded(self, block: Block) -> set[int]:
        """Numbers of the steps of a block at which a sample has several rows of the batch, in an order to be found."""
        steps = {self._step_of_use[use] for use in block.uses}
        return {step for step in steps if any(one.times > 1 for one in self._steps[step].layouts)}

    def other_way(self, blocks: Sequence[Block]) -> Network | None:
        """The network with some blocks followed in another way; None where there is no other.

        Rows of a batch that are several to a sample may be in either order; if neither is right, no rule is; and if
        plain autograd of a batch is not right, one sample at a time is.
        """
        reasons: dict[str, str] = {}
        inner, one_by_one = set(self.samples_innermost), self.one_by_one
        for block in blocks:
            folded = self.folded(block)
            if block.route == AUTOGRAD:
                if one_by_one:
                    return None
                one_by_one = True
            elif folded - inner:
                inner |= folded
            else:
                reasons |= {self.names[root]: "a call that was not followed" for root in block.roots}
        return self._otherwise(reasons, frozenset(inner), one_by_one=one_by_one)

    def _otherwise(
        self, reasons: Mapping[str, str], samples_innermost: frozenset[int] = frozenset(), *, one_by_one: bool = False
    ) -> Network:
        """The same network, traced with these options besides those that it has."""
        other = copy.copy(self)
        other.reasons = {**self.reasons, **reasons}
        other.samples_innermost = self.samples_innermost | samples_innermost
        other.one_by_one = self.one_by_one or one_by_one
        other._trace()  # noqa: SLF001
        return other

    def by_autograd(self, roots: Iterable[int]) -> Network:
        """The network with more parameters left to plain autograd; with all where none is named."""
        why = "a forward pass that depends on the samples"
        return self._otherwise(reasons={self.names[root]: why for root in roots or range(len(self.names))})

    def capture(self, values: Values, scalar: Scalar) -> list[Captured]:
        """What each block leaves of a batch.

        Raises:
            TraceMismatchError: If the forward pass uses parameters in another way than in the pass that was followed.
        """
        single = count_rows(values) == 1  # networks may treat a batch of one in another way
        given = doubled(values) if single else values
        tracer = Tracer(self.parameters, list(self._steps))
        uses = self._uses(tracer, given, scalar) if any(block.uses for block in self.blocks) else {}
        if changed := tracer.changed_inputs():
            raise UnsupportedNetworkError(
                f"the input of a call of {changed[0]!r} is changed in place after it was used, so it has no gradient; "
                "use the out-of-place operation."
            )
        rows = None
        if any(block.route == AUTOGRAD for block in self.blocks):
            rows = per_sample_gradients(self.model, self._left(), values, scalar, one_by_one=self.one_by_one)
        samples, graph = count_rows(given), tracer.graph_roots
        found = [
            Captured(block, samples, tuple(_only(uses[number], block) for number in block.uses), None, graph)
            for block in self.blocks
        ]
        found = [one.part(slice(0, 1)) for one in found] if single else found
        return [replace(one, rows=rows) if one.block.route == AUTOGRAD else one for one in found]

    def _uses(self, tracer: Tracer, values: Values, scalar: Scalar) -> dict[int, Use]:
        """One forward and backward pass."""
        with requiring_only(self.model):
            with tracer:
                numbers = scalar(called(self.model, values))
            leaves = tracer.leaves
            grads: Sequence[Tensor | None] = [None] * len(leaves)
            if leaves and numbers.requires_grad:
                try:
                    grads = torch.autograd.grad(numbers.sum(), leaves, allow_unused=True)
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError:  # such as that of a checkpoint that must start at a parameter
                    raise TraceMismatchError from None
            wanted = {number for block in self.blocks for number in block.uses}
            return tracer.uses(grads, count_rows(values), wanted)

    def plain_gradient(
        self, values: Values, scalar: Scalar, weights: Tensor, take: Callable[[int, Tensor], None]
    ) -> None:
        """The gradient of a weighted sum over samples by plain autograd; `take` gets that of each parameter."""
        for name, p in zip(self.names, self.parameters, strict=True):
            if getattr(p, "_post_accumulate_grad_hooks", None):
                raise InputError(
                    f"parameter {name!r} has a hook that runs when its gradient is complete, such as a step of an "
                    "optimizer; remove it, or pass self_check=False."
                )
        kept, handles = [(p, p.grad) for p in self.parameters], []
        try:
            for p in self.parameters:
                p.grad = None
            with requiring_only(self.model, self.parameters):
                for index, p in enumerate(self.parameters):
                    hook = _hand_over(take, index)
                    handles.append(p.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]
                numbers = scalar(called(self.model, values))
                if not numbers.requires_grad:
                    raise UnsupportedNetworkError(
                        "the network's output does not depend on the parameters that are used; it may be detached, or "
                        "computed under torch.no_grad()."
                    )
                (numbers * weights.to(numbers)).sum().backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise UnsupportedNetworkError(f"autograd cannot differentiate the network: {reason(error)}.") from error
        finally:
            for handle in handles:
                handle.remove()
            for p, grad in kept:
                p.grad = grad

    def _left(self) -> dict[str, nn.Parameter]:
        block = next(block for block in self.blocks if block.route == AUTOGRAD)
        return {self.names[root]: self.parameters[root] for root in block.roots}


class _Groups:
    """Sets of numbers that are joined step by step."""

    def __init__(self, count: int) -> None:
        self._of = [{number} for number in range(count)]

    def join(self, numbers: Sequence[int]) -> None:
        joined = set().union(*(self._of[number] for number in numbers))
        for number in joined:
            self._of[number] = joined

    def all(self) -> list[tuple[int, ...]]:
        return sorted({tuple(sorted(group)) for group in self._of})


def used_parameters(
    model: nn.Module, layers: Sequence[str], *, frozen: bool
) -> tuple[dict[str, nn.Parameter], tuple[str, ...]]:
    """The parameters that are used, and the names of those that are not."""
    everything = dict(model.named_parameters())
    for wanted in layers:
        if not any(_is_in(name, [wanted]) for name in everything):
            raise InputError(
                f"`layers` names {wanted!r}, where the network has no parameters; it has {_some(everything)}."
            )
    if not everything:
        raise UnsupportedNetworkError("the network has no parameters.")
    inside = {name: p for name, p in everything.items() if not layers or _is_in(name, layers)}
    chosen = {name: p for name, p in inside.items() if frozen or p.requires_grad}
    if not chosen:
        raise InputError("all parameters are frozen (`requires_grad` is False); pass frozen=True to use them.")
    for name, p in chosen.items():
        if not p.is_floating_point():
            raise InputError(f"parameter {name!r} is of {p.dtype}; `layers` must name parameters of real numbers.")
    if any(p.is_inference() for p in chosen.values()):
        raise InputError("the network was made under torch.inference_mode(), so it has no gradients; make it outside.")
    return chosen, tuple(name for name in everything if name not in chosen)


def _require_independence(model: nn.Module) -> None:
    for name, module in model.named_modules():
        tracks = isinstance(module, _InstanceNorm) and module.running_mean is not None
        if module.training and (tracks or isinstance(module, _BatchNorm | _DropoutNd | _SpectralNorm)):
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) is in training mode, where samples are not independent, "
                "outputs not repeatable or buffers changed; call model.eval() first."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) keeps no running statistics, so samples are not independent."
            )


def _require_eval(model: nn.Module) -> None:
    """Of a network that draws random numbers: a few samples may not show what a random path does to others."""
    name, module = next(((name, one) for name, one in model.named_modules() if one.training), ("", None))
    if module is not None:
        raise UnsupportedNetworkError(
            f"the forward pass draws random numbers, and layer {name!r} ({type(module).__name__}) is in training mode; "
            "call model.eval() first."
        )


def _hand_over(take: Callable[[int, Tensor], None], index: int) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        take(index, parameter.grad.detach())
        parameter.grad = None

    return hook


def _only(use: Use, block: Block) -> Use:
    """A use with the roles that parameters of a block have in it."""
    roles = {role: one for role, one in use.roles.items() if set(one.roots) <= set(block.roots)}
    return replace(use, roles=roles)


def _is_in(name: str, layers: Sequence[str]) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def _some(found: Iterable[str], count: int = 5) -> str:
    owners = list(dict.fromkeys(name.rpartition(".")[0] or name for name in found))
    return ", ".join(owners[:count]) + (", ..." if len(owners) > count else "")
