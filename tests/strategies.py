"""Hypothesis strategies that draw shapes and spectra and build the matrices from them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from simulations.designs import Design, haar, spectral_design

EPS = float(np.finfo(np.float64).eps)

generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def spectra(draw, size: int, decades: float = 3.0) -> np.ndarray:
    """Descending singular values over at most `decades` decades, at any scale."""
    exponents = draw(st.lists(st.floats(0.0, decades), min_size=size, max_size=size))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    return scale * 10.0 ** -np.sort(np.array(exponents))


@st.composite
def matrices(
    draw, rows=st.integers(1, 8), columns=st.integers(1, 16), *, decades: float = 3.0, full_rank: bool = False
) -> np.ndarray:
    """A matrix with a drawn spectrum; rank deficient, tall and one-row ones included unless full row rank is asked."""
    n = draw(rows)
    d = max(draw(columns), n) if full_rank else draw(columns)
    rank = n if full_rank else draw(st.integers(1, min(n, d)))
    rng = draw(generators)
    return (haar(rng, n, rank) * draw(spectra(rank, decades))) @ haar(rng, d, rank).T


@st.composite
def general_designs(draw, *, decades: float = 2.0) -> Design:
    """Any design: shared directions or none, rank deficient or not, few features or many, one output or several."""
    n, m, d = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, 20))
    rank, rank_ood = draw(st.integers(1, min(n, d))), draw(st.integers(1, min(m, d)))
    shared = draw(st.integers(0, min(rank, rank_ood)))
    rng = draw(generators)
    U = haar(rng, d, rank)
    shared_directions = U @ haar(rng, rank, shared)
    V, _ = np.linalg.qr(np.hstack([shared_directions, rng.standard_normal((d, rank_ood - shared))]))
    X = (haar(rng, n, rank) * draw(spectra(rank, decades))) @ U.T
    X_ood = (haar(rng, m, rank_ood) * draw(spectra(rank_ood, decades))) @ (V @ haar(rng, rank_ood, rank_ood)).T
    return Design(X, X_ood, rng.standard_normal((d, draw(st.sampled_from([1, 1, 3])))), k=0)


@st.composite
def shared_span_designs(draw, *, orthogonal_tails: bool, rho=st.just(1.0), decades: float = 3.0) -> Design:
    """Designs whose top-k spans coincide exactly, behind a clear eigengap in both spectra."""
    n, m = draw(st.integers(2, 8)), draw(st.integers(2, 8))
    k = draw(st.integers(1, min(n, m) - 1))
    angle = np.pi / 2 if orthogonal_tails else draw(st.floats(0.05, np.pi / 2))
    tops = [10.0 * np.sort(1 + np.array(draw(st.lists(st.floats(0, 1), min_size=k, max_size=k))))[::-1] for _ in "ab"]
    tails = [
        5.0 * 10.0 ** -np.sort(np.array(draw(st.lists(st.floats(0, decades), min_size=r, max_size=r))))
        for r in (n - k, m - k)
    ]
    return spectral_design(
        draw(generators),
        train_singular_values=np.concatenate([tops[0], tails[0]]),
        ood_singular_values=np.concatenate([tops[1], tails[1]]),
        dim=n + m - k + draw(st.integers(0, 10)),
        k=k,
        n_outputs=draw(st.sampled_from([1, 1, 3])),
        tail_angle=angle,
        rho=draw(rho),
    )
