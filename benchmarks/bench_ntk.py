"""Exact tangent kernels of ResNet18 (one output, 32 px, float32) against the ways people compute them now.

Run: ``python benchmarks/bench_ntk.py`` (about ten minutes on two cores, 12 GB). At n = 64: `torch.func` vmap(grad) and
one product, in the best of three chunk sizes, and a loop of `autograd.grad` and one product. At n = 512: this engine
with every layer forced to form its gradients, and the paper's route, the kernel of 500,000 coordinates. Sampled
features: picking against forming every gradient and indexing. Memory: peak resident size of a process of its own
against the ceiling it was given. All answers are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import interleaved_seconds, medians, write_result
from torch import Tensor, nn

from ntk import KernelConfig, features, gram, reference_gram
from projnorm.vision import resnet18

CHUNKS = (8, 16, 64)
DIRECT_CEILING = 12e9


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a smoke test")
    parser.add_argument("--out", type=Path, default=Path("results/bench_ntk.json"))
    parser.add_argument("--memory-of", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(peak_memory(**args.memory_of)))
        return
    few, many, some = (8, 24, 8) if args.quick else (64, 512, 128)
    ceilings = [(40, 2.0)] if args.quick else [(1000, 2.0), (1000, 4.0), (2000, 4.0), (2000, 8.0)]
    # First, while this process is small: a child's peak starts at its parent's.
    memory = [in_a_process_of_its_own(n, ceiling) for n, ceiling in ceilings]
    model, x = network(), images(many)
    result = {
        "threads": torch.get_num_threads(),
        f"exact_n{few}": against_torch_func(model, x[:few]),
        f"exact_n{many}": against_forced_routes(model, x),
        f"features_n{some}": sampled_features(model, x[:some]),
        "memory": memory,
    }
    write_result(args.out, "python benchmarks/bench_ntk.py" + (" --quick" if args.quick else ""), result)
    print(json.dumps(result, indent=1))


def network() -> nn.Module:
    """ResNet18 with one output and seeded weights; the time does not depend on them."""
    torch.manual_seed(0)
    return resnet18(1).eval()


def images(count: int) -> Tensor:
    """Pictures of noise; neither does it depend on these."""
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def config(**options: Any) -> KernelConfig:
    """On the CPU, without the spot check, which would be timed too."""
    return KernelConfig(device="cpu", checks=0, **options)


def exact(model: nn.Module, x: Tensor, **options: Any) -> np.ndarray:
    """The engine."""
    return gram(model, x, config=config(**options)).train


def autograd_loop(model: nn.Module, x: Tensor) -> np.ndarray:
    """One backward pass a sample, and one product."""
    parameters = list(model.parameters())
    rows = torch.empty(len(x), sum(p.numel() for p in parameters))
    for row, sample in zip(rows, x, strict=True):
        gradients = torch.autograd.grad(model(sample[None]).sum(), parameters)
        torch.cat([g.flatten() for g in gradients], out=row)
    return (rows @ rows.T).numpy()


def sampled(model: nn.Module, x: Tensor, *, route: str = "best") -> np.ndarray:
    """The paper's 500,000 coordinates; the route "direct" forms every gradient of a layer and indexes it."""
    return features(model, x, config=config(kind="coordinates", route=route)).values


def against_torch_func(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """The engine, vmap(grad) in several chunk sizes, and the loop."""
    chunks = [chunk for chunk in CHUNKS if chunk <= len(x)]
    jobs = {
        "engine": lambda: exact(model, x),
        "autograd loop": lambda: autograd_loop(model, x),
        **{f"vmap(grad), chunks of {c}": lambda c=c: reference_gram(model, x, chunk_size=c).numpy() for c in chunks},
    }
    require_agreement(jobs)
    return ratios(jobs, {name: 9 if name == "engine" else 3 for name in jobs})


def against_forced_routes(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """The engine, the engine all direct, and the paper's 500,000 coordinates."""
    jobs = {
        "engine": lambda: exact(model, x),
        "every layer direct": lambda: exact(model, x, route="direct", memory=DIRECT_CEILING),
        "500,000 coordinates": lambda: exact(model, x, kind="coordinates"),
    }
    require_agreement({name: jobs[name] for name in ("engine", "every layer direct")})
    jobs["500,000 coordinates"]()
    return ratios(jobs, {"engine": 7, "every layer direct": 3, "500,000 coordinates": 5})


def sampled_features(model: nn.Module, x: Tensor) -> dict[str, Any]:
    """Picking coordinates against forming every gradient."""
    jobs = {"picking": lambda: sampled(model, x), "forming and indexing": lambda: sampled(model, x, route="direct")}
    require_agreement(jobs)
    return ratios(jobs, dict.fromkeys(jobs, 5))


def require_agreement(jobs: dict[str, Any]) -> None:
    """All answers within rounding of each other; the warm-up as well."""
    answers = {name: job() for name, job in jobs.items()}
    first = next(iter(answers.values()))
    for name, answer in answers.items():
        worst = np.abs(answer - first).max() / np.abs(first).max()
        assert worst < 1e-4, f"{name} differs by {worst:.2g}"


def ratios(jobs: dict[str, Any], repeats: dict[str, int]) -> dict[str, Any]:
    """Median seconds, and how many times the first one's the others take."""
    seconds = interleaved_seconds(jobs, repeats)
    median = medians(seconds)
    ours = next(iter(median))
    return {
        "seconds": seconds,
        "median_seconds": median,
        f"times_{ours}": {name: median[name] / median[ours] for name in median if name != ours},
    }


def in_a_process_of_its_own(n: int, gigabytes: float) -> dict[str, Any]:
    """Peak resident size of a kernel of `n` images, measured by the operating system."""
    asked = json.dumps({"n": n, "gigabytes": gigabytes})
    command = [sys.executable, __file__, "--memory-of", asked]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(found.stdout)


def peak_memory(n: int, gigabytes: float) -> dict[str, Any]:
    """What the process that runs this has held at most."""
    kernels = gram(network(), images(n), config=config(memory=gigabytes * 1e9))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "n": n,
        "ceiling_gb": gigabytes,
        "planned_gb": kernels.plan.peak_bytes / 1e9,
        "measured_gb": peak / 1e9,
        "passes": kernels.plan.passes,
    }


if __name__ == "__main__":
    main()
