"""Exact tangent kernels (one output, float32) by this engine and by the ways people compute them now.

Run: ``python -m benchmarks.bench_ntk --neural-tangents nt-env/bin/python`` (about half an hour on two cores, 20 GB).
The peers are nngeometry, `torch.func` vmap(grad), a loop of `autograd.grad` with one product, neural-tangents with
structured derivatives and, for the MLP, its formula written out. The networks are a ResNet18, an MLP, a CNN, a ViT
and a BERT (`kernel_networks.py`). The engine runs as users call it, with its self-check.

Before anything is timed, the engine is compared with plain autograd in float64 on four samples: its features for every
parameter tensor and its kernel for every layer, because the sum over layers hides an error in a small one. Then every
kernel is compared with the engine's. A peer with a batch size uses its best of several. A peer is left out where its
gradients do not fit in memory or where it would take over 20 seconds, and the record says so.

Further parts: the time of the self-check; the kernel of the paper's 500,000 coordinates, and of every layer by formed
gradients; features by picking coordinates and by forming every gradient; and the peak resident size of a process of its
own against the memory ceiling it was given.

Peers that are no dependencies of the project; without them their rows are left out:

    pip install --no-deps nngeometry==0.4    # in this environment; it uses nothing but torch
    python3 -m venv nt-env                   # neural-tangents needs an older JAX
    nt-env/bin/pip install neural-tangents==0.6.5 tf2jax==0.3.6 jax==0.4.23 jaxlib==0.4.23 'numpy<2' 'scipy<1.13'
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import interleaved_seconds, medians, write_result
from benchmarks.kernel_checks import CHECKED, Expected, check_layers, config, exact, kernel_in_double, require
from benchmarks.kernel_networks import (
    BERT,
    CNN,
    MLP,
    RESNET,
    VIT,
    Inputs,
    KernelCase,
    count,
    make_case,
    rows,
)
from benchmarks.kernel_parts import ENGINE, against_forced_routes, sampled_features, self_check
from benchmarks.kernel_peers import (
    Kernel,
    NeuralTangents,
    PeerError,
    gradient_loop,
    hand_written,
    nngeometry,
    torch_func,
)
from ntk.tiles.gram import gram
from ntk.trace.requirements import UnsupportedNetworkError
from projnorm.core.errors import InputError
from projnorm.core.files import physical_memory

NNGEOMETRY, FUNC, LOOP, TANGENTS, FORMULA = (
    "nngeometry",
    "torch.func",
    "gradient loop",
    "neural-tangents",
    "formula",
)
GENERAL = (NNGEOMETRY, FUNC, LOOP)
PEERS = (*GENERAL, TANGENTS, FORMULA)
# Numbers of samples of each network, with the peers that are measured there.
SIZES: dict[str, dict[int, tuple[str, ...]]] = {
    RESNET: dict.fromkeys((64, 256, 512), (*GENERAL, TANGENTS)),
    MLP: {500: PEERS, 2000: (NNGEOMETRY, TANGENTS, FORMULA)},
    CNN: {512: GENERAL},
    VIT: {64: GENERAL},
    BERT: {64: GENERAL},
}
QUICK_N = 8
CHUNKS = (8, 32, 128, 512)
SMALLEST_BATCH = 64
REPEATS, PEER_REPEATS = 9, 3
LONGEST = 20.0


def main() -> None:
    """Measure, print, save after every part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a smoke test")
    parser.add_argument("--neural-tangents", metavar="PYTHON", help="Python of an environment with neural-tangents")
    parser.add_argument("--networks", nargs="+", choices=list(SIZES), default=list(SIZES), help="networks to measure")
    parser.add_argument("--out", type=Path, default=Path("results/bench_ntk.json"))
    parser.add_argument("--table", type=Path, metavar="JSON", help="print the table of an earlier run and stop")
    parser.add_argument("--memory-of", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory_of:
        print(json.dumps(peak_memory(**args.memory_of)))
        return
    if args.table:
        print(table(json.loads(args.table.read_text("utf-8"))["rows"]))
        return
    options = {"--quick": args.quick, "--neural-tangents nt-env/bin/python": args.neural_tangents}
    command = " ".join(["python -m benchmarks.bench_ntk", *(option for option, is_set in options.items() if is_set)])
    peers = Peers(args.neural_tangents)
    result: dict[str, Any] = {"threads": torch.get_num_threads(), "peers": peers.versions}
    # First, while this process is small: a child's peak starts at its parent's.
    ceilings = [(40, 2.0)] if args.quick else [(1000, 2.0), (1000, 4.0), (2000, 4.0), (2000, 8.0)]
    if RESNET in args.networks:
        result["memory"] = [in_a_process_of_its_own(n, ceiling) for n, ceiling in ceilings]
    result |= {"layers": [], "rows": [], "left_out": []}
    for name in args.networks:
        sizes = {QUICK_N: next(iter(SIZES[name].values()))} if args.quick else SIZES[name]
        measure(make_case(name, tiny=args.quick), sizes, peers, result)
        write_result(args.out, command, result)
    if RESNET in args.networks:
        case = make_case(RESNET)
        few, some, many = (8, 8, 24) if args.quick else (64, 128, 512)
        result[f"self_check_n{few}"] = self_check(case, few)
        result[f"routes_n{many}"] = against_forced_routes(case, many)
        result[f"features_n{some}"] = sampled_features(case, some)
        write_result(args.out, command, result)
    print(json.dumps({name: part for name, part in result.items() if name not in ("rows", "layers")}, indent=1))
    print(table(result["rows"]))


@dataclass(slots=True)
class Peers:
    """Which peers are here.

    Attributes:
        python: Python of the environment of neural-tangents; none where it is left out.
        versions: Versions of the peers that are not of this environment's record.
    """

    python: str | None
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.has(NNGEOMETRY):
            self.versions[NNGEOMETRY] = version(NNGEOMETRY)
        else:
            print("nngeometry is not installed: its rows are left out.")
        if not self.has(TANGENTS):
            print("--neural-tangents was not given: its rows are left out.")

    def has(self, peer: str) -> bool:
        """Whether this peer can be run."""
        if peer == NNGEOMETRY:
            return importlib.util.find_spec(NNGEOMETRY) is not None
        return peer != TANGENTS or self.python is not None


@dataclass(slots=True, eq=False)
class Candidate:
    """A job with the settings it may run with, of which the quickest is measured.

    Attributes:
        runs: The job with each setting, by the setting's name; an empty name where there is none.
        seconds: Seconds of one run with each setting.
        best: Name of the quickest setting.
        difference: Largest difference from the engine's kernel, against its largest entry.
        error: The same from the kernel of the first samples by autograd in float64.
    """

    runs: dict[str, Callable[[], Any]]
    seconds: dict[str, float] = field(default_factory=dict)
    best: str = ""
    difference: float = 0.0
    error: float = 0.0

    def check(self, name: str, answer: np.ndarray, expected: Expected) -> None:
        """Refuse an answer that differs by more than float32 rounds."""
        self.difference = max(self.difference, require(name, answer, expected.engine, expected.case))
        first = answer[:CHECKED, :CHECKED]
        self.error = max(self.error, require(name, first, expected.first, expected.case))


def measure(case: KernelCase, sizes: dict[int, tuple[str, ...]], peers: Peers, result: dict[str, Any]) -> None:
    """Check every layer of a network, then time it at each size; rows are added to `result`."""
    try:
        checked = check_layers(case)
    except (UnsupportedNetworkError, InputError) as error:
        print(f"{case.name}: refused by the engine: {error}")
        result["left_out"].append({"network": case.name, "peer": ENGINE, "why": str(error)})
        return
    result["layers"].append({"network": case.name, "parameters": case.parameters, **checked})
    print(f"{case.name}: {checked}")
    last: dict[str, tuple[int, float]] = {}
    for n, names in sizes.items():
        jobs_asked = []
        for peer in names:
            if not peers.has(peer):
                continue
            if why := reason_to_leave_out(peer, case, n, last):
                print(f"{case.name}, n = {n}: {peer} is left out: {why}")
                result["left_out"].append({"network": case.name, "n": n, "peer": peer, "why": why})
            else:
                jobs_asked.append(peer)
        compared, refused = compare(case, n, jobs_asked, peers)
        result["rows"] += compared
        result["left_out"] += refused
        last |= {row["peer"]: (n, row["median_seconds"]) for row in compared}


def reason_to_leave_out(peer: str, case: KernelCase, n: int, last: dict[str, tuple[int, float]]) -> str:
    """Why a peer is not measured at this size; empty where it is."""
    if peer in (FUNC, LOOP) and not fits(case, n):
        return f"the gradients take {4 * n * case.parameters / 1e9:.1f} GB"
    if peer in last:
        earlier, seconds = last[peer]
        if (least := seconds * n / earlier) > LONGEST:
            return f"it would take at least {least:.0f} s"
    return ""


def fits(case: KernelCase, samples: int) -> bool:
    """Whether the float32 gradients of this many samples take at most 60 % of the machine's memory."""
    return 4 * samples * case.parameters <= 0.6 * physical_memory()


def compare(
    case: KernelCase, n: int, names: Sequence[str], peers: Peers
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of the engine and its peers at one size, and the peers that refuse the network."""
    x = case.draw(n)
    engine = Candidate({"": lambda: exact(case.network, x)})
    expected = Expected(case, engine.runs[""](), kernel_in_double(case, rows(x, 0, CHECKED)))
    engine.check(ENGINE, expected.engine, expected)
    candidates, refused, facts = {ENGINE: engine}, [], {}
    with ExitStack() as running:
        for peer in names:
            try:
                if peer == TANGENTS:
                    folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
                    process = NeuralTangents(str(peers.python), case.name, case.network, x, folder)
                    running.callback(process.close)
                    peers.versions |= process.facts["versions"]
                    facts[peer] = {"compilation_seconds": process.facts["compilation_seconds"]}
                    candidate = Candidate({"": process.run})
                    candidate.check(peer, process.kernel, expected)
                else:
                    candidate = quickest(peer, Candidate(dict(settings(peer, case, x))), expected)
            except PeerError as error:
                print(f"{case.name}, n = {n}: {peer} fails: {error}")
                refused.append({"network": case.name, "n": n, "peer": peer, "why": str(error)})
            else:
                candidates[peer] = candidate
        jobs = {name: candidate.runs[candidate.best] for name, candidate in candidates.items()}
        seconds = interleaved_seconds(jobs, {name: REPEATS if name == ENGINE else PEER_REPEATS for name in jobs})
    median = medians(seconds)
    rows_of_table = []
    for name, candidate in candidates.items():
        rows_of_table.append(
            {
                "network": case.name,
                "n": n,
                "peer": name,
                "setting": candidate.best,
                "median_seconds": median[name],
                "times_engine": median[name] / median[ENGINE],
                "difference_from_engine": candidate.difference,
                "error_from_float64": candidate.error,
                "seconds": seconds[name],
                "seconds_of_settings": candidate.seconds,
                **facts.get(name, {}),
            }
        )
        print(
            f"{case.name}, n = {n}, {name}{candidate.best and f' ({candidate.best})'}: {median[name]:.3f} s, "
            f"{median[name] / median[ENGINE]:.2f} times the engine's, error {candidate.error:.1g}",
            flush=True,
        )
    return rows_of_table, refused


def settings(peer: str, case: KernelCase, x: Inputs) -> Iterator[tuple[str, Kernel]]:
    """A peer with every batch size that is tried."""
    n, network = count(x), case.network
    if peer == FUNC:
        for chunk in sorted({min(chunk, n) for chunk in CHUNKS}):
            if chunk == min(CHUNKS) or fits(case, n + chunk):
                yield f"chunks of {chunk}", lambda chunk=chunk: torch_func(network, x, chunk=chunk)
    elif peer == NNGEOMETRY:
        kernel = nngeometry(network, x)
        for batch in sorted({min(SMALLEST_BATCH, n), n}):
            yield f"batches of {batch}", lambda batch=batch: kernel(batch)
    elif peer == LOOP:
        yield "", lambda: gradient_loop(network, x)
    else:
        yield "", lambda: hand_written(network, x)


def quickest(peer: str, candidate: Candidate, expected: Expected) -> Candidate:
    """Check the answers of all settings, and choose the quickest one; the warm-up as well."""
    for name, run in candidate.runs.items():
        started = time.perf_counter()
        answer = run()
        candidate.seconds[name] = time.perf_counter() - started
        candidate.check(f"{peer} {name}".strip(), answer, expected)
    candidate.best = min(candidate.seconds, key=candidate.seconds.__getitem__)
    return candidate


def table(measured: Sequence[dict[str, Any]]) -> str:
    """The rows as a table in Markdown, a line per network and size: the engine's seconds, and times that of peers."""
    lines = ["| network | n | engine | " + " | ".join(PEERS) + " |", "| --- " * (3 + len(PEERS)) + "|"]
    for network, n in dict.fromkeys((row["network"], row["n"]) for row in measured):
        times = {row["peer"]: row for row in measured if (row["network"], row["n"]) == (network, n)}
        times_engine = [f"{times[peer]['times_engine']:.2f}" if peer in times else "-" for peer in PEERS]
        lines.append(
            f"| {network} | {n:,} | **{times[ENGINE]['median_seconds']:.3f} s** | {' | '.join(times_engine)} |"
        )
    return "\n".join(lines)


def in_a_process_of_its_own(n: int, gigabytes: float) -> dict[str, Any]:
    """Peak resident size of a kernel of `n` images, measured by the operating system."""
    asked = json.dumps({"n": n, "gigabytes": gigabytes})
    command = [sys.executable, "-m", "benchmarks.bench_ntk", "--memory-of", asked]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(process.stdout)


def peak_memory(n: int, gigabytes: float) -> dict[str, Any]:
    """What the process that runs this has held at most, with the self-check."""
    case = make_case(RESNET)
    kernels = gram(case.network, case.draw(n), config=config(memory=gigabytes * 1e9))
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
