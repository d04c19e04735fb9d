r"""Every layer's share of the kernel of a few samples, compared with plain autograd in the same batch.

With weights :math:`w` drawn from a normal law, the share :math:`K_\ell` of every layer must satisfy

.. math:: w^\top K_\ell\, w = \Bigl\|\nabla_\ell \sum_i w_i f(x_i)\Bigr\|^2

whose right side takes one backward pass for all layers together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ntk.features.contraction import Workspace
from ntk.features.feature_maps import ExactMap
from ntk.trace.group_gradients import GroupGradients
from ntk.trace.inputs import Scalar, Values
from ntk.trace.parameter_groups import AUTOGRAD, ParameterGroup
from ntk.trace.plain_autograd import squared_gradient_norms
from ntk.trace.traced_network import TracedNetwork
from ntk.trace.uses import TraceMismatchError
from projnorm.core.errors import InputError

# A check may differ from autograd by this many roundings of its scale, but by no more than the second number.
_CHECK_ROUNDINGS, _CHECK_MOST = 2000.0, 0.1
# The same sample in another batch: its output, against the largest or 1, and its kernel. An activation within a
# rounding of zero may fall on the other side of a ReLU, which changes a kernel by about a thousandth, but hardly ever
# in double precision.
_ALONE, _OTHER_BATCH, _OTHER_BATCH_DOUBLE = 1e-3, 1e-2, 1e-6


class SelfCheckError(InputError):
    """The engine and plain autograd disagree on this network."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerCheck:
    """Result of the comparison with plain autograd.

    Attributes:
        errors: Difference from plain autograd of each group of parameters, against its scale.
        kernel: Kernel of the samples over all layers.
    """

    errors: dict[ParameterGroup, float]
    kernel: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class CheckedNetwork:
    """A network whose rules were compared with plain autograd.

    Attributes:
        network: The network, followed in a way that passed.
        captured: What the batch left of each group of parameters.
        check: The comparison; None where there was none.
        seconds: Time that the forward and backward pass took.
    """

    network: TracedNetwork
    captured: list[GroupGradients]
    check: LayerCheck | None
    seconds: float


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How rules are compared with plain autograd, and what differences are rounding.

    Attributes:
        route: Route of the rules.
        dtype: Type of the products.
        output_dtype: Type of the network's outputs.
        seed: Seed of the weights of the samples.
    """

    route: str
    dtype: torch.dtype
    output_dtype: torch.dtype
    seed: int

    def checked(self, network: TracedNetwork, values: Values, scalar: Scalar) -> CheckedNetwork:
        """The network with a batch captured, followed in another way where a layer differs from plain autograd.

        Raises:
            SelfCheckError: If no way agrees.
        """
        if not network.batch_dependence <= max(_ALONE, self._tolerance):
            raise SelfCheckError(
                f"the network's output on a sample changes by {network.batch_dependence:.2g} with the batch it is in; "
                "samples must be independent of each other."
            )
        while True:
            unchecked = captured_network(network, values, scalar)
            network = unchecked.network
            check = self.compare(network, unchecked.captured, values, scalar)
            wrong = [group for group, error in check.errors.items() if not error <= self._allowed(group)]
            if not wrong:
                return CheckedNetwork(network, unchecked.captured, check, unchecked.seconds)
            fallback = network.with_fallback(wrong)
            if fallback is None:
                raise SelfCheckError(
                    f"the kernel of layer {wrong[0].name!r} differs from plain autograd by "
                    f"{check.errors[wrong[0]]:.2g} of its scale; its samples may not be independent of each other, or "
                    "its forward pass not repeatable."
                )
            network = fallback

    def compare(
        self, network: TracedNetwork, captured: Sequence[GroupGradients], values: Values, scalar: Scalar
    ) -> LayerCheck:
        """Every group's share of the kernel of a batch, against plain autograd.

        Args:
            network: The network.
            captured: What the batch left of each group of parameters.
            values: The batch.
            scalar: Makes one number per sample of the outputs.
        """
        count = captured[0].samples
        weights = torch.from_numpy(np.random.default_rng(self.seed).normal(size=count))
        squares = squared_gradient_norms(network.model, network.named, values, scalar, weights)
        exact = ExactMap(captured, route=self.route)
        factors = tuple(
            torch.empty((count, *shape), dtype=kept or self.dtype, device=captured[0].device)
            for shape, kept in zip(exact.shapes, exact.dtypes, strict=True)
        )
        exact.write(captured, factors)
        errors = {}
        total = torch.zeros(count, count, dtype=torch.float64)
        for layer, gram in zip(captured, exact.by_group(factors, None, Workspace(count)), strict=True):
            expected = sum(squares[index] for index in layer.group.parameters)
            quadratic, scale = 0.0, expected
            if gram is not None:
                upper = gram.double().cpu().triu()
                kernel = upper + upper.triu(1).T
                total += kernel
                quadratic = float(weights @ kernel @ weights)
                scale = max(scale, float(weights.abs() @ kernel.diagonal().clamp(min=0.0).sqrt()) ** 2)
            # Without a gradient nothing shows which rows of a batch are a sample's.
            unseen = math.inf if network.folded(layer.group) else 0.0
            errors[layer.group] = abs(quadratic - expected) / scale if scale else unseen
        return LayerCheck(errors, total.numpy())

    def require_same(self, kernel: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> None:
        """Raise `SelfCheckError` if samples in other batches have another kernel, beyond what rounding can do."""
        if not (np.abs(kernel - expected) <= self._other_batch * scale).all():
            raise SelfCheckError(
                "the kernel of some samples changes with the batch that they are in; samples must be independent of "
                "each other, and the forward pass repeatable. Tiles of an earlier run may also be of another network."
            )

    def _allowed(self, group: ParameterGroup) -> float:
        return self._other_batch if group.route == AUTOGRAD else self._tolerance

    @property
    def _tolerance(self) -> float:
        return min(_CHECK_ROUNDINGS * torch.finfo(self.output_dtype).eps, _CHECK_MOST)

    @property
    def _other_batch(self) -> float:
        usual = _OTHER_BATCH_DOUBLE if self.output_dtype == torch.float64 else _OTHER_BATCH
        return max(usual, self._tolerance)


def captured_network(network: TracedNetwork, values: Values, scalar: Scalar) -> CheckedNetwork:
    """The network with a batch captured, unchecked; by plain autograd where its pass depends on the samples."""
    while True:
        started = time.perf_counter()
        try:
            captured = network.capture(values, scalar)
        except TraceMismatchError as error:
            network = network.by_autograd(error.parameters)
            continue
        return CheckedNetwork(network, captured, None, time.perf_counter() - started)
