"""Small networks of every kind that people use, each with inputs, and whether plain autograd must cover a parameter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Kind:
    """A kind of network.

    Attributes:
        make: Makes it.
        shape: Shape of a sample; of whole numbers below 7 where `tokens`.
        left: Parts of the names of parameters that are left to plain autograd.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (5, 6)
    tokens: bool = False
    left: tuple[str, ...] = ()


class Put(nn.Module):
    """A network of modules and parameters, put together by a function of itself and the input."""

    def __init__(self, combined: Callable[[Any, Tensor], Tensor], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self._combined = combined
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, Tensor) else part)

    def forward(self, x: Tensor) -> Tensor:
        return self._combined(self, x)


class Mean(nn.Module):
    """The mean over all axes but the first and the last, and one number of what is left."""

    def __init__(self, width: int, outputs: int = 1) -> None:
        super().__init__()
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x).flatten(1, -2).mean(1) if x.ndim > 2 else x)


def pooled(*layers: nn.Module, channels: int) -> nn.Module:
    """Layers on images, a nonlinearity, and one number of the channels."""
    return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(2), Moved(), Mean(channels))


class Moved(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1)


class Own(nn.Linear):
    """A subclass with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias) * 2.0


class OwnRms(nn.Module):
    """As many language models write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.rnn, self.mean = kind(6, 4, batch_first=True, **options), Mean(4 * (1 + options.get("bidirectional", 0)))

    def forward(self, x: Tensor) -> Tensor:
        return self.mean(self.rnn(x)[0])


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool, other: bool = False) -> None:
        super().__init__()
        sizes = {"kdim": 3, "vdim": 3} if other else {}
        self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first, **sizes)
        self.mean, self.batch_first, self.other = Mean(6), batch_first, other

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        keys = x[..., :3] if self.other else x
        out = self.attention(x, keys, keys)[0]
        return self.mean(out if self.batch_first else out.transpose(0, 1))


def vit(net: Any, x: Tensor) -> Tensor:
    x = net.patch(x).flatten(2).transpose(1, 2)
    x = torch.cat([net.cls.expand(len(x), -1, -1), x], 1) + net.position
    x = x + net.gamma * net.block(x)
    return net.head(net.norm(x)[:, 0])


def bert(net: Any, x: Tensor) -> Tensor:
    positions = torch.arange(x.shape[1])[None]
    types = torch.zeros_like(x)
    y = net.norm(net.words(x) + net.positions(positions) + net.types(types))
    return net.mean(net.layer(y))


def tied(net: Any, x: Tensor) -> Tensor:
    y = torch.tanh(net.mix(net.words(x)))
    return functional.linear(y, net.words.weight).logsumexp(-1).mean(1, keepdim=True)


def experts(net: Any, x: Tensor) -> Tensor:
    """Rows are sent to one of two layers by their sign."""
    flat = x.flatten(0, 1)
    first = flat[:, 0] > 0
    out = torch.zeros(len(flat), 4, dtype=x.dtype)
    out = out.index_put((first.nonzero()[:, 0],), net.a(flat[first]))
    out = out.index_put(((~first).nonzero()[:, 0],), net.b(flat[~first]))
    return net.mean(out.unflatten(0, x.shape[:2]))


def twice(net: Any, x: Tensor) -> Tensor:
    return net.mean(torch.tanh(net.a(torch.tanh(net.a(x)))))


def scaled_in_place(net: Any, x: Tensor) -> Tensor:
    y = net.a(x)
    y *= net.gamma
    y += net.beta
    return net.mean(torch.tanh(y))


class Doubled(torch.autograd.Function):
    """A function of its own, which no mode sees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g * w, (g * x).sum((0, 1))


def frozen_weight() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), Mean(4))
    model[0].weight.requires_grad_(False)
    return model


def normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), norm, Mean(4))


def conv(directions: int, *, transposed: bool = False, **options: Any) -> Kind:
    name = f"Conv{'Transpose' if transposed else ''}{directions}d"
    layer = {"kernel_size": 3, **options}
    wider = 4 if options.get("groups", 1) in (1, 2) else 6
    shape = (2 if wider == 4 else 3, *(6, 5, 4)[:directions])
    return Kind(lambda: pooled(getattr(nn, name)(shape[0], wider, **layer), channels=wider), shape)


KINDS: dict[str, Kind] = {
    "MLP": Kind(lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1)), (6,)),
    "linear on tokens": Kind(lambda: nn.Sequential(nn.Linear(6, 4), Mean(4))),
    "LayerNorm": Kind(lambda: normed(nn.LayerNorm(4))),
    "LayerNorm over two axes": Kind(lambda: normed(nn.LayerNorm((5, 4)))),
    "RMSNorm": Kind(lambda: normed(nn.RMSNorm(4))),
    "RMSNorm written out": Kind(lambda: normed(OwnRms(4))),
    "GroupNorm": Kind(lambda: pooled(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), channels=4), (2, 6, 5)),
    "InstanceNorm": Kind(lambda: pooled(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), channels=4), (2, 6, 5)),
    "InstanceNorm with running statistics": Kind(
        lambda: pooled(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), channels=4),
        (2, 6, 5),
    ),
    "BatchNorm1d on sequences": Kind(lambda: pooled(nn.Conv1d(5, 4, 3), nn.BatchNorm1d(4), channels=4), (5, 6)),
    "Embedding": Kind(lambda: nn.Sequential(nn.Embedding(7, 4), Mean(4)), (5,), tokens=True),
    "Embedding with padding": Kind(
        lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=0), Mean(4)), (5,), tokens=True
    ),
    "attention, samples first": Kind(lambda: Attention(batch_first=True)),
    "attention, tokens first": Kind(lambda: Attention(batch_first=False)),
    "attention to other widths": Kind(lambda: Attention(batch_first=True, other=True)),
    "transformer encoder": Kind(
        lambda: nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2), Mean(6))
    ),
    "transformer encoder, norm first": Kind(
        lambda: nn.Sequential(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True, norm_first=True), Mean(6))
    ),
    "vision transformer": Kind(
        lambda: Put(
            vit,
            patch=nn.Conv2d(3, 6, 4, stride=4),
            cls=torch.randn(1, 1, 6),
            position=torch.randn(1, 5, 6),
            gamma=torch.rand(6),
            block=nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
            norm=nn.LayerNorm(6),
            head=nn.Linear(6, 1),
        ),
        (3, 8, 8),
    ),
    "BERT": Kind(
        lambda: Put(
            bert,
            words=nn.Embedding(7, 6, padding_idx=0),
            positions=nn.Embedding(9, 6),
            types=nn.Embedding(2, 6),
            norm=nn.LayerNorm(6),
            layer=nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
            mean=Mean(6),
        ),
        (5,),
        tokens=True,
    ),
    "tied weights": Kind(lambda: Put(tied, words=nn.Embedding(7, 4), mix=nn.Linear(4, 4)), (5,), tokens=True),
    "a layer called twice": Kind(lambda: Put(twice, a=nn.Linear(6, 6), mean=Mean(6))),
    "a convolution called twice": Kind(lambda: pooled(*[nn.Conv2d(2, 2, 3, padding=1)] * 2, channels=2), (2, 6, 5)),
    "depthwise": conv(2, groups=3, padding=1),
    "grouped": conv(2, groups=2, stride=2),
    "Conv1d": conv(1, padding=2, dilation=2),
    "Conv1d, same": conv(1, padding="same"),
    "Conv1d, grouped": conv(1, groups=2),
    "Conv3d": conv(3, stride=(2, 1, 1), padding=1),
    "Conv3d, grouped and dilated": conv(3, groups=2, kernel_size=2, dilation=(2, 1, 2)),
    "ConvTranspose1d": conv(1, transposed=True, stride=2, output_padding=1),
    "ConvTranspose2d": conv(2, transposed=True, stride=2, padding=1),
    "ConvTranspose2d, grouped": conv(2, transposed=True, groups=2, dilation=2),
    "ConvTranspose3d": conv(3, transposed=True),
    "reflected padding": conv(2, padding=1, padding_mode="reflect"),
    "circular padding": conv(2, padding=(1, 2), padding_mode="circular"),
    "PReLU": Kind(lambda: pooled(nn.Conv2d(2, 4, 3), nn.PReLU(4), channels=4), (2, 6, 5)),
    "PReLU with one slope": Kind(lambda: nn.Sequential(nn.Linear(6, 4), nn.PReLU(), Mean(4))),
    "weight norm": Kind(lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4)), nn.Tanh(), Mean(4))),
    "spectral norm": Kind(lambda: pooled(parametrizations.spectral_norm(nn.Conv2d(2, 4, 3)), channels=4), (2, 6, 5)),
    "orthogonal weight": Kind(lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(6, 4)), nn.Tanh(), Mean(4))),
    "a subclass of Linear": Kind(lambda: nn.Sequential(Own(6, 4), nn.Tanh(), Mean(4))),
    "a weight used as a function, too": Kind(
        lambda: Put(
            lambda net, x: net.mean(net.a(x) + functional.linear(x, net.a.weight) ** 2), a=nn.Linear(6, 4), mean=Mean(4)
        )
    ),
    "a matrix product": Kind(
        lambda: Put(
            lambda net, x: net.mean(torch.tanh(x @ net.w + net.b)), w=torch.randn(6, 4), b=torch.randn(4), mean=Mean(4)
        )
    ),
    "addmm on flattened tokens": Kind(
        lambda: Put(
            lambda net, x: net.mean(torch.tanh(torch.addmm(net.b, x.view(-1, 6), net.w)).view(-1, 5, 4)),
            w=torch.randn(6, 4),
            b=torch.randn(4),
            mean=Mean(4),
        )
    ),
    "tokens flattened with samples inside": Kind(
        lambda: Put(
            lambda net, x: net.mean(torch.tanh(net.a(x.transpose(0, 1).reshape(-1, 6))).view(5, -1, 4).transpose(0, 1)),
            a=nn.Linear(6, 4),
            mean=Mean(4),
        )
    ),
    "frames folded into the batch": Kind(
        lambda: Put(
            lambda net, x: net.mean(net.a(x.flatten(0, 1)).unflatten(0, (-1, 3)).flatten(3).movedim(2, -1)),
            a=nn.Conv2d(2, 4, 3),
            mean=Mean(4),
        ),
        (3, 2, 5, 4),
    ),
    "scale and shift in place": Kind(
        lambda: Put(scaled_in_place, a=nn.Linear(6, 4), gamma=torch.rand(4), beta=torch.rand(4), mean=Mean(4))
    ),
    "a branch that is not called": Kind(
        lambda: Put(lambda net, x: net.mean(net.a(x)), a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4))
    ),
    "a branch that does not matter": Kind(
        lambda: Put(
            lambda net, x: (net.b(x), net.mean(net.a(x)))[1], a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4)
        )
    ),
    "a branch without gradient": Kind(
        lambda: Put(
            lambda net, x: net.mean(net.a(x) * net.b(x).detach()), a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4)
        )
    ),
    "a frozen weight": Kind(frozen_weight),
    "squeezed": Kind(lambda: Put(lambda net, x: net.a(x).squeeze(), a=nn.Linear(6, 1)), (6,)),
    "LSTM": Kind(lambda: Recurrent(nn.LSTM, bidirectional=True), left=("rnn",)),
    "GRU": Kind(lambda: Recurrent(nn.GRU, num_layers=2), left=("rnn",)),
    "bilinear": Kind(
        lambda: Put(lambda net, x: net.mean(net.a(x, x)), a=nn.Bilinear(6, 6, 4), mean=Mean(4)), left=("a.",)
    ),
    "einsum": Kind(
        lambda: Put(lambda net, x: net.mean(torch.einsum("nti,ij->ntj", x, net.w)), w=torch.randn(6, 4), mean=Mean(4)),
        left=("w",),
    ),
    "mixture of experts": Kind(
        lambda: Put(experts, a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4)), left=("a.", "b.")
    ),
    "checkpointed": Kind(
        lambda: Put(lambda net, x: net.mean(checkpoint(net.a, x, use_reentrant=False)), a=nn.Linear(6, 4), mean=Mean(4))
    ),
    "a function of its own": Kind(
        lambda: Put(lambda net, x: net.mean(Doubled.apply(x, net.w)), w=torch.randn(6), mean=Mean(6)), left=("w",)
    ),
    "positions interpolated": Kind(
        lambda: Put(
            lambda net, x: net.mean(
                torch.tanh(x + functional.interpolate(net.p, size=5, mode="linear").transpose(1, 2))
            ),
            p=torch.randn(1, 6, 3),
            mean=Mean(6),
        )
    ),
    "latent queries": Kind(
        lambda: Put(
            lambda net, x: net.mean(functional.scaled_dot_product_attention(net.q.repeat(len(x), 1, 1), net.k(x), x)),
            q=torch.randn(1, 3, 6),
            k=nn.Linear(6, 6),
            mean=Mean(6),
        )
    ),
}


def made(kind: Kind, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The network with seeded weights, in eval mode."""
    torch.manual_seed(seed)
    model = kind.make().to(dtype).eval()
    with torch.no_grad():
        for buffer in model.buffers():
            if buffer.is_floating_point() and buffer.ndim == 1 and buffer.min() >= 0:
                buffer.add_(0.3 * torch.rand_like(buffer))
    return model


def samples(kind: Kind, count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if kind.tokens:
        return torch.randint(0, 7, (count, *kind.shape), generator=generator)
    return torch.randn(count, *kind.shape, generator=generator, dtype=torch.float64)


def plain_gradients(model: nn.Module, x: Tensor, output: int = 0) -> dict[str, Tensor]:
    """Gradients of every sample, one backward pass each, by the name of the parameter.

    In a batch of two, since torch 2.13 has a wrong gradient of an instance norm for a batch of one.
    """
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for sample in x:
        number = model(torch.stack([sample, sample])).reshape(2, -1)[0, output]
        grads = torch.autograd.grad(number, list(named.values()), allow_unused=True)
        for (name, p), g in zip(named.items(), grads, strict=True):
            rows[name].append(torch.zeros_like(p).flatten() if g is None else g.flatten())
    return {name: torch.stack(row) for name, row in rows.items()}
