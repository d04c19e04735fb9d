r"""One batched forward and backward pass that keeps, wherever parameters are used, what their gradients are made of.

The samples of a batch do not see each other, so one backward pass holds the output gradient of every sample at every
layer:

.. math:: \frac{\partial}{\partial z_i}\sum_j f(x_j) = \frac{\partial f(x_i)}{\partial z_i}

for a tensor :math:`z_i` that is computed from sample `i`. The parameters are frozen meanwhile: no weight gradient is
formed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ntk.trace.group_gradients import GroupGradients
from ntk.trace.inputs import Scalar, Values, called, count_rows, doubled
from ntk.trace.parameter_groups import AUTOGRAD, ParameterGroup, derived_with, group_parameters
from ntk.trace.plain_autograd import per_sample_gradients, requiring_only
from ntk.trace.requirements import UnsupportedNetworkError, require_eval, require_independence, used_parameters
from ntk.trace.tracing import ShapeLog, Tracer
from ntk.trace.uses import Step, TraceMismatchError, Use


class TracedNetwork:
    """A network whose parameters were followed to their uses.

    Attributes:
        model: The network, in eval mode.
        names: Names of the parameters whose gradients are the features, in the order of the network.
        parameters: Those parameters.
        left_out: Names of the others: frozen, or outside the layers that were chosen.
        outputs: Number of outputs per sample.
        batch_dependence: By how much an output moved with the other samples of its batch, against the largest or 1.
        groups: Parameters whose gradients are computed together.
        reasons: Names of parameters that no rule covers, each with the call that it ends up in.
        samples_innermost: Numbers of steps at which neighbouring rows of a batch are of neighbouring samples.
        one_by_one: Whether plain autograd takes the samples one by one.
    """

    def __init__(
        self,
        model: nn.Module,
        few: Values,
        more: Values,
        *,
        layers: Sequence[str] = (),
        frozen: bool = False,
        by_autograd: Mapping[str, str] | None = None,
        samples_innermost: frozenset[int] = frozenset(),
        only_autograd: bool = False,
        one_by_one: bool = False,
    ) -> None:
        """Follow the parameters of the network to their uses, with a few samples.

        Args:
            model: The network.
            few: Two samples.
            more: Three, the first two of which are these.
            layers: Modules or parameters to use; all where there is none.
            frozen: Whether parameters that require no gradient are used, too.
            by_autograd: Names of parameters to leave to plain autograd, and why.
            samples_innermost: Numbers of steps at which neighbouring rows are of neighbouring samples.
            only_autograd: Whether all parameters are left to plain autograd.
            one_by_one: Whether plain autograd takes the samples one by one.
        """
        require_independence(model)
        self.model = model
        named, self.left_out = used_parameters(model, layers, frozen=frozen)
        self.names, self.parameters = tuple(named), tuple(named.values())
        self.reasons = dict.fromkeys(named, "as asked") if only_autograd else dict(by_autograd or {})
        self._few, self._more = few, more
        self.samples_innermost, self.one_by_one = samples_innermost, one_by_one
        self._steps: list[Step] = []
        self._trace()

    def _trace(self, *, first: bool = True) -> None:
        few, more = self._few, self._more
        log = ShapeLog()
        drawn = torch.get_rng_state()
        with requiring_only(self.model):
            with log:
                outputs = called(self.model, few).detach()
            if not torch.equal(drawn, torch.get_rng_state()):
                require_eval(self.model)
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
                layouts=tuple(
                    replace(layout, samples_innermost=number in self.samples_innermost) for layout in step.layouts
                ),
            )
            for number, step in enumerate(tracer.steps)
        ]
        for step in self._steps:
            if step.kind == "leave":
                self.reasons |= {
                    self.names[index]: step.call for index in step.parameters if self.names[index] not in self.reasons
                }
        uses = [list(roles.values()) for _, roles in tracer.opened]
        left = {index for index, name in enumerate(self.names) if name in self.reasons}
        derived = derived_with(uses, left)
        self.reasons |= {self.names[index]: "a value computed with others of these" for index in sorted(derived)}
        sizes = {name: p.numel() for name, p in self.named.items()}
        self.groups = tuple(group_parameters(sizes, uses, left | derived))
        self._step_of_use = [number for number, _ in tracer.opened]

    @property
    def named(self) -> dict[str, nn.Parameter]:
        """The parameters by name."""
        return dict(zip(self.names, self.parameters, strict=True))

    def folded(self, group: ParameterGroup) -> set[int]:
        """Numbers of the steps of a group at which a sample has several rows of the batch, in an order to be found."""
        steps = {self._step_of_use[use] for use in group.uses}
        return {step for step in steps if any(layout.times > 1 for layout in self._steps[step].layouts)}

    def with_fallback(self, groups: Sequence[ParameterGroup]) -> TracedNetwork | None:
        """The network with some groups followed in another way; None where there is no other.

        Rows of a batch that are several to a sample may be in either order; if neither is right, no rule is; and if
        plain autograd of a batch is not right, one sample at a time is.
        """
        reasons: dict[str, str] = {}
        inner, one_by_one = set(self.samples_innermost), self.one_by_one
        for group in groups:
            folded = self.folded(group)
            if group.route == AUTOGRAD:
                if one_by_one:
                    return None
                one_by_one = True
            elif folded - inner:
                inner |= folded
            else:
                reasons |= {self.names[index]: "a call that was not followed" for index in group.parameters}
        return self._otherwise(reasons, frozenset(inner), one_by_one=one_by_one)

    def _otherwise(
        self, reasons: Mapping[str, str], samples_innermost: frozenset[int] = frozenset(), *, one_by_one: bool = False
    ) -> TracedNetwork:
        """The same network, traced with these options besides those that it has."""
        other = copy.copy(self)
        other.reasons = {**self.reasons, **reasons}
        other.samples_innermost = self.samples_innermost | samples_innermost
        other.one_by_one = self.one_by_one or one_by_one
        other._trace()  # noqa: SLF001
        return other

    def by_autograd(self, indices: Iterable[int]) -> TracedNetwork:
        """The network with more parameters left to plain autograd; with all where none is named."""
        why = "a forward pass that depends on the samples"
        return self._otherwise(reasons={self.names[index]: why for index in indices or range(len(self.names))})

    def capture(self, values: Values, scalar: Scalar) -> list[GroupGradients]:
        """The inputs, output gradients and rows of a batch, for each group of parameters.

        Raises:
            TraceMismatchError: If the forward pass uses parameters in another way than in the pass that was followed.
        """
        single = count_rows(values) == 1  # networks may treat a batch of one in another way
        batch = doubled(values) if single else values
        tracer = Tracer(self.parameters, list(self._steps))
        uses = self._uses(tracer, batch, scalar) if any(group.uses for group in self.groups) else {}
        if changed := tracer.changed_inputs():
            raise UnsupportedNetworkError(
                f"the input of a call of {changed[0]!r} is changed in place after it was used, so it has no gradient; "
                "use the out-of-place operation."
            )
        rows = None
        if any(group.route == AUTOGRAD for group in self.groups):
            rows = per_sample_gradients(self.model, self._left(), values, scalar, one_by_one=self.one_by_one)
        samples, graph = count_rows(batch), tracer.graph_leaves
        captured = [
            GroupGradients(group, samples, tuple(_only(uses[number], group) for number in group.uses), None, graph)
            for group in self.groups
        ]
        captured = [gradients.part(slice(0, 1)) for gradients in captured] if single else captured
        return [replace(part, rows=rows) if part.group.route == AUTOGRAD else part for part in captured]

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
            numbers_of_uses = {number for group in self.groups for number in group.uses}
            return tracer.uses(grads, count_rows(values), numbers_of_uses)

    def _left(self) -> dict[str, nn.Parameter]:
        group = next(group for group in self.groups if group.route == AUTOGRAD)
        return {self.names[index]: self.parameters[index] for index in group.parameters}


def _only(use: Use, group: ParameterGroup) -> Use:
    """A use with the roles that parameters of a group have in it."""
    roles = {role: traced for role, traced in use.roles.items() if set(traced.parameters) <= set(group.parameters)}
    return replace(use, roles=roles)
