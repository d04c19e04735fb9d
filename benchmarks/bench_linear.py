"""ProjNormLinear from raw arrays against what people would write with scipy and numpy.

Run: ``python -m benchmarks.bench_linear`` (about ten minutes on two cores; ``--quick`` for a small size in seconds).
Peers: `scipy.linalg.lstsq` with each driver and `numpy.linalg.pinv`, each used twice, and as a floor the two bare
products ``X @ X.T`` and ``X_ood @ X_ood.T``. The joint interval from kernels is measured against the two Cholesky
factorisations that its formula asks for, of `K` and of the stacked Gram matrix. Every answer is compared before
anything is timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, lstsq

from benchmarks.harness import interleaved_seconds, medians, write_result
from projnorm_theory import joint_interval_from_gram, min_norm_solution, projnorm_linear

SIZES = ((1000, 20000), (2000, 10000))
QUICK_SIZES = ((100, 2000),)
KERNEL_SIZES, QUICK_KERNEL_SIZES = (1000, 2000, 4000), (200,)
DRIVERS = ("gelsd", "gelsy", "gelss")


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small size, for a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/bench_linear.json"))
    parser.add_argument("--measure-memory", type=int, nargs=2, metavar=("N", "D"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure_memory:
        print(json.dumps(peak_memory(*args.measure_memory)))
        return
    rows = [measure(n, d) for n, d in (QUICK_SIZES if args.quick else SIZES)]
    command = "python -m benchmarks.bench_linear" + (" --quick" if args.quick else "")
    sizes = QUICK_KERNEL_SIZES if args.quick else KERNEL_SIZES
    kernels = [measure_joint(n, decay) for n in sizes for decay in (0.0, 1.0)]
    write_result(args.out, command, {"sizes": rows, "joint_interval": kernels})
    for row in kernels:
        ratio, seconds = row["over_cholesky"], row["seconds"]["joint"]
        print(f"joint interval, n = m = {row['n']}, decay {row['decay']}: {seconds:.3f} s, {ratio:.2f} x two Cholesky")
    for row in rows:
        print(f"\nn = m = {row['n']}, d = {row['d']}: projnorm {row['seconds']['projnorm']:.3f} s")
        for peer, ratio in row["times_faster"].items():
            print(f"  {peer:12} {row['seconds'][peer]:8.3f} s   {ratio:6.2f} x")
        peak, ratio = row["memory"]["peak_bytes"] / 1e6, row["memory"]["over_inputs_and_grams"]
        print(f"  peak memory {peak:.0f} MB = {ratio:.2f} x (inputs + Grams)")


def measure(n: int, d: int) -> dict[str, Any]:
    """Times, ratios, agreement and memory at ``n = m``."""
    X, Y, X_ood = draw(n, d)
    jobs: dict[str, Callable[[], Any]] = {
        "projnorm": lambda: ours(X, Y, X_ood),
        "products": lambda: (X @ X.T, X_ood @ X_ood.T),
        "pinv": lambda: by_pinv(X, Y, X_ood),
    }
    for driver in DRIVERS:
        jobs[driver] = lambda driver=driver: by_lstsq(X, Y, X_ood, driver)
    answers = {name: job() for name, job in jobs.items()}  # the warm-up as well
    del answers["products"]
    disagreement = max(abs(answer / answers["projnorm"] - 1) for answer in answers.values())
    assert disagreement < 1e-10, answers
    repeats = {name: 15 if name in ("projnorm", "products") else 3 for name in jobs}
    seconds = interleaved_seconds(jobs, repeats)
    median = medians(seconds)
    memory = subprocess.run(  # our own script in a fresh process, whose peak is its own
        [sys.executable, "-m", "benchmarks.bench_linear", "--measure-memory", str(n), str(d)],
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        "n": n,
        "d": d,
        "seconds": median,
        "all_seconds": seconds,
        "times_faster": {name: median[name] / median["projnorm"] for name in jobs if name != "projnorm"},
        "largest_relative_disagreement": disagreement,
        "memory": json.loads(memory.stdout),
    }


def measure_joint(n: int, decay: float) -> dict[str, Any]:
    """The joint interval from kernels of ``n = m`` examples, against factorising `K` and the stacked Gram matrix."""
    rng = np.random.default_rng(0)
    scales = np.arange(1, 4 * n + 1) ** (-decay / 2)
    X, X_ood = (rng.standard_normal((n, 4 * n)) * scales for _ in "ab")
    Y = rng.standard_normal((n, 10))
    K, C, K_ood = X @ X.T, X_ood @ X.T, X_ood @ X_ood.T
    stacked = np.block([[K, C.T], [C, K_ood]])
    del X, X_ood
    jobs: dict[str, Callable[[], Any]] = {
        "joint": lambda: joint_interval_from_gram(K, Y, C, K_ood, eta=1.5),
        "cholesky": lambda: (cho_factor(K, check_finite=False), cho_factor(stacked, check_finite=False)),
    }
    interval = {name: job() for name, job in jobs.items()}["joint"]  # the warm-up as well
    eigenvalues = np.linalg.eigvalsh(K_ood - C @ np.linalg.solve(K, C.T))
    disagreement = max(abs(interval.smallest / eigenvalues[0] - 1), abs(interval.largest / eigenvalues[-1] - 1))
    assert disagreement < 1e-3, disagreement
    seconds = interleaved_seconds(jobs, {"joint": 7, "cholesky": 7})
    median = medians(seconds)
    return {
        "n": n,
        "decay": decay,
        "seconds": median,
        "all_seconds": seconds,
        "over_cholesky": median["joint"] / median["cholesky"],
        "largest_relative_disagreement": disagreement,
    }


def draw(n: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian inputs and responses."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, d)), rng.standard_normal(n), rng.standard_normal((n, d))


def ours(X: np.ndarray, Y: np.ndarray, X_ood: np.ndarray) -> float:
    """This package."""
    return projnorm_linear(min_norm_solution(X, Y).theta, X_ood).value


def by_lstsq(X: np.ndarray, Y: np.ndarray, X_ood: np.ndarray, driver: str) -> float:
    """The definition with `scipy.linalg.lstsq`, once for the solution and once for the pseudo-label problem."""
    theta = lstsq(X, Y, lapack_driver=driver, check_finite=False)[0]
    projected = lstsq(X_ood, X_ood @ theta, lapack_driver=driver, check_finite=False)[0]
    return float(np.linalg.norm(theta - projected))


def by_pinv(X: np.ndarray, Y: np.ndarray, X_ood: np.ndarray) -> float:
    """The definition with `numpy.linalg.pinv` applied to vectors, no d x d matrix formed."""
    theta = np.linalg.pinv(X) @ Y
    return float(np.linalg.norm(theta - np.linalg.pinv(X_ood) @ (X_ood @ theta)))


def peak_memory(n: int, d: int) -> dict[str, float]:
    """Growth of the resident set of this fresh process from before the inputs exist to its peak."""
    ours(*draw(10, 20))
    before = peak_resident_bytes()
    X, Y, X_ood = draw(n, d)
    ours(X, Y, X_ood)
    peak = peak_resident_bytes() - before
    inputs, grams = X.nbytes + Y.nbytes + X_ood.nbytes, 2 * n * n * 8
    return {
        "peak_bytes": peak,
        "input_bytes": inputs,
        "gram_bytes": grams,
        "over_inputs_and_grams": peak / (inputs + grams),
        "limit_bytes": 1.5 * inputs + grams,
    }


def peak_resident_bytes() -> int:
    """High-water mark of this process alone; `ru_maxrss` would inherit the parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
