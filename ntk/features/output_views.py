r"""How the outputs of a network become one number per sample, whose gradients the kernel is made of.

Of outputs :math:`f_1, \ldots, f_c` the kernel is one of

.. math:: \frac1c\sum_k \langle\nabla f_k(x), \nabla f_k(x')\rangle, \qquad
   \langle\nabla g(x), \nabla g(x')\rangle,\; g = \sum_k w_k f_k,\; w_k \sim \mathcal N(0, 1/c), \qquad
   \langle\nabla f_k(x), \nabla f_l(x')\rangle

for "mean"; for "random", whose expectation is the mean kernel; and for "full", a row for each output of each sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ntk.kernel_config import FULL, MEAN, RANDOM_OUTPUT, KernelConfig
from ntk.trace.inputs import Samples, Scalar
from projnorm.core.errors import InputError

# A mean over more outputs than this is refused: each takes a backward pass.
_MOST_OUTPUTS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class OutputViews:
    """The outputs that a kernel is the mean over; one where it is of a single number per sample.

    Attributes:
        config: Settings of the kernel.
        outputs: Number of outputs of the network.
        dtype: Type of the outputs.
        device: Device that they are on.
    """

    config: KernelConfig
    outputs: int
    dtype: torch.dtype
    device: torch.device

    def __post_init__(self) -> None:
        chosen = self.config.outputs
        if chosen == MEAN and self.outputs > _MOST_OUTPUTS:
            raise InputError(
                f"`outputs` must not be {MEAN!r} for a network with {self.outputs:,} outputs, each of which takes a "
                f"backward pass; choose {RANDOM_OUTPUT!r}, or the number of one output."
            )
        if chosen.isdecimal() and int(chosen) >= self.outputs:
            raise InputError(
                f"`outputs` must be below {self.outputs}, the number of the network's outputs; got {chosen}."
            )

    def __len__(self) -> int:
        return self.outputs if self.config.outputs == MEAN else 1

    @property
    def rows_per_sample(self) -> int:
        """Number of rows of the kernel that a sample has."""
        return self.outputs if self.config.outputs == FULL else 1

    def scalar(self, view: int, x: Samples) -> Scalar:
        """How one view makes one number of each sample's outputs."""
        chosen = self.config.outputs
        if chosen == RANDOM_OUTPUT:
            return self.combination()
        if chosen != FULL:
            index = view if chosen == MEAN else int(chosen)
            return lambda outputs: outputs[:, index]
        rows = torch.zeros(len(x), dtype=torch.int64) if x.outputs is None else x.outputs
        rows = rows.to(self.device)
        return lambda outputs: outputs.gather(1, rows.expand(len(outputs))[:, None])[:, 0]

    def check_scalar(self, x: Samples) -> Scalar:
        """The number that a check differentiates: where the kernel is of all outputs, all of them take part."""
        several = self.outputs > 1 and self.config.outputs in (MEAN, FULL)
        return self.combination() if several else self.scalar(0, x)

    def combination(self) -> Scalar:
        """A seeded random combination of the outputs."""
        drawn = np.random.default_rng(self.config.seed).normal(0.0, 1.0 / math.sqrt(self.outputs), self.outputs)
        weights = torch.from_numpy(drawn).to(self.device, self.dtype)
        return lambda outputs: outputs @ weights
