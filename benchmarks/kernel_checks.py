"""The engine as `bench_ntk.py` runs it, and what its answers and those of its peers are compared with."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from benchmarks.kernel_networks import (
    Inputs,
    KernelCase,
    in_double,
)
from benchmarks.kernel_peers import (
    gradients_by_autograd,
)
from ntk.features.gradient_features import gradient_features
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram

# Numbers of samples that are compared with float64.
CHECKED = 4
FLOAT64_TOLERANCE = 1e-10
# Share of a sample's gradient below which a tensor's own size no longer counts: keys' biases have no gradient at all.
SMALLEST_SHARE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What every kernel of a network at one size is compared with.

    Attributes:
        case: The network.
        engine: Kernel by the engine.
        first: Kernel of the first samples by autograd in float64.
    """

    case: KernelCase
    engine: np.ndarray
    first: np.ndarray


def config(**options: Any) -> KernelConfig:
    """The engine as users call it, on the CPU; its self-check stays on unless `options` say otherwise."""
    return KernelConfig(device="cpu", **options)


def exact(network: nn.Module, x: Inputs, **options: Any) -> np.ndarray:
    """The engine."""
    return gram(network, x, config=config(**options)).train


def require(name: str, answer: np.ndarray, expected: np.ndarray, case: KernelCase) -> float:
    """Difference of two kernels against the largest entry, within the rounding of float32 sums over all parameters."""
    worst = float(np.abs(answer - expected).max() / np.abs(expected).max())
    tolerance = 4 * float(np.finfo(np.float32).eps) * case.parameters**0.5
    assert worst < tolerance, f"{case.name}: {name} differs by {worst:.2g}, over {tolerance:.2g}"
    return worst


def kernel_in_double(case: KernelCase, x: Inputs) -> np.ndarray:
    """Kernel by autograd in float64."""
    gradients = gradients_by_autograd(copy.deepcopy(case.network).double(), in_double(x)).numpy()
    return gradients @ gradients.T


def check_layers(case: KernelCase) -> dict[str, Any]:
    """Worst error of a parameter tensor's features and of a layer's kernel, against autograd in float64."""
    network, x = copy.deepcopy(case.network).double(), in_double(case.draw(CHECKED))
    expected = gradients_by_autograd(network, x).numpy()
    ours = gradient_features(network, x, config=config(kind="exact", self_check=False)).values
    smallest = SMALLEST_SHARE * np.linalg.norm(expected)
    of_tensor, parts, column = {}, {}, 0
    for name, parameter in network.named_parameters():
        part = slice(column, column + parameter.numel())
        column = part.stop
        parts[name] = expected[:, part]
        size = max(float(np.linalg.norm(parts[name])), smallest)
        of_tensor[name] = float(np.linalg.norm(ours[:, part] - parts[name])) / size
    of_layer = {}
    for layer, module in network.named_modules():
        if layer and list(module.parameters(recurse=False)):
            K = sum(part @ part.T for name, part in parts.items() if name.startswith(f"{layer}."))
            kernel = exact(network, x, layers=(layer,), accumulate="float64", self_check=False)
            of_layer[layer] = float(np.linalg.norm(kernel - K)) / max(float(np.linalg.norm(K)), smallest**2)
    for what, errors in (("features", of_tensor), ("kernel", of_layer)):
        worst = max(errors, key=errors.__getitem__)
        assert errors[worst] < FLOAT64_TOLERANCE, f"{case.name}: {what} of {worst} are off by {errors[worst]:.2g}"
    return {
        "tensors": len(of_tensor),
        "worst_features": max(of_tensor.values()),
        "layers": len(of_layer),
        "worst_kernel": max(of_layer.values()),
    }
