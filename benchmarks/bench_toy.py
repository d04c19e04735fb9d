"""A sweep of ProjNormLinear over sigma against doing each sigma on its own.

Run: ``python -m benchmarks.bench_toy`` (under a minute on two cores). At the paper's sizes with 41 sigmas, one BLAS
thread as every task of a run has. Peers: forming the shifted inputs and solving afresh for each sigma, and keeping the
two Gram matrices with a Cholesky factorisation per sigma. All answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy import linalg
from threadpoolctl import threadpool_limits

from benchmarks.harness import interleaved_seconds, medians, write_result
from projnorm_theory import projnorm_linear
from simulations.toy import projnorm_sweep

SIGMAS = np.linspace(0.0, 5.0, 41)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small size, for a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/bench_toy.json"))
    args = parser.parse_args()
    d1, d2, m = (100, 50, 50) if args.quick else (1000, 500, 500)
    rng = np.random.default_rng(0)
    theta, seen, hidden = rng.standard_normal(d1), rng.standard_normal((m, d1)), rng.standard_normal((m, d2))
    jobs = {
        "sweep": lambda: projnorm_sweep(theta, seen, hidden, np.ones_like(SIGMAS), SIGMAS),
        "afresh": lambda: afresh(theta, seen, hidden),
        "cholesky": lambda: cholesky_each(theta, seen, hidden),
        "projnorm_linear": lambda: by_library(theta, seen, hidden),
    }
    with threadpool_limits(1):
        answers = {name: job() for name, job in jobs.items()}  # the warm-up as well
        disagreement = max(float(np.max(np.abs(a / answers["sweep"] - 1))) for a in answers.values())
        assert disagreement < 1e-8, disagreement
        seconds = interleaved_seconds(jobs, dict.fromkeys(jobs, 3 if args.quick else 15))
    median = medians(seconds)
    ratios = {name: median[name] / median["sweep"] for name in jobs if name != "sweep"}
    result = {
        "d1": d1,
        "d2": d2,
        "m": m,
        "sigmas": SIGMAS.size,
        "threads": 1,
        "seconds": median,
        "all_seconds": seconds,
        "times_faster": ratios,
        "largest_relative_disagreement": disagreement,
    }
    write_result(args.out, "python -m benchmarks.bench_toy" + (" --quick" if args.quick else ""), result)
    print(f"{SIGMAS.size} sigmas, d1 = {d1}, d2 = {d2}, m = {m}: sweep {median['sweep']:.4f} s")
    for name, ratio in ratios.items():
        print(f"  {name:16} {median[name]:.4f} s   {ratio:5.2f} x")


def afresh(theta: np.ndarray, seen: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Form the inputs and their Gram matrix at each sigma, and solve."""
    weights = np.concatenate([theta, np.zeros(hidden.shape[1])])
    values = []
    for sigma in SIGMAS:
        X_ood = np.hstack([seen, sigma * hidden])
        outputs = X_ood @ weights
        factor = linalg.cho_factor(X_ood @ X_ood.T, lower=True, check_finite=False)
        values.append(weights @ weights - outputs @ linalg.cho_solve(factor, outputs, check_finite=False))
    return np.sqrt(values)


def cholesky_each(theta: np.ndarray, seen: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Keep both Gram matrices and factor their combination at each sigma."""
    G1, G2, outputs = seen @ seen.T, hidden @ hidden.T, seen @ theta
    values = []
    for sigma in SIGMAS:
        factor = linalg.cho_factor(G1 + sigma**2 * G2, lower=True, check_finite=False)
        values.append(theta @ theta - outputs @ linalg.cho_solve(factor, outputs, check_finite=False))
    return np.sqrt(values)


def by_library(theta: np.ndarray, seen: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """Our own `projnorm_linear` at each sigma."""
    weights = np.concatenate([theta, np.zeros(hidden.shape[1])])
    return np.array([projnorm_linear(weights, np.hstack([seen, sigma * hidden])).value for sigma in SIGMAS])


if __name__ == "__main__":
    main()
