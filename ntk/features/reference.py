r"""The kernel straight from its definition, with `torch.func`: slow, plain, and what the engine is tested against.

.. math:: K(x, x') = \langle\nabla_\theta f(x;\theta), \nabla_\theta f(x';\theta)\rangle
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap


def reference_gradients(model: nn.Module, x: Tensor, *, chunk_size: int | None = None) -> Tensor:
    r"""Gradient features :math:`\nabla_\theta f(x_i;\theta)`, shape ``(n, parameters)``, in their order.

    Args:
        model: A network with one output per sample, in eval mode.
        x: Inputs, one sample per row.
        chunk_size: Samples that `torch.func.vmap` takes at once; all by default.

    Example:
        >>> import torch
        >>> from ntk import reference_gradients
        >>> reference_gradients(torch.nn.Linear(2, 1), torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2., 1.]])
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def output(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(model, (parameters, buffers), (sample[None],)).reshape(())

    gradients = vmap(grad(output), in_dims=(None, 0), chunk_size=chunk_size)(parameters, x)
    return torch.cat([gradients[name].reshape(x.shape[0], -1) for name in parameters], dim=1)


def reference_gram(model: nn.Module, x: Tensor, y: Tensor | None = None, *, chunk_size: int | None = None) -> Tensor:
    """Kernel of `x` with `y`, or with itself, shape ``(len(x), len(y))``; arguments as in `reference_gradients`.

    Example:
        >>> import torch
        >>> from ntk import reference_gram
        >>> model, x = torch.nn.Linear(2, 1), torch.tensor([[1.0, 0.0], [1.0, 2.0]])
        >>> reference_gram(model, x)
        tensor([[2., 2.],
                [2., 6.]])
    """
    rows = reference_gradients(model, x, chunk_size=chunk_size)
    return rows @ (rows if y is None else reference_gradients(model, y, chunk_size=chunk_size)).T
