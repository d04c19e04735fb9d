"""Eigenvalue decay and alignment on a drawn design: what the paper shows of NTK features, where the answer is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from projnorm.core.arrays import Arrays
from projnorm.core.config import Config, seed_setting, setting
from projnorm.core.errors import InputError
from projnorm.core.records import Record, RunContext, recorded
from projnorm_theory import LinearPair, alignment, fit_power_law
from projnorm_theory.spectra import span_gap
from simulations.designs import spectral_design

MEANINGS = {
    "train_eigenvalues": "eigenvalues of X^T X / n, descending, (rank,)",
    "ood_eigenvalues": "eigenvalues of X~^T X~ / m, descending, (rank,)",
    "train_fit": "power law of the training spectrum: exponent, low, high, prefactor, (4,)",
    "ood_fit": "the same for the shifted spectrum, (4,)",
    "alignment": "|<v_j, u_i>| of the leading eigenvectors, row for the shifted one, (top, top)",
    "overlap": "share of the top-j training span in the top-j shifted span, (top,)",
    "span_gap": "sine of the largest angle between the top-j spans, (top,)",
}


@dataclass(frozen=True)
class SpectraConfig(Config):
    """Sizes and structure of the design whose spectra are shown."""

    n: int = setting(200, "Number of training examples, and of shifted ones.", least=1)
    dim: int = setting(600, "Number of features.", least=1)
    k: int = setting(40, "Dimension of the shared span.", least=1)
    decay: float = setting(1.2, "Exponent of both spectra.")
    tail_angle: float = setting(75.0, "Angle between the tails, in degrees.")
    top: int = setting(80, "Number of leading eigenvectors to align.", least=1)
    seed: int = seed_setting()

    def check(self) -> None:
        """Refuse sizes that do not fit together."""
        if not self.k < self.top <= self.n:
            raise InputError(f"`k`, `top` and `n` must satisfy k < top <= n; got {self.k}, {self.top}, {self.n}.")
        if self.dim < 2 * self.n - self.k:
            raise InputError(f"`dim` must be at least 2 n - k = {2 * self.n - self.k}; got {self.dim}.")


def run_spectra_example(config: SpectraConfig | None = None, context: RunContext | None = None) -> Record:
    """The record of the example, computed where it is missing.

    Args:
        config: Sizes and structure of the design.
        context: Folder of the records and the processes; by default it runs in this process and leaves no files.

    >>> record = run_spectra_example(SpectraConfig(n=20, dim=50, k=4, top=8))
    >>> record.arrays["overlap"].round(2).tolist()[3]  # the first four eigenvectors span the same space
    1.0
    """
    config = config or SpectraConfig()
    work = partial(spectra_example, config)
    return recorded("spectra", config, context, items=[config.seed], work=work, meanings=MEANINGS)


def spectra_example(config: SpectraConfig, seed: int) -> Arrays:
    """Draw the design and measure its spectra and alignment."""
    rng = np.random.default_rng(seed)
    # Multiplicative noise keeps the spectra from being straight lines by construction; sorting keeps them descending.
    spectra = [
        np.sort(np.sqrt(config.n * np.arange(1, config.n + 1) ** -config.decay * np.exp(0.1 * noise)))[::-1]
        for noise in rng.standard_normal((2, config.n))
    ]
    design = spectral_design(
        rng,
        train_singular_values=spectra[0],
        ood_singular_values=spectra[1],
        dim=config.dim,
        k=config.k,
        tail_angle=math.radians(config.tail_angle),
    )
    pair = LinearPair.from_features(design.X, design.X_ood)
    aligned = alignment(pair, k=config.top)
    train, ood = pair.train_eigenvalues / config.n, pair.ood_eigenvalues / config.n
    fits = [fit_power_law(eigenvalues) for eigenvalues in (train, ood)]
    train_fit, ood_fit = (np.array([fit.exponent, fit.low, fit.high, fit.prefactor]) for fit in fits)
    return {
        "train_eigenvalues": train,
        "ood_eigenvalues": ood,
        "train_fit": train_fit,
        "ood_fit": ood_fit,
        "alignment": aligned.matrix,
        "overlap": aligned.overlap,
        "span_gap": np.array([span_gap(pair, j) for j in range(1, config.top + 1)]),
    }
