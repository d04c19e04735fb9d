"""Other ways to the exact tangent kernel that `bench_ntk.py` compares with, each as a function that returns it."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.kernel_networks import Inputs, call, count, rows

Kernel = Callable[[], np.ndarray]


class PeerError(Exception):
    """A peer cannot compute the kernel of a network."""


def gradient_loop(network: nn.Module, x: Inputs) -> np.ndarray:
    """A loop of `torch.autograd.grad` over the samples, and one product."""
    features = gradients_by_autograd(network, x)
    return (features @ features.T).numpy()


def gradients_by_autograd(network: nn.Module, x: Inputs) -> Tensor:
    """One gradient a sample, in the order of the network's parameters."""
    parameters = list(network.parameters())
    features = torch.empty(count(x), sum(p.numel() for p in parameters), dtype=parameters[0].dtype)
    for number, row in enumerate(features):
        gradients = torch.autograd.grad(call(network, rows(x, number, number + 1)).sum(), parameters)
        torch.cat([gradient.flatten() for gradient in gradients], out=row)
    return features


def torch_func(network: nn.Module, x: Inputs, *, chunk: int) -> np.ndarray:
    """`torch.func` vmap(grad) over chunks of samples, and one product."""
    features = gradients_by_func(network, x, chunk=chunk)
    return (features @ features.T).numpy()


def gradients_by_func(network: nn.Module, x: Inputs, *, chunk: int) -> Tensor:
    """One gradient a sample by `torch.func` vmap(grad) over chunks of samples.

    Attention is spelled out (the backend MATH), since vmap has no rule for the fused one and would loop over samples.
    """
    parameters = {name: parameter.detach() for name, parameter in network.named_parameters()}
    buffers = dict(network.named_buffers())

    def output(parameters: dict[str, Tensor], sample: Any) -> Tensor:
        whole = sample[None] if isinstance(sample, Tensor) else {name: part[None] for name, part in sample.items()}
        positional, named = ((whole,), {}) if isinstance(whole, Tensor) else ((), whole)
        return functional_call(network, (parameters, buffers), positional, named).reshape(())

    features = torch.empty(count(x), sum(p.numel() for p in parameters.values()))
    with sdpa_kernel(SDPBackend.MATH):
        for start in range(0, count(x), chunk):
            stop = min(start + chunk, count(x))
            gradients = vmap(grad(output), in_dims=(None, 0))(parameters, rows(x, start, stop))
            column = 0
            for name, parameter in parameters.items():
                width = parameter.numel()
                features[start:stop, column : column + width] = gradients[name].flatten(1)
                column += width
    return features


def nngeometry(network: nn.Module, x: Inputs) -> Callable[[int], np.ndarray]:
    """The `GramMatrix` of nngeometry as a function of its batch size, on a copy: its hooks stay where it fails."""
    from nngeometry.gram import GramMatrix
    from torch.utils.data import DataLoader, TensorDataset

    network = copy.deepcopy(network)
    tensors = [x] if isinstance(x, Tensor) else list(x.values())

    def kernel(batch: int) -> np.ndarray:
        loader = DataLoader(TensorDataset(*tensors), batch_size=batch)
        try:
            gram = GramMatrix(network, loader, function=lambda *parts: network(*parts)).to_torch()
        except Exception as error:  # it raises bare exceptions for what it does not know
            raise PeerError(f"{type(error).__name__}: {error}") from error
        return gram.detach()[0, :, 0].numpy()

    return kernel


def hand_written(network: nn.Sequential, x: Tensor) -> np.ndarray:
    r"""The MLP's kernel from its formula, :math:`\sum_l (A_l A_l^T + 1) \circ (B_l B_l^T)`."""
    inputs, signs = [], []
    with torch.no_grad():
        for layer in network:
            if isinstance(layer, nn.Linear):
                inputs.append(x)
            x = layer(x)
            if isinstance(layer, nn.ReLU):
                signs.append(x > 0)
        B = torch.ones(len(x), 1)
        kernel = torch.zeros(len(x), len(x))
        for layer in reversed([layer for layer in network if isinstance(layer, nn.Linear)]):
            A = inputs.pop()
            kernel += (A @ A.T + 1) * (B @ B.T)
            if signs:
                B = (B @ layer.weight) * signs.pop()
    return kernel.numpy()


class NeuralTangents:
    """neural-tangents in a process with a Python of its own; see `neural_tangents_peer.py`."""

    def __init__(self, python: str, kind: str, network: nn.Module, x: Tensor, folder: Path) -> None:
        """Start it, and wait until its kernel of `x` is compiled and computed; `kind` is resnet18 or mlp."""
        self._log = folder / "log.txt"
        network_file, kernel = folder / "network.npz", folder / "kernel.npz"
        arrays = {f"parameters:{name}": value.detach().numpy() for name, value in network.named_parameters()}
        arrays |= {f"buffers:{name}": value.numpy() for name, value in network.named_buffers()}
        np.savez(network_file, network=kind, x=x.numpy(), **arrays)
        script = Path(__file__).with_name("neural_tangents_peer.py")
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, str(script), str(network_file), str(kernel)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.facts = self._read()
        with np.load(kernel, allow_pickle=False) as file:
            self.kernel = file["kernel"]

    def run(self) -> None:
        """Compute the kernel once more."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._read()

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            last_line = self._log.read_text("utf-8", errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"neural_tangents_peer.py ended with exit code {code}. {' '.join(last_line)}".strip())
        return json.loads(line)
