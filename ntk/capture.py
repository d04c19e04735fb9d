"""One batched forward and backward pass that keeps, at every layer with parameters, what a gradient is made of.

With batch norm in eval mode the samples of a batch do not see each other, so the backward pass of ``f(x).sum()`` holds
the output gradient of every sample at every layer. The parameters are frozen meanwhile: no weight gradient is formed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from projnorm.errors import InputError

SUPPORTED: tuple[type[nn.Module], ...] = (nn.Conv2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass(frozen=True, slots=True, eq=False)
class Captured:
    """What one layer saw of a batch: its input, and the gradient of each sample's network output by its output."""

    name: str
    module: nn.Module
    inputs: Tensor
    grads: Tensor


class UnsupportedNetworkError(InputError):
    """A network that the engine has no exact rule for; the message names the layer."""


def parameter_layers(model: nn.Module, layers: Sequence[str] = ()) -> dict[str, nn.Module]:
    """The layers whose parameters are the coordinates of the features, by name, in the order of the network.

    Of a network in eval mode; those called, or inside a module called, as `layers` says, or all where it says nothing.
    Each must have an exact rule.
    """
    owners: dict[nn.Parameter, str] = {}
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if module.training and isinstance(module, _BatchNorm | _DropoutNd):
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) is in training mode, where samples are not independent or "
                "outputs not repeatable; call model.eval() first."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) keeps no running statistics, so samples are not independent."
            )
        parameters = list(module.parameters(recurse=False))
        if not parameters:
            continue
        for parameter in parameters:
            if parameter in owners:
                raise UnsupportedNetworkError(
                    f"layers {owners[parameter]!r} and {name!r} share a parameter; tied weights have no exact rule."
                )
            owners[parameter] = name
        found[name] = module
    chosen = {name: module for name, module in found.items() if not layers or _is_in(name, layers)}
    for wanted in layers:
        if not any(_is_in(name, [wanted]) for name in found):
            raise InputError(f"`layers` names {wanted!r}, where the network has no parameters; it has {_some(found)}.")
    for name, module in chosen.items():
        _require_rule(name, module)
    covered = count_parameters(*chosen.values())
    expected = sum(p.numel() for key, p in model.named_parameters() if not layers or _is_in(key, layers))
    if covered != expected:
        raise UnsupportedNetworkError(f"the rules cover {covered:,} of {expected:,} parameters.")
    if not chosen:
        raise UnsupportedNetworkError("the network has no parameters.")
    return chosen


def count_parameters(*layers: nn.Module) -> int:
    """Parameters that these layers own themselves."""
    return sum(p.numel() for layer in layers for p in layer.parameters(recurse=False))


def capture(model: nn.Module, layers: Mapping[str, nn.Module], x: Tensor) -> list[Captured]:
    """Inputs and output gradients of `layers`, which come from `parameter_layers`, for the batch `x`."""
    inputs: dict[str, Tensor] = {}
    versions: dict[str, int] = {}
    grads: dict[str, Tensor] = {}
    leaves: list[Tensor] = []

    def keep(name: str, x_in: Tensor, out: Tensor) -> Tensor:
        if name in inputs:
            raise UnsupportedNetworkError(f"layer {name!r} is called more than once in a forward pass.")
        inputs[name], versions[name] = x_in.detach(), x_in._version  # noqa: SLF001
        if not out.requires_grad:
            # Nothing before this layer has a gradient: the backward pass may end here. The copy can be changed in
            # place by a ReLU, which a leaf cannot.
            leaves.append(out.requires_grad_())
            out = out.clone()
        out.register_hook(partial(grads.__setitem__, name))  # type: ignore[no-untyped-call]
        return out

    with requiring_grad(model.parameters(), required=False), _hooked(layers, keep), torch.enable_grad():
        outputs = model(x)
        if not _one_number_a_sample(outputs, len(x)):
            shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise UnsupportedNetworkError(
                f"the network must give one number per sample; got {shape} for a batch of {x.shape[0]}. Replace its "
                "last layer by one with a single output."
            )
        for name in layers:
            if name not in inputs:
                raise UnsupportedNetworkError(f"layer {name!r} is not called in the forward pass.")
        torch.autograd.grad(outputs.sum(), leaves, allow_unused=True)
    for name, module in layers.items():
        if inputs[name]._version != versions[name]:  # noqa: SLF001
            raise UnsupportedNetworkError(
                f"the input of layer {name!r} ({type(module).__name__}) is changed in place after the layer has used "
                "it; use the out-of-place operation."
            )
        if name not in grads:
            raise UnsupportedNetworkError(f"the output does not depend on layer {name!r}.")
        _require_rows(name, module, inputs[name], grads[name], len(x))
    return [Captured(name, module, inputs[name], grads[name].detach()) for name, module in layers.items()]


@contextmanager
def requiring_grad(parameters: Iterable[nn.Parameter], *, required: bool) -> Iterator[None]:
    """Let parameters require a gradient, or none, for the time being."""
    flags = [(parameter, parameter.requires_grad) for parameter in parameters]
    for parameter, _ in flags:
        parameter.requires_grad_(required)
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def _one_number_a_sample(outputs: object, samples: int) -> bool:
    """Also where a single sample was squeezed to a number without a shape."""
    if not isinstance(outputs, Tensor) or outputs.numel() != samples:
        return False
    return outputs.ndim == 0 or outputs.shape[0] == samples


def _require_rows(name: str, module: nn.Module, given: Tensor, grads: Tensor, samples: int) -> None:
    """What the rules take for granted of a layer's input: one sample per row, and for a linear layer nothing else."""
    described = f"layer {name!r} ({type(module).__name__})"
    if not len(given) == len(grads) == samples:
        raise UnsupportedNetworkError(
            f"{described} sees {len(given)} rows in a batch of {samples}; it must see samples."
        )
    dimensions = {nn.Linear: (2,), nn.Conv2d: (4,)}.get(type(module), (2, 3, 4))
    if given.ndim not in dimensions:
        raise UnsupportedNetworkError(f"{described} sees an input of shape {tuple(given.shape)}, which has no rule.")


@contextmanager
def _hooked(layers: Mapping[str, nn.Module], keep: Callable[..., Tensor]) -> Iterator[None]:
    with ExitStack() as stack:
        for name, module in layers.items():
            handle = module.register_forward_hook(
                lambda _module, args, named, out, name=name: keep(name, *args, *named.values(), out),
                with_kwargs=True,
            )
            stack.callback(handle.remove)
        yield


def _require_rule(name: str, module: nn.Module) -> None:
    described = f"layer {name!r} ({type(module).__name__})"
    if type(module) not in SUPPORTED:
        raise UnsupportedNetworkError(
            f"{described} has parameters and no exact rule; supported are {', '.join(t.__name__ for t in SUPPORTED)}."
        )
    known = {"weight", "bias"}
    if extra := {key for key, _ in module.named_parameters(recurse=False)} - known:
        raise UnsupportedNetworkError(f"{described} has parameters without a rule: {', '.join(sorted(extra))}.")
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            raise UnsupportedNetworkError(f"{described} has groups={module.groups}; only groups=1 has a rule.")
        if module.padding_mode != "zeros":
            raise UnsupportedNetworkError(f"{described} pads with {module.padding_mode!r}; only zeros have a rule.")


def _is_in(name: str, layers: Sequence[str]) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def _some(found: Mapping[str, nn.Module], count: int = 5) -> str:
    names = list(found)
    return ", ".join(names[:count]) + (", ..." if len(names) > count else "")
