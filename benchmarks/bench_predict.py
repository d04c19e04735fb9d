"""Time of an estimate from outputs alone, beside one exact transport problem of the same size.

The peer is the network simplex of Python Optimal Transport. The outputs are drawn: logits with Gaussian noise around
one-hot labels, noisier and in other class shares on the target, so that the tests refute "no shift" and every part is
computed. n = m = 5,000; 10 classes and 1,000.

Run: python -m benchmarks.bench_predict; writes results/bench_predict.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import ot
from threadpoolctl import threadpool_limits

from benchmarks.harness import interleaved_seconds, medians, write_result
from projnorm.estimate.estimate import estimate_errors
from projnorm.estimators.class_shares import label_shares
from projnorm.estimators.softmax import probabilities
from projnorm.estimators.transport import transport
from projnorm.outputs.outputs import Outputs

RESULTS = Path(__file__).resolve().parent.parent / "results"
SAMPLES = 5_000
ESTIMATE, TRANSPORT = "estimate_errors", "one exact transport"
# Repeats of each by number of classes.
REPEATS = {10: 7, 1_000: 3}
_ROUNDING = 1e-6


def main() -> None:
    """Check agreement, time, print, save."""
    rows = [_measured(classes) for classes in REPEATS]
    result = {"samples": SAMPLES, "rows": rows}
    write_result(RESULTS / "bench_predict.json", "python -m benchmarks.bench_predict", result)
    for row in rows:
        print(row)


def _measured(classes: int) -> dict[str, object]:
    """Median seconds with this many classes, and the ratio."""
    rng = np.random.default_rng(classes)
    source = _drawn(np.full(classes, 1.0 / classes), 1.0, rng)
    target = _drawn(rng.dirichlet(np.full(classes, 5.0)), 1.3, rng).without_labels()
    rows, shares = probabilities(target.logits), label_shares(source.known_labels, classes)
    ours, theirs = transport(rows, shares).cost, _exact(rows, shares)
    if abs(ours - theirs) > _ROUNDING:
        raise SystemExit(f"the two transports disagree: {ours} and {theirs}")
    jobs: dict[str, Callable[[], object]] = {
        ESTIMATE: lambda: estimate_errors(None, source, {"target": target}),
        TRANSPORT: lambda: _exact(rows, shares),
    }
    for job in jobs.values():
        job()
    median = medians(interleaved_seconds(jobs, dict.fromkeys(jobs, REPEATS[classes])))
    return {"classes": classes, "seconds": median, "ratio": median[ESTIMATE] / median[TRANSPORT]}


def _drawn(shares: np.ndarray, spread: float, rng: np.random.Generator) -> Outputs:
    """Labelled outputs of a classifier that is right on most samples."""
    classes = len(shares)
    labels = rng.choice(classes, size=SAMPLES, p=shares)
    height = 2.0 + np.log(classes)
    return Outputs(height * np.eye(classes)[labels] + spread * rng.standard_normal((SAMPLES, classes)), labels=labels)


def _exact(rows: np.ndarray, shares: np.ndarray) -> float:
    """COT by the network simplex of Python Optimal Transport: the cost of a class is one less its probability."""
    return float(ot.emd2(np.full(len(rows), 1.0 / len(rows)), shares, 1.0 - rows, numItermax=10**7))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
