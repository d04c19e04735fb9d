r"""Gradient features themselves: the paper's random coordinates, a random projection, or whole layers.

Of a network with outputs :math:`f_1, \ldots, f_c` the features of a sample are

.. math:: \phi(x) = \tfrac{1}{\sqrt c}\,\bigl(\nabla f_1(x)_S, \ldots, \nabla f_c(x)_S\bigr)

for the coordinates `S` that are kept, so that inner products of features are the mean kernel over the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from ntk.features.engine import Engine, as_networks
from ntk.kernel_config import COORDINATES, DEFAULT_COUNT, EXACT, KernelConfig
from ntk.trace.inputs import Inputs, Prepare, Samples
from ntk.trace.requirements import used_parameters
from projnorm.core.atomic import unfinished
from projnorm.core.device import full_precision
from projnorm.core.progress import tracked


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Gradient features, and how they were computed.

    Attributes:
        values: Features, one row per sample; a memory map where they were streamed to a file.
        parameters: Number of parameters, which are the coordinates of the full gradient.
        names: Names of the parameters in the order of the coordinates.
        fingerprint: Hash of the indices or of the projection drawn; empty when nothing was.
        check_error: Largest difference from plain autograd, against its scale.
        config: Settings of the features; its count is the one used.

    Example:
        >>> import torch
        >>> from ntk import KernelConfig, gradient_features
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)).eval()
        >>> features = gradient_features(model, torch.ones(4, 2), config=KernelConfig(kind="exact", device="cpu"))
        >>> features.values.shape, features.parameters
        ((4, 13), 13)
        >>> features.names
        ('0.weight', '0.bias', '1.weight', '1.bias')
    """

    values: np.ndarray
    parameters: int
    names: tuple[str, ...]
    fingerprint: str
    check_error: float
    config: KernelConfig

    def __str__(self) -> str:
        samples, columns = self.values.shape
        return (
            f"{samples:,} samples, {columns:,} features ({self.config.kind}) of {self.parameters:,} parameters, check "
            f"error {self.check_error:.2g}"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


def gradient_features(
    model: nn.Module,
    x: Inputs,
    *,
    config: KernelConfig | None = None,
    prepare: Prepare | None = None,
    out: Path | str | None = None,
) -> Features:
    r"""Gradient features :math:`\nabla_\theta f(x)`, sampled or projected.

    Args:
        model: A network in eval mode. Of several outputs the features are side by side, over the square root of their
            number, so that their inner products are the mean kernel; `config` may ask for others.
        x: Inputs, as in `ntk.gram`.
        config: `kind` "coordinates" (the default here, 500,000 of them or all where there are fewer), "projection",
            or "exact" for every parameter of `layers`. `memory` and `panel` play no part: a batch is formed and
            written.
        prepare: Applied to every batch before the network.
        out: Stream to this ``.npy`` file instead of memory; it appears when it is whole.

    Returns:
        The features, one row per sample, in memory or in the file `out`, with the coordinates or the projection.

    Raises:
        UnsupportedNetworkError: If samples have no gradients of their own, as in training mode.
        SelfCheckError: If the check against plain autograd fails.
        InputError: If the inputs or the configuration are no good.
        OSError: If the file cannot be written.

    Example:
        >>> import torch
        >>> from ntk import KernelConfig, gradient_features
        >>> model = torch.nn.Linear(2, 1).eval()
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> gradient_features(model, x, config=KernelConfig(kind="exact", device="cpu")).values
        array([[1., 0., 1.],
               [1., 2., 1.]], dtype=float32)
        >>> gradient_features(model, x, config=KernelConfig(kind="coordinates", count=2, device="cpu")).values.shape
        (2, 2)
    """
    config = config or KernelConfig(kind=COORDINATES)
    samples, out = Samples.from_inputs(x, "x"), None if out is None else Path(out)
    used = used_parameters(as_networks(model, "model")[0], config.layers, frozen=config.frozen).used
    parameters = sum(p.numel() for p in used.values())
    if config.kind == COORDINATES and config.count == DEFAULT_COUNT:
        config = replace(config, count=min(DEFAULT_COUNT, parameters))
    drawn = replace(config, kind=COORDINATES, count=parameters) if config.kind == EXACT else config
    with full_precision():
        engine = Engine(model, samples, drawn, prepare=prepare)
        if engine.rows_per_sample > 1:
            samples = samples.for_every_output(engine.rows_per_sample)
        widths = [shape[0] for shape in engine.map.shapes]
        shape = (len(samples), engine.views * sum(widths))
        with _destination(out, shape, str(engine.dtype).removeprefix("torch.")) as values:
            panel = engine.empty_panel(min(engine.batch, len(samples)))
            batches = range(0, len(samples), engine.batch)
            for start in tracked(batches, description="features", total=len(batches)):
                filled = engine.fill(panel, samples[start : start + engine.batch], batch=engine.batch)
                column = 0
                for part in (part for factors in filled for part in factors):
                    scaled = part.cpu().numpy() / np.asarray(math.sqrt(engine.views), values.dtype)
                    values[start : start + len(part), column : column + part.shape[1]] = scaled
                    column += part.shape[1]
    stored = values if out is None else np.load(out, mmap_mode="r")
    fingerprint = "" if config.kind == EXACT else engine.map.fingerprint
    return Features(stored, engine.parameters, engine.names, fingerprint, engine.check_error, config)


@contextmanager
def _destination(out: Path | None, shape: tuple[int, int], dtype: str) -> Iterator[np.ndarray]:
    if out is None:
        yield np.empty(shape, dtype)
        return
    with unfinished(out) as part:
        values = np.lib.format.open_memmap(part, mode="w+", dtype=np.dtype(dtype), shape=shape)
        yield values
        values.flush()
