"""Every layer's share of the kernel of a few samples, compared with plain autograd in the same batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ntk.features.contraction import Workspace
from ntk.features.kinds import ExactMap
from ntk.trace.capture import Network, Scalar
from ntk.trace.captured import Block, Captured
from ntk.trace.inputs import Values


@dataclass(frozen=True, slots=True, eq=False)
class LayerCheck:
    """What the comparison found.

    Attributes:
        errors: Difference from plain autograd of each layer, against its scale.
        kernel: Kernel of the samples over all layers.
    """

    errors: dict[Block, float]
    kernel: np.ndarray


def check_layers(
    network: Network,
    captured: Sequence[Captured],
    values: Values,
    scalar: Scalar,
    *,
    route: str,
    dtype: torch.dtype,
    seed: int,
) -> LayerCheck:
    r"""Compare :math:`w^\top K_\ell w` of every layer with :math:`\|\sum_i w_i \nabla_\ell f(x_i)\|^2` by autograd.

    Args:
        network: The network.
        captured: What a batch left of each block.
        values: The batch.
        scalar: Makes one number per sample of the outputs.
        route: Route of the rules.
        dtype: Type of the products.
        seed: Seed of the weights `w`, drawn from a normal law.
    """
    count = captured[0].samples
    weights = torch.from_numpy(np.random.default_rng(seed).normal(size=count))
    squares = dict.fromkeys(range(len(network.parameters)), 0.0)

    def take(root: int, gradient: Tensor) -> None:
        wide = torch.promote_types(gradient.dtype, torch.float32)
        squares[root] = float(torch.linalg.vector_norm(gradient, dtype=wide)) ** 2

    network.plain_gradient(values, scalar, weights, take)
    exact = ExactMap(captured, route=route)
    factors = tuple(
        torch.empty((count, *shape), dtype=kept or dtype, device=captured[0].device)
        for shape, kept in zip(exact.shapes, exact.dtypes, strict=True)
    )
    exact.write(captured, factors)
    errors = {}
    total = torch.zeros(count, count, dtype=torch.float64)
    for layer, gram in zip(captured, exact.by_block(factors, None, Workspace(count)), strict=True):
        expected = sum(squares[root] for root in layer.block.roots)
        found, scale = 0.0, expected
        if gram is not None:
            upper = gram.double().cpu().triu()
            kernel = upper + upper.triu(1).T
            total += kernel
            found = float(weights @ kernel @ weights)
            scale = max(scale, float(weights.abs() @ kernel.diagonal().clamp(min=0.0).sqrt()) ** 2)
        # Without a gradient nothing shows which rows of a batch are a sample's.
        unseen = math.inf if network.folded(layer.block) else 0.0
        errors[layer.block] = abs(found - expected) / scale if scale else unseen
    return LayerCheck(errors, total.numpy())
