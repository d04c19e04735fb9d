"""What a network must be for its samples to have gradients of their own, and which of its parameters are used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils.parametrizations import _SpectralNorm

from projnorm.core.errors import InputError


class UnsupportedNetworkError(InputError):
    """A network whose samples have no gradients of their own; the message names the layer."""


class UsedParameters(NamedTuple):
    """The parameters of a network that its kernel is of.

    Attributes:
        used: These parameters by name.
        left_out: Names of the other parameters.
    """

    used: dict[str, nn.Parameter]
    left_out: tuple[str, ...]


def used_parameters(model: nn.Module, layers: Sequence[str], *, frozen: bool) -> UsedParameters:
    """The parameters of these layers, or of all; those that require no gradient only with `frozen`."""
    everything = dict(model.named_parameters())
    for layer in layers:
        if not any(_is_in(name, [layer]) for name in everything):
            raise InputError(
                f"`layers` names {layer!r}, where the network has no parameters; it has {_some(everything)}."
            )
    if not everything:
        raise UnsupportedNetworkError("the network has no parameters.")
    inside = {name: p for name, p in everything.items() if not layers or _is_in(name, layers)}
    chosen = {name: p for name, p in inside.items() if frozen or p.requires_grad}
    if not chosen:
        raise InputError("all parameters are frozen (`requires_grad` is False); pass frozen=True to use them.")
    for name, p in chosen.items():
        if not p.is_floating_point():
            raise InputError(f"parameter {name!r} is of {p.dtype}; `layers` must name parameters of real numbers.")
    if any(p.is_inference() for p in chosen.values()):
        raise InputError("the network was made under torch.inference_mode(), so it has no gradients; make it outside.")
    return UsedParameters(chosen, tuple(name for name in everything if name not in chosen))


def require_independence(model: nn.Module) -> None:
    """Refuse layers in training mode, and batch norms without running statistics, by name."""
    for name, module in model.named_modules():
        tracks = isinstance(module, _InstanceNorm) and module.running_mean is not None
        if module.training and (tracks or isinstance(module, _BatchNorm | _DropoutNd | _SpectralNorm)):
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) is in training mode, where samples are not independent, "
                "outputs not repeatable or buffers changed; call model.eval() first."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise UnsupportedNetworkError(
                f"layer {name!r} ({type(module).__name__}) keeps no running statistics, so samples are not independent."
            )


def require_eval(model: nn.Module) -> None:
    """Of a network that draws random numbers: a few samples may not show what a random path does to others."""
    name, module = next(((name, layer) for name, layer in model.named_modules() if layer.training), ("", None))
    if module is not None:
        raise UnsupportedNetworkError(
            f"the forward pass draws random numbers, and layer {name!r} ({type(module).__name__}) is in training mode; "
            "call model.eval() first."
        )


def _is_in(name: str, layers: Sequence[str]) -> bool:
    return any(name == layer or name.startswith(f"{layer}.") for layer in layers)


def _some(names: Iterable[str], count: int = 5) -> str:
    owners = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
    return ", ".join(owners[:count]) + (", ..." if len(owners) > count else "")
