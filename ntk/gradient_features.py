"""Gradient features themselves: the paper's random coordinates, a random projection, or whole layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from ntk.capture import count_parameters, parameter_layers
from ntk.config import COORDINATES, DEFAULT_COUNT, EXACT, KernelConfig
from ntk.engine import Engine, Inputs, Prepare, as_inputs, as_networks
from projnorm.atomic import unfinished
from projnorm.device import full_precision
from projnorm.progress import tracked


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Gradient features, and how they were computed.

    Attributes:
        values: Features, one row per sample; a memory map where they were streamed to a file.
        parameters: Number of parameters, which are the coordinates of the full gradient.
        fingerprint: Hash of the indices or of the projection drawn; empty when nothing was.
        check_error: Largest difference from plain autograd in the rows checked, against their norm.
        config: Settings of the features; its count is the one used.
    """

    values: np.ndarray
    parameters: int
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


def features(
    model: nn.Module,
    x: Inputs,
    *,
    config: KernelConfig | None = None,
    prepare: Prepare | None = None,
    out: Path | str | None = None,
) -> Features:
    r"""Gradient features :math:`\nabla_\theta f(x)`, sampled or projected.

    Args:
        model: A network with one output per sample, in eval mode.
        x: Inputs, one sample per row.
        config: `kind` "coordinates" (the default here, 500,000 of them or all where there are fewer), "projection",
            or "exact" for every parameter of `layers`. `memory` and `panel` play no part: a batch is formed and
            written.
        prepare: Applied to every batch before the network.
        out: Stream to this ``.npy`` file instead of memory; it appears when it is whole.

    Raises:
        UnsupportedNetworkError: If a layer has no exact rule.
        SelfCheckError: If the spot check against plain autograd fails.
        InputError: If the inputs or the configuration are no good.
        OSError: If the file cannot be written.
    """
    config = config or KernelConfig(kind=COORDINATES)
    x, out = as_inputs(x, "x"), None if out is None else Path(out)
    parameters = count_parameters(*parameter_layers(as_networks(model, "model")[0], config.layers).values())
    if config.kind == COORDINATES and config.count == DEFAULT_COUNT:
        config = replace(config, count=min(DEFAULT_COUNT, parameters))
    drawn = replace(config, kind=COORDINATES, count=parameters) if config.kind == EXACT else config
    with full_precision():
        engine = Engine(model, x, drawn, prepare=prepare)
        widths = [shape[0] for shape in engine.maps[0].shapes]
        shape = (len(x), sum(widths))
        with _destination(out, shape, str(engine.dtype).removeprefix("torch.")) as values:
            panel = engine.empty_panel(min(config.batch, len(x)))
            batches = range(0, len(x), config.batch)
            for start in tracked(batches, description="features", total=len(batches)):
                filled = engine.fill(panel, x[start : start + config.batch], batch=config.batch)[0]
                column = 0
                for part, width in zip(filled, widths, strict=True):
                    values[start : start + len(part), column : column + width] = part.cpu().numpy()
                    column += width
            check_error = engine.largest_error(_spot_checks(engine, x, values))
    stored = values if out is None else np.load(out, mmap_mode="r")
    fingerprint = "" if config.kind == EXACT else engine.maps[0].fingerprint
    return Features(stored, engine.parameters, fingerprint, check_error, config)


def _spot_checks(engine: Engine, x: Tensor, values: np.ndarray) -> Iterator[tuple[float, float]]:
    """Errors of a few rows against plain autograd, with their scales."""
    rng = np.random.default_rng(engine.config.seed)
    for index in rng.choice(len(x), size=min(engine.config.checks, len(x)), replace=False).tolist():
        expected = engine.plain_features(x, index, batch=engine.config.batch).numpy()
        yield float(np.linalg.norm(values[index] - expected)), float(np.linalg.norm(expected))


@contextmanager
def _destination(out: Path | None, shape: tuple[int, int], dtype: str) -> Iterator[np.ndarray]:
    if out is None:
        yield np.empty(shape, dtype)
        return
    with unfinished(out) as part:
        values = np.lib.format.open_memmap(part, mode="w+", dtype=np.dtype(dtype), shape=shape)
        yield values
        values.flush()
