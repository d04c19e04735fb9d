"""A network and a kind of features, ready to give panels of factors and blocks of the kernel."""

from __future__ import annotations

import copy
import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ntk.features.contraction import Factors, Workspace
from ntk.features.feature_map import FeatureMap, LayerCost
from ntk.features.kinds import feature_map
from ntk.features.self_check import check_layers
from ntk.features.sizes import Sizes
from ntk.kernel_config import EXACT, FULL, MEAN, RANDOM_OUTPUT, KernelConfig
from ntk.trace.capture import Network, Scalar, UnsupportedNetworkError
from ntk.trace.captured import AUTOGRAD, Block, Captured
from ntk.trace.inputs import Prepare, Samples, Values, called, values_hash
from ntk.trace.per_sample import requiring_only
from ntk.trace.uses import TraceMismatchError
from projnorm.core.device import choose_device
from projnorm.core.errors import InputError
from projnorm.core.files import reason

# A check may differ from autograd by this many roundings of its scale, but by no more than the second number.
_CHECK_ROUNDINGS, _CHECK_MOST = 2000.0, 0.1
# The same sample in another batch: its output, against the largest or 1, and its kernel. An activation within a
# rounding of zero may fall on the other side of a ReLU, which changes a kernel by about a thousandth, but hardly ever
# in double precision.
_ALONE, _OTHER_BATCH, _OTHER_BATCH_DOUBLE = 1e-3, 1e-2, 1e-6
# Samples that a network is looked at with.
_PROBES = 3
# What a network raises that does not suit its inputs.
_OF_A_NETWORK = (
    RuntimeError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)
# A mean over more outputs than this is refused: each takes a backward pass.
_MOST_OUTPUTS = 1000
# The largest block that glibc's malloc keeps for the next tensor; a larger one comes from the system page by page.
_LARGEST_REUSED = 1 << 25


class SelfCheckError(InputError):
    """The engine and plain autograd disagree on this network."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How the parameters of one network are followed, found by one engine for others of the same.

    Attributes:
        by_autograd: Names of parameters that are left to plain autograd, each with the reason.
        samples_innermost: Numbers of steps at which neighbouring rows of a batch are of neighbouring samples.
        one_by_one: Whether plain autograd takes the samples one by one.
    """

    by_autograd: Mapping[str, str] = field(default_factory=dict)
    samples_innermost: frozenset[int] = frozenset()
    one_by_one: bool = False


class Engine:
    """Everything that a block of the kernel depends on, except the samples.

    The kernel is the mean over `views`: one for each network and, where it has several outputs, for each of them.

    Attributes:
        config: Settings of the kernel.
        device: Device that computes.
        map: Features behind the kernel; the same for every view.
        views: Number of kernels that are averaged.
        parameters: Number of parameters, which are the coordinates of the full gradient.
        left_out: Names of parameters that are not used.
        by_autograd: Names of parameters that no rule covers, each with the call that it ends up in.
        outputs: Number of outputs of the networks.
        trace_options: How the parameters of each network are traced.
        costs: Cost of each layer, and of the layers that are only passed through, of one view.
        sizes: Numbers of bytes, without the inputs.
        batch: Largest number of samples in a pass: as configured, or fewer on a CPU where their tensors are large.
        example: Samples that the networks were looked at with.
        seconds_per_sample: Time that a sample took in a pass through one network, measured on the example.
        check_error: Largest difference from plain autograd in a layer, against the scale of its share of the kernel.
    """

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        example: Samples,
        config: KernelConfig | None = None,
        *,
        prepare: Prepare | None = None,
        trace_options: Sequence[TraceOptions] | None = None,
    ) -> None:
        """Look at the networks with the first samples of `example`; the other arguments are those of `ntk.gram`.

        The `trace_options` are those of another engine of the same networks; with them nothing is checked.
        """
        self.config = config or KernelConfig()
        self.device = choose_device(self.config.device)
        self._prepare, self.example = prepare, example[:_PROBES]
        # MPS has no double precision, so there those products run on the CPU.
        self._double_on_cpu = self.device.type == "mps" and self.config.accumulate == "float64"
        self._home = torch.device("cpu") if self._double_on_cpu else self.device
        networks = as_networks(models, "models")
        dtypes = (p.dtype for p in networks[0].parameters() if p.is_floating_point())
        self._parameter_dtype = next(dtypes, torch.get_default_dtype())
        known = trace_options or [TraceOptions()] * len(networks)
        self._networks = [self._network(_on(self.device, one), way) for one, way in zip(networks, known, strict=True)]
        first = self._networks[0]
        self.outputs = first.outputs
        self._scalars = self._views_of_outputs()
        self.input_dtype = first.output_dtype
        self.dtype = torch.promote_types(
            torch.promote_types(self.input_dtype, torch.float32), getattr(torch, self.config.accumulate)
        )
        self.check_error, self.seconds_per_sample = 0.0, 0.0
        self._checked_kernel: np.ndarray | None = None
        captured = [
            self._checked(i, check=trace_options is None and self.config.self_check) for i in range(len(networks))
        ]
        if any(one.blocks != self._networks[0].blocks or one.outputs != self.outputs for one in self._networks):
            raise InputError("`models` must all have the same layers.")
        first = self._networks[0]
        self._captured = captured[0]
        self.map: FeatureMap = feature_map(self.config, captured[0])
        self.views = len(self._networks) * len(self._scalars)
        self.parameters = sum(block.parameters for block in first.blocks)
        self.left_out, self.by_autograd = first.left_out, dict(first.reasons)
        self.trace_options = tuple(
            TraceOptions(dict(one.reasons), one.samples_innermost, one.one_by_one) for one in self._networks
        )
        self.costs = self.map.costs + self._passed_through()
        self.sizes = self._sizes(captured[0])
        self.batch = self._batch(captured[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the order of the features."""
        network = self._networks[0]
        return tuple(network.names[root] for block in network.blocks for root in block.roots)

    @property
    def rows_per_sample(self) -> int:
        """Number of rows of the kernel that a sample has."""
        return self.outputs if self.config.outputs == FULL else 1

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of the networks, of what was drawn, and of what `prepare` makes of the example."""
        digest = hashlib.sha256()
        for network in self._networks:
            digest.update(f"{network.model!r} {network.names}".encode())
            tensors = dict(network.model.named_parameters()) | dict(network.model.named_buffers())
            digest.update(values_hash(tensors).encode())
        drawn = hashlib.sha256(self.map.fingerprint.encode()).hexdigest()
        return {"network": digest.hexdigest(), "drawn": drawn, "prepare": values_hash(self._values(1))}

    def empty_panel(self, samples: int) -> list[Factors]:
        """Memory for the factors of this number of samples, one tuple per view."""
        specs = list(zip(self.map.shapes, self.map.dtypes, strict=True))
        return [
            tuple(_empty((samples, *shape), dtype or self.dtype, self._home) for shape, dtype in specs)
            for _ in range(self.views)
        ]

    def fill(self, panel: list[Factors], x: Samples, *, batch: int) -> list[Factors]:
        """The factors of the samples `x`, `batch` at a time, in the room of `panel`; returns views of it."""
        filled = [tuple(t[: len(x)] for t in factors) for factors in panel]
        for start in range(0, len(x), batch):
            part = slice(start, start + batch)
            for view, factors in enumerate(filled):
                try:
                    self.map.write(self._capture(view, x[part]), tuple(t[part] for t in factors))
                except TraceMismatchError:
                    raise UnsupportedNetworkError(
                        'the forward pass uses parameters in a way that depends on the samples; pass route="autograd".'
                    ) from None
        return filled

    def block(self, a: list[Factors], b: list[Factors], workspace: Workspace) -> np.ndarray:
        """The kernel between two filled panels, in double precision.

        Where both are the same panel only the upper triangle is computed, and mirrored.
        """
        symmetric = a is b
        sums = torch.device("cpu") if self._home.type == "mps" else self._home
        total = torch.zeros(len(a[0][0]), len(b[0][0]), dtype=torch.float64, device=sums)
        for factors_a, factors_b in zip(a, b, strict=True):
            for gram in self.map.grams(factors_a, None if symmetric else factors_b, workspace):
                total += gram.to(sums)
        kernel = (total / self.views).cpu().numpy()
        if not np.isfinite(kernel).all():
            raise SelfCheckError("the kernel is not finite: gradients of this network overflow in this precision.")
        return np.triu(kernel) + np.triu(kernel, 1).T if symmetric else kernel

    def example_kernel(self) -> np.ndarray:
        """The kernel of the samples that the networks were looked at with."""
        if self._checked_kernel is not None:
            return self._checked_kernel
        samples = len(self.example)
        panel = self.empty_panel(samples)
        if self.views == 1 and self.config.outputs != FULL:
            self.map.write([layer.part(slice(0, samples)) for layer in self._captured], panel[0])
        else:
            self.fill(panel, self.example, batch=samples)
        return self.block(panel, panel, Workspace(samples))

    def require_same(self, found: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> None:
        """Raise `SelfCheckError` if samples in other batches have another kernel, beyond what rounding can do."""
        if not (np.abs(found - expected) <= self._other_batch * scale).all():
            raise SelfCheckError(
                "the kernel of some samples changes with the batch that they are in; samples must be independent of "
                "each other, and the forward pass repeatable. Tiles of an earlier run may also be of another network."
            )

    @property
    def _tolerance(self) -> float:
        return min(_CHECK_ROUNDINGS * torch.finfo(self.input_dtype).eps, _CHECK_MOST)

    def _network(self, model: nn.Module, way: TraceOptions) -> Network:
        """A network looked at, where it shows whether the inputs suit it."""
        config = self.config
        try:
            return Network(
                model,
                # The same two in both passes, so that branches which depend on the samples are the same.
                lambda count: self._cycled(count, distinct=2).prepared(
                    self.device, self._prepare, self._parameter_dtype
                ),
                layers=config.layers,
                frozen=config.frozen,
                only_autograd=config.route == AUTOGRAD,
                **asdict(way),
            )
        except (InputError, torch.OutOfMemoryError):
            raise
        except _OF_A_NETWORK as error:
            given = ", ".join(
                f"{str(t.dtype).removeprefix('torch.')} samples of shape {tuple(t.shape[1:])}"
                for t in self.example.tensors.values()
            )
            raise InputError(f"inputs must suit the network; given {given}, it says: {reason(error)}.") from error

    def _views_of_outputs(self) -> list[Scalar | None]:
        """How each view makes one number of a sample's outputs; None where every row says which output it is."""
        asked, count = self.config.outputs, self.outputs
        if asked == FULL:
            return [None]
        if asked == RANDOM_OUTPUT:
            return [self._combination()]
        if asked == MEAN:
            if count > _MOST_OUTPUTS:
                raise InputError(
                    f"`outputs` must not be {MEAN!r} for a network with {count:,} outputs, each of which takes a "
                    f"backward pass; choose {RANDOM_OUTPUT!r}, or the number of one output."
                )
            return [_output(index) for index in range(count)]
        if int(asked) >= count:
            raise InputError(f"`outputs` must be below {count}, the number of the network's outputs; got {asked}.")
        return [_output(int(asked))]

    def _combination(self) -> Scalar:
        """A seeded random combination of the outputs."""
        drawn = np.random.default_rng(self.config.seed).normal(0.0, 1.0 / math.sqrt(self.outputs), self.outputs)
        weights = torch.from_numpy(drawn).to(self.device, self._networks[0].output_dtype)
        return lambda outputs: outputs @ weights

    def _checked(self, index: int, *, check: bool) -> list[Captured]:
        """The example captured, and the network followed in another way where a layer differs from plain autograd."""
        network, values = self._networks[index], self._values(_PROBES)
        # Where the kernel is of all outputs, a layer that the first does not depend on is looked at, too.
        several = self.outputs > 1 and self.config.outputs in (MEAN, FULL)
        scalar = self._combination() if several else self._scalar(0, self._cycled(_PROBES))
        if check and not network.batch_dependence <= max(_ALONE, self._tolerance):
            raise SelfCheckError(
                f"the network's output on a sample changes by {network.batch_dependence:.2g} with the batch it is in; "
                "samples must be independent of each other."
            )
        while True:
            started = time.perf_counter()
            try:
                captured = network.capture(values, scalar)
            except TraceMismatchError as error:
                network = network.by_autograd(error.roots)
                continue
            self.seconds_per_sample = (time.perf_counter() - started) / _PROBES
            errors = self._layer_errors(network, captured, values, scalar) if check else {}
            wrong = [block for block, error in errors.items() if not error <= self._allowed(block)]
            if not wrong:
                self.check_error = max((self.check_error, *errors.values()))
                self._networks[index] = network
                return [one.moved(self._home) for one in captured] if self._double_on_cpu else captured
            other = network.other_way(wrong)
            if other is None:
                raise SelfCheckError(
                    f"the kernel of layer {wrong[0].name!r} differs from plain autograd by {errors[wrong[0]]:.2g} of "
                    "its scale; its samples may not be independent of each other, or its forward pass not repeatable."
                )
            network = other

    def _allowed(self, block: Block) -> float:
        return self._other_batch if block.route == AUTOGRAD else self._tolerance

    @property
    def _other_batch(self) -> float:
        usual = _OTHER_BATCH_DOUBLE if self.input_dtype == torch.float64 else _OTHER_BATCH
        return max(usual, self._tolerance)

    def _layer_errors(
        self, network: Network, captured: list[Captured], values: Values, scalar: Scalar
    ) -> dict[Block, float]:
        found = check_layers(
            network, captured, values, scalar, route=self.config.route, dtype=self.dtype, seed=self.config.seed
        )
        if self.config.kind == EXACT and self.outputs == len(self._networks) == 1:
            samples = len(self.example)
            self._checked_kernel = found.kernel[:samples, :samples]
        return found.errors

    def _capture(self, view: int, x: Samples) -> list[Captured]:
        index, output = divmod(view, len(self._scalars))
        captured = self._networks[index].capture(
            x.prepared(self.device, self._prepare, self._parameter_dtype), self._scalar(output, x)
        )
        return [layer.moved(self._home) for layer in captured] if self._double_on_cpu else captured

    def _scalar(self, output: int, x: Samples) -> Scalar:
        scalar = self._scalars[output]
        if scalar is not None:
            return scalar
        chosen = torch.zeros(len(x), dtype=torch.int64) if x.outputs is None else x.outputs
        chosen = chosen.to(self.device)
        return lambda outputs: outputs.gather(1, chosen.expand(len(outputs))[:, None])[:, 0]

    def _values(self, count: int) -> Values:
        return self._prepared(self._cycled(count))

    def _prepared(self, x: Samples) -> Values:
        return x.prepared(self.device, self._prepare, self._parameter_dtype)

    def _cycled(self, count: int, distinct: int = _PROBES) -> Samples:
        """So many samples: the first ones of the example, again from the first where there are fewer distinct ones."""
        return self.example[torch.arange(count) % min(distinct, len(self.example))]

    def _passed_through(self) -> tuple[LayerCost, ...]:
        """The cost of layers whose parameters are not used, and of the second pass for plain autograd."""
        if not self.left_out and not self.by_autograd:
            return ()
        model = self._networks[0].model
        with requiring_only(model), FlopCounterMode(display=False) as counter:
            called(model, self._values(2))
        whole = int(counter.get_total_flops()) // 4  # of one of two samples, in multiply-adds
        passed = {"other layers": max(0, whole - sum(layer.forward for layer in self.map.costs))}
        passed |= {"pass for plain autograd": whole} if self.by_autograd else {}
        return tuple(LayerCost(name, 0, "passed", 0, 0, forward=cost) for name, cost in passed.items() if cost)

    def _batch(self, captured: list[Captured]) -> int:
        largest = max((t.nbytes // _PROBES for layer in captured for t in layer.tensors), default=0)
        if not largest or self.device.type != "cpu":
            return self.config.batch
        return min(self.config.batch, max(1, _LARGEST_REUSED // largest))

    def _sizes(self, captured: list[Captured]) -> Sizes:
        models = [network.model for network in self._networks]
        networks_bytes = sum(t.nbytes for model in models for t in (*model.parameters(), *model.buffers()))
        passed = sum(t.nbytes for layer in captured for t in layer.tensors)
        kept = zip(self.map.shapes, self.map.dtypes, strict=True)
        return Sizes(
            sample=self.views * sum(math.prod(shape) * (dtype or self.dtype).itemsize for shape, dtype in kept),
            formed=max(layer.formed for layer in self.costs) * self.dtype.itemsize,
            # A pass keeps inputs, outputs, what lies between the layers, and a gradient of the same size as each.
            capture=3 * passed // _PROBES,
            fixed=networks_bytes + self.map.fixed_bytes,
        )


def as_networks(models: nn.Module | Sequence[nn.Module], name: str) -> list[nn.Module]:
    """The networks of an argument `name`, of which there is at least one."""
    networks: list[Any] = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    for model in networks:
        if not isinstance(model, nn.Module):
            raise InputError(f"`{name}` must be a torch.nn.Module; got a {type(model).__name__}.")
    if not networks:
        raise InputError(f"`{name}` must hold at least one network.")
    return [getattr(model, "_orig_mod", model) for model in networks]  # as it was before torch.compile


def _output(index: int) -> Scalar:
    return lambda outputs: outputs[:, index]


def _on(device: torch.device, model: nn.Module) -> nn.Module:
    """The network itself where it is on the device, else a copy there: the caller's stays where it was."""
    here = all(t.device.type == device.type for t in (*model.parameters(), *model.buffers()))
    return model if here else copy.deepcopy(model).to(device)


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Room for factors. On the CPU numpy allocates it: it asks for large pages, which torch does not by default."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(shape, dtype=str(dtype).removeprefix("torch.")))
