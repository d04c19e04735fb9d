"""What features of a network are to a kernel: what is kept of a batch, and how two batches give a block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk.features.contraction import Factors, Workspace, upper_product
from ntk.trace.captured import Captured
from ntk.trace.uses import Use

# Entries of a gradient formed only to be picked from or projected, at once.
FORMED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One line of a plan.

    Attributes:
        name: Name of the layer.
        parameters: Number of its parameters.
        route: Route by which its share of the kernel is computed.
        multiply_adds: Number of multiply-adds for a pair of samples.
        kept: Number of values kept for a sample.
        formed: Number of values that a product needs for a sample besides those.
        forward: Number of multiply-adds of a forward pass of one sample; a backward pass takes as many again.
        forming: Number of multiply-adds that make of a captured sample what is kept, or multiplied.
    """

    name: str
    parameters: int
    route: str
    multiply_adds: int
    kept: int
    formed: int = 0
    forward: int = 0
    forming: int = 0


class FeatureMap(ABC):
    """What is kept of a batch, and how two batches give a block of the kernel.

    Attributes:
        shapes: Shape per sample of each tensor that is kept.
        dtypes: Type of each; None for that of the products.
        costs: Route and cost of each layer.
        fingerprint: Hash of everything drawn at random; empty where nothing is.
        fixed_bytes: Number of bytes of what was drawn.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype | None, ...]
    costs: tuple[LayerCost, ...]
    fingerprint: str = ""
    fixed_bytes: int = 0

    @abstractmethod
    def write(self, captured: Sequence[Captured], out: Factors) -> None:
        """Put what is kept of a batch into `out`, one sample per row."""

    def grams(self, a: Factors, b: Factors | None, workspace: Workspace) -> Iterator[Tensor]:  # noqa: ARG002
        """Blocks whose sum is the kernel, for the caller to add in double precision; without `b`, upper triangles.

        What is kept are the features themselves, rows of numbers, unless a subclass says otherwise.
        """
        for i, rows in enumerate(a):
            yield upper_product(rows) if b is None else rows @ b[i].T


def forward_multiply_adds(layer: Captured) -> int:
    """Every weight of a linear layer or a convolution at every position; other layers are not counted."""
    return sum(
        size * use.operation.positions(use.grads)
        for use in layer.uses
        for role, size in role_sizes(layer, use).items()
        if role == "weight"
    )


def role_sizes(layer: Captured, use: Use) -> dict[str, int]:
    """Number of entries of what has each role in a use."""
    sizes = dict(zip(layer.block.roots, layer.block.sizes, strict=True))
    return {role: sizes[one.roots[0]] if one.value is None else one.value.numel() for role, one in use.roles.items()}


def formed_rows(layer: Captured, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """A few samples at a time: the rows they will fill, and their whole gradients in a buffer used again and again."""
    size = layer.block.parameters
    at_once = min(max(1, FORMED_AT_ONCE // size), len(rows))
    buffer = rows.new_empty(at_once, size)
    for start in range(0, len(rows), at_once):
        part = slice(start, start + at_once)
        formed = buffer[: len(rows[part])]
        layer.part(part).write_rows(formed)
        yield rows[part], formed
