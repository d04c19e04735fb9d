"""What one batch leaves of each block of parameters, and the gradients of its samples that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk.trace.uses import Use

# Routes of parameters that no rule covers, and of those that the output does not depend on.
AUTOGRAD, UNUSED = "autograd", "unused"


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters whose gradients are computed together: those of a layer, or of layers that share some.

    Attributes:
        name: Name of the layer, or of the parameter.
        roots: Indices of the parameters.
        sizes: Number of entries of each.
        uses: Indices of the uses of a pass that they enter.
        route: "autograd" where no rule covers them, "unused" where the output does not depend on them, else empty.
    """

    name: str
    roots: tuple[int, ...]
    sizes: tuple[int, ...]
    uses: tuple[int, ...]
    route: str = ""

    @property
    def parameters(self) -> int:
        """Number of entries of all of them."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """What a batch leaves of one block.

    Attributes:
        block: The parameters.
        samples: Number of samples.
        uses: Inputs and output gradients wherever the parameters are used.
        rows: Gradients by plain autograd, one row a sample, where no rule covers them.
        graph: Leaves, by parameter, that values computed from parameters are functions of.
    """

    block: Block
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
        plain = all(one.value is None for one in entered) and len(entered) == len(self.block.roots)
        return self.uses[0] if plain else None

    @property
    def tensors(self) -> list[Tensor]:
        """Inputs, output gradients and rows, where there are any."""
        tensors = [self.rows, *(t for use in self.uses for t in (use.grads, use.inputs))]
        return [t for t in tensors if t is not None]

    @property
    def device(self) -> torch.device:
        """Where it was computed."""
        return next((t.device for t in self.tensors), torch.device("cpu"))

    def part(self, rows: slice) -> Captured:
        """Some of the samples."""
        uses = tuple(
            replace(use, inputs=None if use.inputs is None else use.inputs[rows], grads=use.grads[rows])
            for use in self.uses
        )
        samples = len(range(self.samples)[rows])
        return replace(self, samples=samples, uses=uses, rows=None if self.rows is None else self.rows[rows])

    def moved(self, device: torch.device) -> Captured:
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
        columns = dict(zip(self.block.roots, torch.split(out, list(self.block.sizes), dim=1), strict=True))
        if self.single is not None:
            for role, followed in self.single.roles.items():
                self._write(self.single, role, columns[followed.roots[0]])
            return
        out.zero_()
        for use in self.uses:
            for role, followed in use.roles.items():
                if followed.value is None:
                    column = columns[followed.roots[0]]
                    rows = torch.empty_like(column, memory_format=torch.contiguous_format)
                    self._write(use, role, rows)
                    column += rows
                    continue
                rows = out.new_empty(len(out), followed.value.numel())
                self._write(use, role, rows)
                for root, gradient in self._taken_back(followed.value, followed.roots, rows):
                    columns[root] += gradient.reshape(len(out), -1)

    @staticmethod
    def _write(use: Use, role: str, out: Tensor) -> None:
        x = use.grads if use.inputs is None else use.inputs
        if out.is_contiguous():
            use.operation.write(role, x, use.grads, out)
            return
        rows = torch.empty_like(out, memory_format=torch.contiguous_format)
        use.operation.write(role, x, use.grads, rows)
        out.copy_(rows)

    def _taken_back(self, value: Tensor, roots: Sequence[int], rows: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Gradients by a derived value as gradients by the parameters that it was computed from."""
        leaves = [self.graph[root].to(value.device) for root in roots]
        grads = rows.to(value).view(len(rows), *value.shape)
        try:
            found = torch.autograd.grad(
                value, leaves, grads, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
        except RuntimeError:  # an operation that cannot be batched
            each = [torch.autograd.grad(value, leaves, g, retain_graph=True, allow_unused=True) for g in grads]
            found = tuple(None if one[0] is None else torch.stack(one) for one in zip(*each, strict=True))  # type: ignore[misc]
        for root, gradient in zip(roots, found, strict=True):
            if gradient is not None:
                yield root, gradient.to(rows)
