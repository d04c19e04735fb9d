"""Heads that tell by how much an image was turned, for the method Rotation of Deng, Gould and Zheng (ICML 2021)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.training.loop import train
from projnorm.models.forward import forward
from projnorm.models.preparation import Prepare
from projnorm.models.recipe import Recipe

TURNS = 4
# Training of the linear head: standardised features make one recipe fit every network.
_HEAD = Recipe(steps=400, lr=0.05, batch=256)


def turned_features(
    network: nn.Module, last: str, images: NDArray[np.generic], turn: int, prepare: Prepare | None, device: str
) -> NDArray[np.floating]:
    """Features, the inputs of the network's `last` layer, of images turned by `turn` times 90 degrees."""
    turned = np.ascontiguousarray(np.rot90(images, turn, axes=(1, 2)))
    return forward(network, last, turned, prepare=prepare, device=device).known_features


def predicted_turns(head: nn.Module, features: NDArray[np.floating]) -> NDArray[np.intp]:
    """By how many times 90 degrees each image was turned, as a head sees it."""
    with torch.no_grad():
        return head.cpu().eval()(torch.from_numpy(features)).argmax(dim=1).numpy()


def rotation_head(width: int) -> nn.Sequential:
    """A linear layer on standardised features."""
    return nn.Sequential(nn.BatchNorm1d(width, affine=False), nn.Linear(width, TURNS))


def train_rotation_head(
    network: nn.Module, last: str, images: NDArray[np.generic], seed: int, prepare: Prepare | None, device: str
) -> nn.Module:
    """A head on the frozen network, from the four rotations of in-distribution images."""
    features = [turned_features(network, last, images, turn, prepare, device) for turn in range(TURNS)]
    turns = np.repeat(np.arange(TURNS, dtype=np.int64), len(images))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = rotation_head(features[0].shape[1])
    return train(head, np.concatenate(features), turns, _HEAD, seed=seed)


class JointRotation(nn.Module):
    """A classifier that learns rotations beside its classes; its outputs are the classes."""

    def __init__(self, network: nn.Module, last: str) -> None:
        """`last` is the name of the last layer of `network`."""
        super().__init__()
        self.network = network
        self.last = last
        final = network.get_submodule(last)
        assert isinstance(final, nn.Linear)
        self.head = rotation_head(final.in_features)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the classes."""
        return self.network(x)

    def turns(self, x: Tensor) -> Tensor:
        """Logits of the four rotations of each image."""
        seen: list[Tensor] = []
        layer = self.network.get_submodule(self.last)
        with layer.register_forward_pre_hook(lambda _, entering: seen.append(entering[0])):
            self.network(x)
        return self.head(seen[0])


def joint_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the classes, and of the rotation of every image by a turn drawn for it."""
    assert isinstance(model, JointRotation)
    turns = torch.randint(TURNS, (len(x),))
    turned = torch.stack([torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(x, turns, strict=True)])
    return functional.cross_entropy(model(x), y) + functional.cross_entropy(model.turns(turned), turns.to(y.device))
