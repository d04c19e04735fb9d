"""The blocks of a kernel, put together from its tiles, and how they were computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ntk.kernel_config import KernelConfig
from ntk.tiles.plan import TRAIN, Plan
from ntk.tiles.sets import ONLY_TARGET
from ntk.tiles.tile_runs import tile_name
from ntk.tiles.tiles import Tiles
from projnorm.core.errors import InputError

# Targets that are printed by name.
_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Kernels:
    """The blocks of a kernel, and how they were computed, as `gram` returns them.

    Attributes:
        config: Settings of the kernel.
        plan: Panels, tiles, routes and cost.
        parameters: Number of parameters, which are the coordinates of the full gradient.
        device: Device that computed it.
        threads: Number of threads of torch.
        fingerprints: Hashes of networks, inputs and what was drawn, where the tiles are stored in a folder.
        left_out: Names of parameters that are not used: frozen, or outside the layers that were chosen.
        by_autograd: Names of parameters that no rule covers, each with the call that it ends up in; their gradients are
            computed sample by sample.
        check_error: Largest difference from plain autograd in a layer's share, against its scale.
        computed: Number of tiles computed in this run.
        damaged: Names of tiles that were found damaged and computed again.

    Example:
        >>> import torch
        >>> from ntk import KernelConfig, gram
        >>> x = torch.eye(3)
        >>> kernels = gram(torch.nn.Linear(3, 2).eval(), x, x[:1], config=KernelConfig(device="cpu"))
        >>> kernels.targets, kernels.parameters, kernels.plan.passes
        (('target',), 8, 4)
        >>> kernels.train  # the mean over both outputs
        array([[2., 1., 1.],
               [1., 2., 1.],
               [1., 1., 2.]])
    """

    config: KernelConfig
    plan: Plan
    parameters: int
    device: str
    threads: int
    fingerprints: Mapping[str, str]
    left_out: tuple[str, ...]
    by_autograd: Mapping[str, str]
    check_error: float
    computed: int
    damaged: tuple[str, ...]
    _tiles: Tiles

    @property
    def train(self) -> np.ndarray:
        """``k_train``, shape ``(n, n)``."""
        return self._block(TRAIN, TRAIN)

    def ood_train(self, target: str = ONLY_TARGET) -> np.ndarray:
        """``k_ood_train`` of a target, shape ``(m, n)``, one row per sample of the target."""
        return self._block(target, TRAIN)

    def ood(self, target: str = ONLY_TARGET) -> np.ndarray:
        """``k_ood`` of a target, shape ``(m, m)``."""
        return self._block(target, target)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the sets besides the training set."""
        return tuple(name for name in self.plan.sets if name != TRAIN)

    def to_dict(self) -> dict[str, Any]:
        """What they are of and how they were computed as plain values, without the blocks."""
        plain = ("parameters", "device", "threads", "check_error", "computed")
        return {
            "train": self.plan.sets[TRAIN],
            "targets": {name: self.plan.sets[name] for name in self.targets},
            **{name: getattr(self, name) for name in plain},
            "damaged": list(self.damaged),
            "left_out": list(self.left_out),
            "by_autograd": dict(self.by_autograd),
            "overflow": self.plan.overflow,
            "fingerprints": dict(self.fingerprints),
            "config": self.config.to_json(),
        }

    def __str__(self) -> str:
        sizes = [f"{name} {self.plan.sets[name]:,}" for name in self.targets]
        named = ", ".join(sizes[:_NAMED]) + (", ..." if len(sizes) > _NAMED else "")
        targets = f"{len(sizes)} target{'' if len(sizes) == 1 else 's'}" + (f" ({named})" if sizes else "")
        left_out = f" ({_tensors(self.left_out)} left out)" if self.left_out else ""
        autograd = f", {_tensors(self.by_autograd)} by plain autograd" if self.by_autograd else ""
        return (
            f"{self.plan.sets[TRAIN]:,} training samples, {targets}, {self.parameters:,} parameters{left_out}"
            f"{autograd}, device {self.device}, check error {self.check_error:.2g}"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def _block(self, rows: str, columns: str) -> np.ndarray:
        if rows not in self.plan.sets:
            raise InputError(f"`target` must be one of {', '.join(self.targets) or 'none'}; got {rows!r}.")
        out = np.empty((self.plan.sets[rows], self.plan.sets[columns]))
        for i, j in self.plan.tiles:
            row, column = self.plan.panels[i], self.plan.panels[j]
            if (row.set, column.set) == (rows, columns):
                tile = self._tiles.get(tile_name((i, j)))
                out[row.start : row.stop, column.start : column.stop] = tile
                if rows == columns and i != j:
                    out[column.start : column.stop, row.start : row.stop] = tile.T
        return out


def _tensors(names: Collection[str]) -> str:
    return f"{len(names)} tensor{'' if len(names) == 1 else 's'}"
