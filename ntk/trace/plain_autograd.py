r"""Gradients by plain autograd: for parameters that no rule covers, and to check the rules; slower, and always right.

A check needs one backward pass: with weights :math:`w` that are drawn, the squared norms of

.. math:: \nabla_\ell \sum_i w_i f(x_i) = \sum_i w_i \nabla_\ell f(x_i)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap

from ntk.trace.inputs import Scalar, Values, called, count_rows, doubled, row_of
from ntk.trace.requirements import UnsupportedNetworkError
from projnorm.core.errors import InputError
from projnorm.core.files import reason


def per_sample_gradients(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    values: Values,
    scalar: Scalar,
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


def squared_gradient_norms(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], values: Values, scalar: Scalar, weights: Tensor
) -> list[float]:
    """Squared norm of the gradient of a weighted sum over the samples, by each parameter.

    Args:
        model: The network.
        parameters: The parameters by name; no more than one gradient is held at a time.
        values: A batch.
        scalar: Makes one number per sample of the outputs.
        weights: Weight of each sample.
    """
    for name, p in parameters.items():
        if getattr(p, "_post_accumulate_grad_hooks", None):
            raise InputError(
                f"parameter {name!r} has a hook that runs when its gradient is complete, such as a step of an "
                "optimizer; remove it, or pass self_check=False."
            )
    squares = [0.0] * len(parameters)
    gradients_before, handles = [(p, p.grad) for p in parameters.values()], []
    try:
        for p in parameters.values():
            p.grad = None
        with requiring_only(model, list(parameters.values())):
            for index, p in enumerate(parameters.values()):
                hook = _square_into(squares, index)
                handles.append(p.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]
            numbers = scalar(called(model, values))
            if not numbers.requires_grad:
                raise UnsupportedNetworkError(
                    "the network's output does not depend on the parameters that are used; it may be detached, or "
                    "computed under torch.no_grad()."
                )
            (numbers * weights.to(numbers)).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise UnsupportedNetworkError(f"autograd cannot differentiate the network: {reason(error)}.") from error
    finally:
        for handle in handles:
            handle.remove()
        for p, grad in gradients_before:
            p.grad = grad
    return squares


def _square_into(squares: list[float], index: int) -> Callable[[Tensor], None]:
    """A hook that puts the squared norm of a gradient into a list, and drops the gradient."""

    def hook(parameter: Tensor) -> None:
        assert parameter.grad is not None
        gradient = parameter.grad.detach()
        wide = torch.promote_types(gradient.dtype, torch.float32)
        squares[index] = float(torch.linalg.vector_norm(gradient, dtype=wide)) ** 2
        parameter.grad = None

    return hook


@contextmanager
def requiring_only(model: nn.Module, parameters: Sequence[nn.Parameter] = ()) -> Iterator[None]:
    """Of the parameters of a network, only these require a gradient inside, where gradients are computed."""
    flags = [(p, p.requires_grad) for p in model.parameters()]
    try:
        for p, _ in flags:
            p.requires_grad_(False)
        for p in parameters:
            p.requires_grad_(True)
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for p, flag in flags:
            p.requires_grad_(flag)


def _batched(model: nn.Module, parameters: Mapping[str, nn.Parameter], values: Values, scalar: Scalar) -> Tensor:
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


def _one_by_one(model: nn.Module, parameters: Mapping[str, nn.Parameter], values: Values, scalar: Scalar) -> Tensor:
    chosen, rows = list(parameters.values()), []
    # The recurrent networks of cuDNN have no backward pass in eval mode.
    with requiring_only(model, chosen), torch.backends.cudnn.flags(enabled=False):
        outputs = [called(model, doubled(row_of(values, i)))[:1] for i in range(count_rows(values))]
        for number in scalar(torch.cat(outputs)):
            grads = torch.autograd.grad(number, chosen, allow_unused=True, retain_graph=True)
            rows.append(_side_by_side([None if g is None else g[None] for g in grads], [p[None] for p in chosen], 1))
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
