"""Small random networks with every layer that has a rule, and one plain network."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn


class Residual(nn.Module):
    """Two convolutions and a shortcut, added in place or not, with one ReLU used twice."""

    def __init__(self, channels: int, *, inplace: bool, down: bool) -> None:
        super().__init__()
        stride = 2 if down else 1
        self.conv = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 1)
        self.shortcut = nn.Conv2d(channels, channels, 1, stride=2) if down else None
        self.relu = nn.ReLU(inplace=inplace)
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.relu(self.bn(self.conv(x))))
        same = x if self.shortcut is None else self.shortcut(x)
        if self.inplace:
            out += same
        else:
            out = out + same
        return self.relu(out)


class Centred(nn.Module):
    """Samples that see each other."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Flat(nn.Module):
    """Pictures to rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def settled(model: nn.Module, seed: int) -> nn.Module:
    """The network in double precision and eval mode, with parameters and running statistics drawn."""
    generator = torch.Generator().manual_seed(seed)
    model = model.double().eval()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
    return model


def images(count: int, channels: int = 3, size: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, channels, size, size, generator=generator, dtype=torch.float64)


def plain_network(seed: int = 0) -> nn.Module:
    """A network with a direct and a structured convolution, batch norm and two linear layers, for 3 x 8 x 8 inputs."""
    layers = (
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 40, 3, stride=2),
        nn.ReLU(),
        Flat(),
        nn.Linear(40, 5),
        nn.Tanh(),
        nn.Linear(5, 1),
    )
    return settled(nn.Sequential(*layers), seed)


@st.composite
def networks(draw) -> tuple[nn.Module, Tensor]:
    """A network of drawn layers and a few inputs for it."""
    channels, size = draw(st.integers(1, 3)), draw(st.integers(5, 8))
    x = images(draw(st.integers(1, 4)), channels, size, seed=draw(st.integers(0, 99)))
    layers: list[nn.Module] = []
    seed = draw(st.integers(0, 99))
    kinds = st.sampled_from(["conv", "conv", "norm", "relu", "max", "mean", "residual"])
    for kind in draw(st.lists(kinds, min_size=1, max_size=5)):
        # Torch itself refuses a ReLU in place on the output of a ReLU.
        after_relu = bool(layers) and isinstance(layers[-1], nn.ReLU | Residual)
        layer, wider = _layer(draw, kind, channels, may_replace=not after_relu)
        trial = nn.Sequential(*layers, layer).double().eval()
        try:
            with torch.no_grad():
                smallest = min(trial(x).shape[2:])
        except RuntimeError:  # the picture has become too small for this layer
            continue
        if smallest >= 1:
            layers.append(layer)
            channels = wider
    with torch.no_grad():
        width = nn.Sequential(*layers).double().eval()(x).flatten(1).shape[1]
    hidden = draw(st.integers(1, 4))
    layers += [Flat(), nn.Linear(width, hidden, bias=draw(st.booleans()))]
    if draw(st.booleans()):
        layers.append(nn.BatchNorm1d(hidden))
    layers += [nn.ReLU(inplace=draw(st.booleans())), nn.Linear(hidden, 1, bias=draw(st.booleans()))]
    return settled(nn.Sequential(*layers), seed), x


def _layer(draw, kind: str, channels: int, *, may_replace: bool) -> tuple[nn.Module, int]:
    if kind == "conv":
        wider = draw(st.integers(1, 5))
        stride = draw(st.tuples(st.integers(1, 2), st.integers(1, 3)))
        padding = draw(st.sampled_from([0, 1, 2, (1, 0), "valid", "same"]))
        window = {
            "kernel_size": draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
            "stride": 1 if padding == "same" else stride,
            "dilation": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        }
        return nn.Conv2d(channels, wider, padding=padding, bias=draw(st.booleans()), **window), wider
    modules = {
        "norm": lambda: nn.BatchNorm2d(channels),
        "relu": lambda: nn.ReLU(inplace=may_replace and draw(st.booleans())),
        "max": lambda: nn.MaxPool2d(2),
        "mean": lambda: nn.AvgPool2d(2, stride=1),
        "residual": lambda: Residual(channels, inplace=draw(st.booleans()), down=draw(st.booleans())),
    }
    return modules[kind](), channels
