"""Gaussian designs in two blocks: one that both sets see, one that only the shifted set sees.

Training rows are ``(z1 * scale, 0)``, shifted rows ``(a z1 * scale, b z2 * hidden_scale)``, and a label is the sign of
a linear function of both blocks. The dial sigma sets `a` and `b`, so the Gram matrix of the shifted rows is always
``a^2 G1 + b^2 G2`` and a whole sweep over sigma shares one draw and one decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from projnorm_theory import ToyAsymptotics, sign_equivalents
from simulations.designs import FloatArray

_SPIKES = 10


@dataclass(frozen=True, slots=True)
class ToyDesign:
    """What is drawn, and what the dial does to it.

    Attributes:
        scale: Standard deviations of the seen block, given its dimension.
        hidden_scale: Those of the hidden block.
        weights: The two blocks' factors (a, b) as functions of sigma.
        truth: Coefficients of the label on the seen block, given its standard deviations; the hidden block has its
            last coordinate, with unit variance at sigma = 1.
        flipped: Share of labels replaced by their opposite, in both sets.
        k: Dimension of the span that the paper's bound is asked to take as shared.
    """

    scale: Callable[[int], FloatArray]
    hidden_scale: Callable[[int], FloatArray]
    weights: Callable[[FloatArray], tuple[FloatArray, FloatArray]]
    truth: Callable[[FloatArray], FloatArray]
    flipped: float = 0.0
    k: int = 0

    def asymptotics(
        self, sigma: FloatArray, *, d1: int, d2: int, n: int, m: int, outputs: str = "sign"
    ) -> ToyAsymptotics:
        """Closed forms of the experiment at these sizes, up to terms of the order of 1 / N; see `sign_equivalents`.

        The label is the sign of a linear function, of which training sees the part on the seen block. The linear model
        that comes closest to the labels is therefore another one in each set, and for each sigma.
        """
        scale, hidden_scale = self.scale(d1), self.hidden_scale(d2)
        direction = np.concatenate([self.truth(scale), np.zeros(d2 - 1), [1 / hidden_scale[-1]]])
        A = np.concatenate([scale**2, np.zeros(d2)])
        fits = []
        for a, b in zip(*self.weights(sigma), strict=True):
            B = np.concatenate([(a * scale) ** 2, (b * hidden_scale) ** 2])
            fits.append(sign_equivalents(direction, A, B, n=n, m=m, flipped=self.flipped, outputs=outputs))
        names = [field.name for field in fields(ToyAsymptotics) if field.name != "sigma"]
        return ToyAsymptotics(sigma, **{name: np.array([getattr(fit, name) for fit in fits]) for name in names})


def _flat(dim: int) -> FloatArray:
    return np.ones(dim)


def _power_law(dim: int) -> FloatArray:
    variances = np.arange(1, dim + 1) ** -1.0
    return np.sqrt(variances / variances.mean())


def _spiked(dim: int) -> FloatArray:
    return np.where(np.arange(dim) < _SPIKES, 5.0, 1.0)


def _growing(sigma: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.ones_like(sigma), sigma


def _turning(sigma: FloatArray) -> tuple[FloatArray, FloatArray]:
    length = np.sqrt(1 + sigma**2)
    return 1 / length, sigma / length


def _first(scale: FloatArray) -> FloatArray:
    truth = np.zeros_like(scale)
    truth[0] = 1 / scale[0]
    return truth


def _first_and_last(scale: FloatArray) -> FloatArray:
    truth = _first(scale)
    truth[-1] += 1 / scale[-1]
    return truth / np.sqrt(2)


DESIGNS = {
    # The paper's: both blocks isotropic.
    "gaussian": ToyDesign(_flat, _flat, _growing, _first),
    # Variances fall like 1/i in both blocks.
    "power-law": ToyDesign(_power_law, _power_law, _growing, _first, k=10),
    # Ten strong directions over a flat bulk.
    "spiked": ToyDesign(_spiked, _flat, _growing, _first_and_last, k=10),
    # The total variance is fixed, and its share in the seen block falls.
    "overlap": ToyDesign(_flat, _flat, _turning, _first),
    # The paper's with one label in ten flipped.
    "label-noise": ToyDesign(_flat, _flat, _growing, _first, flipped=0.1),
}
