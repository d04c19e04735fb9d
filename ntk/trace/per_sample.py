"""Gradients of every sample by plain autograd, for parameters that no rule covers: slower, and always right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from ntk.trace.inputs import Values, called, count_rows, doubled, row_of


def per_sample_gradients(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    values: Values,
    scalar: Callable[[Tensor], Tensor],
    *,
    one_by_one: bool = False,
) -> Tensor:
    """Gradients by some parameters, one row a sample: each sample gets a copy of them under `torch.func.vmap`.

    Where a call of the network cannot be batched, the samples pass one by one.

    Args:
        model: The network.
        parameters: The parameters by name.
        values: A batch.
        scalar: Makes one number per sample of the outputs.
        one_by_one: Whether the samples pass one by one in any case.
    """
    if not one_by_one:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of calls that are batched by a loop
                return _batched(model, parameters, values, scalar)
        except (
            RuntimeError,
            ValueError,
            IndexError,
            TypeError,
        ):  # of networks that treat one sample in another way, too
            pass
    return _one_by_one(model, parameters, values, scalar)


@contextmanager
def requiring_only(model: nn.Module, wanted: Sequence[nn.Parameter] = ()) -> Iterator[None]:
    """Of the parameters of a network, only these require a gradient inside, where gradients are computed."""
    flags = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in flags:
            p.requires_grad_(False)
        for p in wanted:
            p.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for p, flag in flags:
            p.requires_grad_(flag)


def _batched(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], values: Values, scalar: Callable[[Tensor], Tensor]
) -> Tensor:
    samples = count_rows(values)
    copies = {name: p.detach().expand(samples, *p.shape).clone().requires_grad_() for name, p in parameters.items()}

    def one(copy: dict[str, Tensor], sample: Any) -> Tensor:
        batch = {name: t[None] for name, t in sample.items()} if isinstance(sample, dict) else sample[None]
        with _replaced(model, {id(p): copy[name] for name, p in parameters.items()}):
            return called(model, batch)[0]

    with requiring_only(model):
        outputs = vmap(one)(copies, values)
        grads = torch.autograd.grad(scalar(outputs).sum(), list(copies.values()), allow_unused=True)
    return _side_by_side(grads, list(copies.values()), samples)


@contextmanager
def _replaced(model: nn.Module, values: Mapping[int, Tensor]) -> Iterator[None]:
    """Other values for parameters, by their identity, wherever a module holds them."""
    held = [
        (module, name, p)
        for module in model.modules()
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False)
        if id(p) in values
    ]
    for module, name, p in held:
        module._parameters[name] = values[id(p)]  # type: ignore[assignment] # noqa: SLF001
    try:
        yield
    finally:
        for module, name, p in held:
            module._parameters[name] = p  # noqa: SLF001


def _one_by_one(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], values: Values, scalar: Callable[[Tensor], Tensor]
) -> Tensor:
    wanted, rows = list(parameters.values()), []
    # The recurrent networks of cuDNN have no backward pass in eval mode.
    with requiring_only(model, wanted), torch.backends.cudnn.flags(enabled=False):
        outputs = [called(model, doubled(row_of(values, i)))[:1] for i in range(count_rows(values))]
        for number in scalar(torch.cat(outputs)):
            grads = torch.autograd.grad(number, wanted, allow_unused=True, retain_graph=True)
            rows.append(_side_by_side([None if g is None else g[None] for g in grads], [p[None] for p in wanted], 1))
    return torch.cat(rows)


def _side_by_side(grads: Sequence[Tensor | None], like: Sequence[Tensor], samples: int) -> Tensor:
    """Gradients of all parameters in one row a sample; zero where the output does not depend on one."""
    return torch.cat(
        [
            p.detach().new_zeros(samples, p[0].numel()) if g is None else g.detach().reshape(samples, -1)
            for g, p in zip(grads, like, strict=True)
        ],
        dim=1,
    )
