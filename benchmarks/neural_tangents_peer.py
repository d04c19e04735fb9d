"""The tangent kernel by neural-tangents (JAX), for `bench_ntk.py`, which starts this with the Python of its own.

neural-tangents 0.6.5, its last release, needs a JAX of its time, so it runs in an environment with nothing of this
project:

    python3 -m venv nt-env
    nt-env/bin/pip install neural-tangents==0.6.5 tf2jax==0.3.6 jax==0.4.23 jaxlib==0.4.23 'numpy<2' 'scipy<1.13'
    python -m benchmarks.bench_ntk --neural-tangents nt-env/bin/python

It reads inputs, parameters and buffers of a torch network from an NPZ file, builds the same network in plain JAX with
channels last, compiles `empirical_ntk_fn` with structured derivatives, writes the kernel to a second NPZ file and
prints one line of JSON. Then, for every line on its standard input, it computes the kernel once more and prints the
seconds, so that its runs can be interleaved with those of the other process.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from jax import lax

Arrays = dict[str, Any]
_EPS = 1e-5


def mlp(parameters: Arrays, x: Any) -> Any:
    """Linear layers 0, 2, 4, ... with ReLU between them."""
    layers = sorted({int(name.partition(".")[0]) for name in parameters})
    for layer in layers:
        x = x @ parameters[f"{layer}.weight"] + parameters[f"{layer}.bias"]
        x = jax.nn.relu(x) if layer != layers[-1] else x
    return x


def resnet18(parameters: Arrays, x: Any, *, buffers: Arrays) -> Any:
    """ResNet18 with batch norm in eval mode."""

    def conv(name: str, x: Any, stride: int, padding: int) -> Any:
        pads = [(padding, padding)] * 2
        kernel = parameters[f"{name}.weight"]
        return lax.conv_general_dilated(x, kernel, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(name: str, x: Any) -> Any:
        scale = 1.0 / np.sqrt(buffers[f"{name}.running_var"] + np.float32(_EPS))
        normalised = (x - buffers[f"{name}.running_mean"]) * scale
        return normalised * parameters[f"{name}.weight"] + parameters[f"{name}.bias"]

    def block(name: str, x: Any, stride: int) -> Any:
        out = jax.nn.relu(norm(f"{name}.bn1", conv(f"{name}.conv1", x, stride, 1)))
        out = norm(f"{name}.bn2", conv(f"{name}.conv2", out, 1, 1))
        if f"{name}.downsample.0.weight" in parameters:
            x = norm(f"{name}.downsample.1", conv(f"{name}.downsample.0", x, stride, 0))
        return jax.nn.relu(out + x)

    x = jax.nn.relu(norm("bn1", conv("conv1", x, 2, 3)))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)])
    for stage in range(1, 5):
        for number in range(2):
            x = block(f"layer{stage}.{number}", x, 2 if stage > 1 and number == 0 else 1)
    return x.mean(axis=(1, 2)) @ parameters["fc.weight"] + parameters["fc.bias"]


def channels_last(array: Any) -> Any:
    """A torch weight or image batch in the layout of JAX: HWIO, NHWC, or inputs before outputs."""
    return array.T if array.ndim == 2 else array.transpose(2, 3, 1, 0) if array.ndim == 4 else array


def load(path: Path) -> tuple[Callable[[Arrays, Any], Any], Arrays, Any]:
    """The network as a function, its parameters and its inputs."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    network, x = str(arrays["network"]), arrays["x"]
    parts = {kind: dict(_named(arrays, kind)) for kind in ("parameters", "buffers")}
    parameters = {name: jnp.asarray(channels_last(value)) for name, value in parts["parameters"].items()}
    if network == "mlp":
        return mlp, parameters, jnp.asarray(x)
    return (
        lambda parameters, x: resnet18(parameters, x, buffers=parts["buffers"]),
        parameters,
        jnp.asarray(x.transpose(0, 2, 3, 1)),
    )


def _named(arrays: Arrays, kind: str) -> Iterator[tuple[str, Any]]:
    return ((name.partition(":")[2], value) for name, value in arrays.items() if name.startswith(f"{kind}:"))


def main() -> None:
    """Compile, write the kernel, then compute it again for every line that is read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", type=Path, help="NPZ file with inputs, parameters and buffers")
    parser.add_argument("kernel", type=Path, help="NPZ file to write")
    options = parser.parse_args()
    function, parameters, x = load(options.network)
    ntk = nt.empirical_ntk_fn(
        function, trace_axes=(-1,), vmap_axes=0, implementation=nt.NtkImplementation.STRUCTURED_DERIVATIVES
    )
    started = time.perf_counter()
    compiled = jax.jit(lambda x, parameters: ntk(x, None, parameters)).lower(x, parameters).compile()
    compilation = time.perf_counter() - started
    np.savez(options.kernel, kernel=np.asarray(compiled(x, parameters)))
    versions = {"neural-tangents": nt.__version__, "jax": jax.__version__}
    print(json.dumps({"compilation_seconds": compilation, "versions": versions}), flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        compiled(x, parameters).block_until_ready()
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)


if __name__ == "__main__":
    main()
