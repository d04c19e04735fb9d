"""Networks and inputs of `bench_ntk.py`: seeded weights, one output, eval mode, float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from projnorm.models.networks import resnet18

# A tensor, or a mapping from the names of the network's arguments to tensors.
Inputs = Tensor | Mapping[str, Tensor]

RESNET, MLP, CNN, VIT, BERT = "resnet18", "mlp", "digits-cnn", "vit-tiny", "minilm-bert"


@dataclass(frozen=True, slots=True, eq=False)
class KernelCase:
    """A network and how its inputs are drawn.

    Attributes:
        name: Name of the network.
        network: The network, in eval mode.
        draw: Function from a number of samples to inputs.
    """

    name: str
    network: nn.Module
    draw: Callable[[int], Inputs]

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return sum(parameter.numel() for parameter in self.network.parameters())


def make_case(name: str, *, tiny: bool = False) -> KernelCase:
    """The network of this name; `tiny` makes the two transformers small, for a smoke test."""
    tokens = 8 if tiny else 64
    vit = partial(VisionTransformer, width=24, depth=2) if tiny else VisionTransformer
    bert = partial(Bert, width=24, depth=2, heads=3, inner=48, vocabulary=100) if tiny else Bert
    makers: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Inputs]]] = {
        RESNET: (partial(resnet18, 1), partial(_noise, shape=(3, 32, 32))),
        MLP: (mlp, partial(_noise, shape=(784,))),
        CNN: (digits_cnn, _digits),
        VIT: (vit, partial(_noise, shape=(3, 32, 32))),
        BERT: (bert, partial(_tokens, tokens=tokens, vocabulary=100 if tiny else 30_522)),
    }
    make, draw = makers[name]
    torch.manual_seed(0)
    return KernelCase(name, make().eval(), draw)


def mlp() -> nn.Sequential:
    """784-512-512-1 with ReLU."""
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))


def digits_cnn() -> nn.Sequential:
    """Two convolutions and two linear layers for images of 8 x 8 pixels; 37,697 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 1),
    )


class TransformerLayer(nn.Module):
    """A layer of a vision transformer: attention and a perceptron, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        """`width` is a multiple of `heads`."""
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of shape ``(n, tokens, width)`` to the same shape."""
        split = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.perceptron(self.norm2(x))


class VisionTransformer(nn.Module):
    """ViT-tiny of Touvron et al., "Training data-efficient image transformers" (ICML 2021), for 64 patches of 4 px."""

    def __init__(self, width: int = 192, depth: int = 12, heads: int = 3) -> None:
        """One output from the class token."""
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 65, width))
        self.blocks = nn.Sequential(*(TransformerLayer(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images of shape ``(n, 3, 32, 32)`` to outputs of shape ``(n, 1)``."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1) + self.position
        return self.head(self.norm(self.blocks(tokens))[:, 0])


class Bert(nn.Module):
    """A BERT of `transformers` with random weights, the size of MiniLM-L6, and one output from the first token."""

    def __init__(
        self, width: int = 384, depth: int = 6, heads: int = 12, inner: int = 1536, vocabulary: int = 30_522
    ) -> None:
        """`width` is a multiple of `heads`; `inner` is the width of the perceptrons."""
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=inner,
        )
        self.body = BertModel(config, add_pooling_layer=False)
        self.head = nn.Linear(width, 1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Ids and mask of shape ``(n, tokens)`` to outputs of shape ``(n, 1)``.

        The mask is expanded here: `transformers` looks at the values of a mask of two dimensions, which vmap refuses.
        """
        dtype = self.head.weight.dtype
        hidden = (attention_mask == 0)[:, None, None, :].expand(-1, -1, input_ids.shape[1], -1)
        mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
        return self.head(self.body(input_ids=input_ids, attention_mask=mask).last_hidden_state[:, 0])


def call(network: nn.Module, x: Inputs) -> Tensor:
    """Outputs of the network."""
    return network(x) if isinstance(x, Tensor) else network(**x)


def count(x: Inputs) -> int:
    """Number of samples."""
    return len(x if isinstance(x, Tensor) else next(iter(x.values())))


def rows(x: Inputs, start: int, stop: int) -> Inputs:
    """The samples from `start` up to `stop`."""
    return x[start:stop] if isinstance(x, Tensor) else {name: part[start:stop] for name, part in x.items()}


def in_double(x: Inputs) -> Inputs:
    """Floating-point inputs in float64; ids stay as they are."""
    if isinstance(x, Tensor):
        return x.double() if x.is_floating_point() else x
    return {name: in_double(part) for name, part in x.items()}


def _noise(count: int, shape: tuple[int, ...]) -> Tensor:
    """Inputs of noise; the time does not depend on them."""
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(1))


def _digits(count: int) -> Tensor:
    from sklearn.datasets import load_digits

    return torch.tensor(load_digits().images[:count, None] / 16.0, dtype=torch.float32)


def _tokens(count: int, tokens: int, vocabulary: int) -> dict[str, Tensor]:
    """Ids whose frequencies fall like those of words (Zipf), and texts that end between half the tokens and all."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.exp(torch.rand(count, tokens, generator=generator) * math.log(vocabulary - 1)).long()
    lengths = torch.randint(tokens // 2, tokens + 1, (count, 1), generator=generator)
    mask = (torch.arange(tokens) < lengths).long()
    return {"input_ids": ids * mask, "attention_mask": mask}
