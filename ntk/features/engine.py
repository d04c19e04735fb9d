"""A network and a kind of features, ready to give panels of factors and blocks of the kernel."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ntk.features.contraction import Factors, Workspace
from ntk.features.feature_maps import CoordinateMap, ExactMap, FeatureMap, LayerCost
from ntk.features.output_views import OutputViews
from ntk.features.projection import ProjectionMap
from ntk.features.self_check import CheckedNetwork, SelfCheck, SelfCheckError, captured_network
from ntk.features.sizes import Sizes
from ntk.kernel_config import COORDINATES, EXACT, FULL, KernelConfig
from ntk.trace.group_gradients import GroupGradients
from ntk.trace.inputs import Prepare, Samples, Values, called, values_hash
from ntk.trace.parameter_groups import AUTOGRAD
from ntk.trace.plain_autograd import requiring_only
from ntk.trace.requirements import UnsupportedNetworkError
from ntk.trace.traced_network import TracedNetwork
from ntk.trace.uses import TraceMismatchError
from projnorm.core.device import choose_device
from projnorm.core.errors import InputError
from projnorm.core.files import reason

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
# The largest block that glibc's malloc keeps for the next tensor; a larger one comes from the system page by page.
_LARGEST_REUSED = 1 << 25


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
        self_check: What the rules are compared with plain autograd by.
        output_dtype: Type of the outputs of the networks.
        dtype: Type of the products.
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
        options = trace_options or [TraceOptions()] * len(networks)
        traced = [self._traced(_on(self.device, network), how) for network, how in zip(networks, options, strict=True)]
        self.outputs, self.output_dtype = traced[0].outputs, traced[0].output_dtype
        self._output_views = OutputViews(self.config, self.outputs, self.output_dtype, self.device)
        self.dtype = torch.promote_types(
            torch.promote_types(self.output_dtype, torch.float32), getattr(torch, self.config.accumulate)
        )
        self.self_check = SelfCheck(self.config.route, self.dtype, self.output_dtype, self.config.seed)
        check = trace_options is None and self.config.self_check
        looked_at = [self._looked_at(network, check=check) for network in traced]
        self._networks = [checked.network for checked in looked_at]
        first = self._networks[0]
        if any(network.groups != first.groups or network.outputs != self.outputs for network in self._networks):
            raise InputError("`models` must all have the same layers.")
        checks = [checked.check for checked in looked_at if checked.check is not None]
        self.check_error = max((max(check.errors.values()) for check in checks), default=0.0)
        self.seconds_per_sample = looked_at[-1].seconds / _PROBES
        self._checked_kernel = self._kernel_of_check(looked_at)
        self._captured = self._moved_home(looked_at[0].captured)
        self.map: FeatureMap = _feature_map(self.config, self._captured)
        self.views = len(self._networks) * len(self._output_views)
        self.parameters = sum(group.size for group in first.groups)
        self.left_out, self.by_autograd = first.left_out, dict(first.reasons)
        self.trace_options = tuple(
            TraceOptions(dict(network.reasons), network.samples_innermost, network.one_by_one)
            for network in self._networks
        )
        self.costs = self.map.costs + self._passed_through()
        self.sizes = self._sizes(self._captured)
        self.batch = self._batch(self._captured)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in the order of the features."""
        network = self._networks[0]
        return tuple(network.names[index] for group in network.groups for index in group.parameters)

    @property
    def rows_per_sample(self) -> int:
        """Number of rows of the kernel that a sample has."""
        return self._output_views.rows_per_sample

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
        """The factors of the samples `x`, `batch` at a time, in the memory of `panel`; returns views of it."""
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

    def _traced(self, model: nn.Module, options: TraceOptions) -> TracedNetwork:
        """The network with its parameters followed, which shows whether the inputs suit it."""
        config = self.config
        try:
            return TracedNetwork(
                model,
                # The same two in both passes, so that branches which depend on the samples are the same.
                *(self._prepared(self._cycled(count, distinct=2)) for count in (2, 3)),
                layers=config.layers,
                frozen=config.frozen,
                only_autograd=config.route == AUTOGRAD,
                **asdict(options),
            )
        except (InputError, torch.OutOfMemoryError):
            raise
        except _OF_A_NETWORK as error:
            kinds = ", ".join(
                f"{str(t.dtype).removeprefix('torch.')} samples of shape {tuple(t.shape[1:])}"
                for t in self.example.tensors.values()
            )
            raise InputError(f"inputs must suit the network; given {kinds}, it says: {reason(error)}.") from error

    def _looked_at(self, network: TracedNetwork, *, check: bool) -> CheckedNetwork:
        """The captured example of a network, compared with plain autograd if the configuration says so."""
        values = self._values(_PROBES)
        scalar = self._output_views.check_scalar(self._cycled(_PROBES))
        if check:
            return self.self_check.checked(network, values, scalar)
        return captured_network(network, values, scalar)

    def _kernel_of_check(self, looked_at: Sequence[CheckedNetwork]) -> np.ndarray | None:
        """The kernel of the example as the check computed it; None where it checked another kernel."""
        check, samples = looked_at[0].check, len(self.example)
        if check is None or self.config.kind != EXACT or self.outputs > 1 or len(looked_at) > 1:
            return None
        return check.kernel[:samples, :samples]

    def _moved_home(self, captured: list[GroupGradients]) -> list[GroupGradients]:
        return [layer.moved(self._home) for layer in captured] if self._double_on_cpu else captured

    def _capture(self, view: int, x: Samples) -> list[GroupGradients]:
        index, output = divmod(view, len(self._output_views))
        scalar = self._output_views.scalar(output, x)
        return self._moved_home(self._networks[index].capture(self._prepared(x), scalar))

    def _values(self, count: int) -> Values:
        return self._prepared(self._cycled(count))

    def _prepared(self, x: Samples) -> Values:
        return x.prepared(self.device, self._prepare, self._parameter_dtype)

    def _cycled(self, count: int, distinct: int = _PROBES) -> Samples:
        """The first `distinct` samples of the example, over and over, until there are `count`."""
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

    def _batch(self, captured: list[GroupGradients]) -> int:
        largest = max((t.nbytes // _PROBES for layer in captured for t in layer.tensors), default=0)
        if not largest or self.device.type != "cpu":
            return self.config.batch
        return min(self.config.batch, max(1, _LARGEST_REUSED // largest))

    def _sizes(self, captured: list[GroupGradients]) -> Sizes:
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


def _feature_map(config: KernelConfig, sample: Sequence[GroupGradients]) -> FeatureMap:
    """The map of the kind, count, seed and route of a configuration, for layers of the sizes of one captured sample."""
    if config.kind == EXACT:
        return ExactMap(sample, route=config.route)
    rng = np.random.default_rng(config.seed)
    if config.kind == COORDINATES:
        return CoordinateMap(sample, config.count, rng, route=config.route)
    return ProjectionMap(sample, config.count, rng)


def as_networks(models: nn.Module | Sequence[nn.Module], name: str) -> list[nn.Module]:
    """The networks of an argument `name`, of which there is at least one."""
    networks: list[Any] = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    for model in networks:
        if not isinstance(model, nn.Module):
            raise InputError(f"`{name}` must be a torch.nn.Module; got a {type(model).__name__}.")
    if not networks:
        raise InputError(f"`{name}` must hold at least one network.")
    return [getattr(model, "_orig_mod", model) for model in networks]  # as it was before torch.compile


def _on(device: torch.device, model: nn.Module) -> nn.Module:
    """The network itself where it is on the device, else a copy there: the caller's stays where it was."""
    here = all(t.device.type == device.type for t in (*model.parameters(), *model.buffers()))
    return model if here else copy.deepcopy(model).to(device)


def _empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for factors. On the CPU numpy allocates it: it asks for large pages, which torch does not by default."""
    if device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.empty(shape, dtype=str(dtype).removeprefix("torch.")))
