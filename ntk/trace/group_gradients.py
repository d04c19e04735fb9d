r"""What one batch leaves of each group of parameters, and the gradients of its samples that follow from it.

The gradient by a parameter `p` is the sum over the uses `u` of what it enters, taken back through the values
:math:`v_u(p)` that are computed from it:

.. math:: \nabla_p f(x_i) = \sum_u J_{v_u}(p)^\top\, \nabla_{v_u} f(x_i)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk.trace.parameter_groups import ParameterGroup
from ntk.trace.uses import Use


@dataclass(frozen=True, slots=True, eq=False)
class GroupGradients:
    """The inputs, output gradients and rows of a batch, for one group of parameters.

    Attributes:
        group: The parameters.
        samples: Number of samples.
        uses: Inputs and output gradients wherever the parameters are used.
        rows: Gradients by plain autograd, one row a sample, where no rule covers them.
        graph: Leaves, by parameter, that values computed from parameters are functions of.
    """

    group: ParameterGroup
    samples: int
    uses: tuple[Use, ...]
    rows: Tensor | None
    graph: Mapping[int, Tensor]

    @property
    def single(self) -> Use | None:
        """The only use, in which every parameter enters as it is; None where there are several, or derived values."""
        if len(self.uses) != 1:
            return None
        entered = self.uses[0].roles.values()
        plain = all(traced.value is None for traced in entered) and len(entered) == len(self.group.parameters)
        return self.uses[0] if plain else None

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs, output gradients and rows, where there are any."""
        tensors = [self.rows, *(t for use in self.uses for t in (use.grads, use.inputs))]
        return [t for t in tensors if t is not None]

    @property
    def device(self) -> torch.device:
        """The device that the tensors are on."""
        return next((t.device for t in self.tensors), torch.device("cpu"))

    def part(self, rows: slice) -> GroupGradients:
        """The same for some of the samples."""
        uses = tuple(
            replace(use, inputs=None if use.inputs is None else use.inputs[rows], grads=use.grads[rows])
            for use in self.uses
        )
        samples = len(range(self.samples)[rows])
        return replace(self, samples=samples, uses=uses, rows=None if self.rows is None else self.rows[rows])

    def moved(self, device: torch.device) -> GroupGradients:
        """The same on another device."""
        uses = tuple(
            replace(use, inputs=None if use.inputs is None else use.inputs.to(device), grads=use.grads.to(device))
            for use in self.uses
        )
        return replace(self, uses=uses, rows=None if self.rows is None else self.rows.to(device))

    def write_rows(self, out: Tensor) -> None:
        """Put the gradient of every sample into `out`, one row a sample, parameter after parameter.

        The type of `out`, of shape ``(samples, parameters)``, is that of the arithmetic.
        """
        if self.rows is not None:
            out.copy_(self.rows)
            return
        columns = dict(zip(self.group.parameters, torch.split(out, list(self.group.sizes), dim=1), strict=True))
        if self.single is not None:
            for role, followed in self.single.roles.items():
                self._write(self.single, role, columns[followed.parameters[0]])
            return
        out.zero_()
        for use in self.uses:
            for role, followed in use.roles.items():
                if followed.value is None:
                    column = columns[followed.parameters[0]]
                    rows = torch.empty_like(column, memory_format=torch.contiguous_format)
                    self._write(use, role, rows)
                    column += rows
                    continue
                rows = out.new_empty(len(out), followed.value.numel())
                self._write(use, role, rows)
                for index, gradient in self._taken_back(followed.value, followed.parameters, rows):
                    columns[index] += gradient.reshape(len(out), -1)

    @staticmethod
    def _write(use: Use, role: str, out: Tensor) -> None:
        x = use.grads if use.inputs is None else use.inputs
        if out.is_contiguous():
            use.operation.write(role, x, use.grads, out)
            return
        rows = torch.empty_like(out, memory_format=torch.contiguous_format)
        use.operation.write(role, x, use.grads, rows)
        out.copy_(rows)

    def _taken_back(self, value: Tensor, indices: Sequence[int], rows: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Gradients by a derived value as gradients by the parameters that it was computed from."""
        leaves = [self.graph[index].to(value.device) for index in indices]
        grads = rows.to(value).view(len(rows), *value.shape)
        try:
            taken_back = torch.autograd.grad(
                value, leaves, grads, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError:  # an operation that cannot be batched
            each = [torch.autograd.grad(value, leaves, g, retain_graph=True, allow_unused=True) for g in grads]
            taken_back = tuple(None if rows[0] is None else torch.stack(rows) for rows in zip(*each, strict=True))  # type: ignore[misc]
        for index, gradient in zip(indices, taken_back, strict=True):
            if gradient is not None:
                yield index, gradient.to(rows)
