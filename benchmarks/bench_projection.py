"""A random projection of gradients: the engine against what a user would write, on the same networks and samples.

Run: python benchmarks/bench_projection.py [--out results/bench_projection.json]. The peers form the gradient of every
sample, with `torch.func` in the best of several chunks or in a loop of `autograd.grad`, and add its coordinates with
random signs to as many sums. Before anything is timed, every way is compared with the exact kernel: a projection is
right on average only, so the error of each is reported beside its time. The engine runs with its self-check.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import interleaved_seconds, medians, write_result
from kernel_networks import BERT, Case, make_case
from kernel_peers import gradients_by_autograd, gradients_by_func
from torch import Tensor

from ntk import KernelConfig, features, gram
from projnorm.vision import resnet18

WIDTH, REPEATS, CHUNKS = 20_000, 5, (2, 8, 16)
# Sizes of images, and numbers of samples.
IMAGES = {32: 64, 96: 32, 224: 16}
ENGINE, FUNC, LOOP = "engine", "torch.func", "gradient loop"


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/bench_projection.json"))
    args = parser.parse_args()
    torch.manual_seed(0)
    network = resnet18(1).eval()
    rows = [measured(f"resnet18 at {size} px", network, torch.randn(n, 3, size, size)) for size, n in IMAGES.items()]
    case: Case = make_case(BERT)
    rows.append(measured("minilm-bert", case.network, case.draw(32)))
    print(json.dumps(rows, indent=1))
    result = {"threads": torch.get_num_threads(), "width": WIDTH, "rows": rows}
    write_result(args.out, "python benchmarks/bench_projection.py", result)


def measured(name: str, network: torch.nn.Module, x: Any) -> dict[str, Any]:
    """Error and seconds of every way on one network."""
    exact = gram(network, x, config=KernelConfig(device="cpu", outputs="0")).train
    jobs: dict[str, Callable[[], np.ndarray]] = {
        ENGINE: lambda: engine(network, x),
        LOOP: lambda: projected(gradients_by_autograd(network, x)),
    }
    for chunk in CHUNKS:
        jobs[f"{FUNC}, chunks of {chunk}"] = lambda chunk=chunk: projected(gradients_by_func(network, x, chunk=chunk))
    errors = {}
    for way, job in jobs.items():
        rows = job()
        errors[way] = float(np.linalg.norm(rows @ rows.T - exact) / np.linalg.norm(exact))
    median = medians(interleaved_seconds(jobs, dict.fromkeys(jobs, REPEATS)))
    best = min((way for way in median if way.startswith(FUNC)), key=median.__getitem__)
    shown = {ENGINE: ENGINE, FUNC: best, LOOP: LOOP}
    return {
        "network": name,
        "n": len(exact),
        "median_seconds": {way: median[key] for way, key in shown.items()},
        "times_engine": {way: median[key] / median[ENGINE] for way, key in shown.items() if way != ENGINE},
        "kernel_error": {way: errors[key] for way, key in shown.items()},
        "chunk": best,
    }


def engine(network: torch.nn.Module, x: Any) -> np.ndarray:
    """The features as users compute them."""
    return features(network, x, config=KernelConfig(kind="projection", count=WIDTH, device="cpu", outputs="0")).values


def projected(gradients: Tensor) -> np.ndarray:
    """Signed sums of the coordinates of formed gradients, drawn anew as the engine does."""
    rng, size = np.random.default_rng(0), gradients.shape[1]
    buckets = torch.from_numpy(rng.integers(WIDTH, size=size))
    signs = torch.from_numpy(rng.integers(2, size=size, dtype=np.int8) * 2 - 1)
    return torch.zeros(len(gradients), WIDTH).index_add_(1, buckets, gradients.mul_(signs)).numpy()


if __name__ == "__main__":
    main()
