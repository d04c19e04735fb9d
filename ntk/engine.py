"""A network and a kind of features, ready to give panels of factors and blocks of the kernel."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ntk.capture import (
    Captured,
    UnsupportedNetworkError,
    capture,
    count_parameters,
    parameter_layers,
    requiring_grad,
)
from ntk.config import KernelConfig
from ntk.contraction import Factors, Workspace
from ntk.kinds import FeatureMap, LayerCost, feature_map
from ntk.plan import Sizes
from projnorm.device import choose_device
from projnorm.errors import InputError
from projnorm.files import reason

Inputs = Tensor | ArrayLike
Prepare = Callable[[Tensor], Tensor]

# A spot check may differ from autograd by this many roundings of its scale.
_CHECK_ROUNDINGS = 2000.0
# An output may move this much, against the largest or 1, with the batch its sample is in: rounding, and no more.
_ALONE = 1e-3


class SelfCheckError(InputError):
    """The engine and plain autograd disagree on this network."""


class Engine:
    """Everything that a block of the kernel depends on, except the samples.

    There is one feature map for each network, and the kernel is the mean over the networks. The costs are those of each
    layer, and of the layers that are only passed through, of one network; the sizes are without the inputs. Forward
    passes compute in `input_dtype`, products in `dtype`.
    """

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        example: Tensor,
        config: KernelConfig | None = None,
        *,
        prepare: Prepare | None = None,
    ) -> None:
        """Look at the networks with one sample, the first of `example`; the other arguments are those of `ntk.gram`."""
        self.config = config or KernelConfig()
        self.device = choose_device(self.config.device)
        self._models = [_on(self.device, model) for model in as_networks(models, "models")]
        self._layers = [parameter_layers(model, self.config.layers) for model in self._models]
        self._prepare, self._example = prepare, example[:1]
        # MPS has no double precision, so there those products run on the CPU.
        self._double_on_cpu = self.device.type == "mps" and self.config.accumulate == "float64"
        self._home = torch.device("cpu") if self._double_on_cpu else self.device
        captured = [self._first_look(i) for i in range(len(self._models))]
        self.maps: list[FeatureMap] = [feature_map(self.config, sample) for sample in captured]
        counts = {count_parameters(*layers.values()) for layers in self._layers}
        if len(counts) > 1 or len({m.shapes for m in self.maps}) > 1:
            raise InputError("`models` must all have the same layers.")
        self.parameters = count_parameters(*self._layers[0].values())
        self.input_dtype = captured[0][0].inputs.dtype
        if self.input_dtype not in (torch.float32, torch.float64):
            raise UnsupportedNetworkError(
                f"the network must compute in float32 or float64; it uses {self.input_dtype}."
            )
        self.dtype = torch.promote_types(self.input_dtype, getattr(torch, self.config.accumulate))
        whole = _passed_through(self._models[0], self._prepared(example[:1])) if self.config.layers else 0
        rest = whole - sum(layer.forward for layer in self.maps[0].costs)
        passed = (LayerCost("other layers", 0, "passed", 0, 0, forward=rest),) if rest > 0 else ()
        self.costs = self.maps[0].costs + passed
        networks_bytes = sum(t.nbytes for model in self._models for t in (*model.parameters(), *model.buffers()))
        self.sizes = Sizes(
            sample=sum(math.prod(shape) for m in self.maps for shape in m.shapes) * self.dtype.itemsize,
            formed=max(layer.formed for layer in self.costs) * self.dtype.itemsize,
            # A pass keeps inputs, outputs, what lies between the layers, and a gradient of the same size as each.
            capture=3 * sum(layer.inputs.nbytes + layer.grads.nbytes for layer in captured[0]),
            fixed=networks_bytes + sum(m.fixed_bytes for m in self.maps),
        )

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of the networks, of what was drawn, and of what `prepare` makes of the example."""
        digest = hashlib.sha256()
        for model in self._models:
            digest.update(repr(model).encode())
            for name, value in model.state_dict().items():
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        drawn = hashlib.sha256("".join(m.fingerprint for m in self.maps).encode()).hexdigest()
        return {"network": digest.hexdigest(), "drawn": drawn, "prepare": tensor_hash(self._prepared(self._example))}

    def empty_panel(self, samples: int) -> list[Factors]:
        """Memory for the factors of this number of samples, one tuple per network."""
        return [tuple(_empty((samples, *shape), self.dtype, self._home) for shape in m.shapes) for m in self.maps]

    def fill(self, panel: list[Factors], x: Tensor, *, batch: int) -> list[Factors]:
        """The factors of the samples `x`, `batch` at a time, in the room of `panel`; returns views of it."""
        filled = [tuple(t[: len(x)] for t in factors) for factors in panel]
        for start in range(0, len(x), batch):
            part = slice(start, start + batch)
            for i, (feature, factors) in enumerate(zip(self.maps, filled, strict=True)):
                feature.write(self._capture(i, x[part]), tuple(t[part] for t in factors))
        return filled

    def block(self, a: list[Factors], b: list[Factors], workspace: Workspace) -> np.ndarray:
        """The kernel between two filled panels, in double precision.

        Where both are the same panel only the upper triangle is computed, and mirrored.
        """
        symmetric = a is b
        sums = torch.device("cpu") if self._home.type == "mps" else self._home
        total = torch.zeros(len(a[0][0]), len(b[0][0]), dtype=torch.float64, device=sums)
        for feature, factors_a, factors_b in zip(self.maps, a, b, strict=True):
            for gram in feature.grams(factors_a, None if symmetric else factors_b, workspace):
                total += gram.to(sums)
        kernel = (total / len(self.maps)).cpu().numpy()
        if not np.isfinite(kernel).all():
            raise SelfCheckError("the kernel is not finite: gradients of this network overflow in this precision.")
        return np.triu(kernel) + np.triu(kernel, 1).T if symmetric else kernel

    def plain_features(self, x: Tensor, index: int, *, batch: int) -> Tensor:
        """Features of one of the samples `x` by plain autograd, those of all networks side by side.

        The forward pass is that of the whole batch that the sample is in: a ReLU within a rounding of zero then falls
        on the same side as in `fill`, while the backward pass is that of the one sample.
        """
        start, index = index - index % batch, index % batch
        x = x[start : start + batch]
        with torch.no_grad():
            together, alone = (self._models[0](self._prepared(s)).reshape(-1) for s in (x, x[index : index + 1]))
        apart = float((together[index] - alone[0]).abs())
        if not apart <= _ALONE * max(1.0, float(together.abs().max())):
            raise SelfCheckError(
                f"the network's output on a sample changes by {apart:.2g} with the batch it is in; samples must be "
                "independent of each other."
            )
        rows = [
            feature.of_gradient(self._plain_gradient(i, x, index)).double().cpu() for i, feature in enumerate(self.maps)
        ]
        return torch.cat(rows) / math.sqrt(len(rows))

    def largest_error(self, checks: Iterable[tuple[float, float]]) -> float:
        """The largest of the errors of a spot check, each with the scale of what is checked; no more than rounding."""
        worst = max((0.0, *(error / scale if scale else error for error, scale in checks)))
        if not worst <= _CHECK_ROUNDINGS * torch.finfo(self.input_dtype).eps:
            raise SelfCheckError(
                f"what was computed differs from plain autograd by {worst:.2g} of its scale on this network; its "
                "samples may not be independent of each other, or its forward pass not repeatable."
            )
        return worst

    def _first_look(self, index: int) -> list[Captured]:
        """One sample captured, where it shows whether the inputs suit the network."""
        try:
            return self._capture(index, self._example)
        except (InputError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            kind, shape = str(self._example.dtype).removeprefix("torch."), tuple(self._example.shape[1:])
            raise InputError(
                f"inputs must suit the network; given {kind} samples of shape {shape}, it says: {reason(error)}."
            ) from error

    def _capture(self, index: int, x: Tensor) -> list[Captured]:
        captured = capture(self._models[index], self._layers[index], self._prepared(x))
        if not self._double_on_cpu:
            return captured
        return [replace(layer, inputs=layer.inputs.cpu(), grads=layer.grads.cpu()) for layer in captured]

    def _prepared(self, x: Tensor) -> Tensor:
        x = x.to(self.device)
        return x if self._prepare is None else self._prepare(x)

    def _plain_gradient(self, network: int, x: Tensor, index: int) -> Tensor:
        layers = self._layers[network].values()
        parameters = [p for module in layers for p in module.parameters(recurse=False)]
        with requiring_grad(parameters, required=True), torch.enable_grad():
            output = self._models[network](self._prepared(x)).reshape(-1)[index]
            gradients = torch.autograd.grad(output, parameters)
        return torch.cat([g.detach().flatten() for g in gradients])


def as_networks(models: nn.Module | Sequence[nn.Module], name: str) -> list[nn.Module]:
    """The networks of an argument `name`, of which there is at least one."""
    networks: list[Any] = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    for model in networks:
        if not isinstance(model, nn.Module):
            raise InputError(f"`{name}` must be a torch.nn.Module; got a {type(model).__name__}.")
    if not networks:
        raise InputError(f"`{name}` must hold at least one network.")
    return networks


def as_inputs(x: Inputs, name: str) -> Tensor:
    """The inputs as a tensor, one sample per row."""
    x = torch.as_tensor(x)
    if x.ndim < 2 or len(x) == 0:
        raise InputError(f"{name} must hold one sample per row; got shape {tuple(x.shape)}.")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise InputError(f"{name} must be finite.")
    return x


def tensor_hash(x: Tensor) -> str:
    """The SHA-256 of the type, the shape and the numbers."""
    digest = hashlib.sha256(f"{x.dtype} {tuple(x.shape)}".encode())
    digest.update(x.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _on(device: torch.device, model: nn.Module) -> nn.Module:
    """The network itself where it is on the device, else a copy there: the caller's stays where it was."""
    here = all(t.device.type == device.type for t in (*model.parameters(), *model.buffers()))
    return model if here else copy.deepcopy(model).to(device)


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room for factors. On the CPU numpy allocates it: it asks for large pages, which torch does not by default."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(shape, dtype=str(dtype).removeprefix("torch.")))


def _passed_through(model: nn.Module, x: Tensor) -> int:
    """Multiply-adds of a forward pass through the whole network."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(x)
    return int(counter.get_total_flops()) // 2
