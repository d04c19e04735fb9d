"""Heads that tell by how much an image was turned, for the method Rotation of Deng, Gould and Zheng (ICML 2021)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.forward import forward
from deep.recipe import Recipe
from deep.training import Prepare, train

TURNS = 4
# Training of the linear head: standardised features make one recipe fit every network.
_HEAD = Recipe(steps=400, lr=0.05, batch=256)


def turn_errors(
    network: nn.Module,
    last: str,
    head: nn.Module,
    images: NDArray[np.generic],
    features: NDArray[np.floating],
    *,
    prepare: Prepare | None = None,
    device: str = "cpu",
) -> float:
    """How often a head misjudges the turn, over the four rotations of every image.

    Args:
        network: Network whose features the head takes.
        last: Name of its last layer.
        head: Head from features to four classes: 0, 90, 180 and 270 degrees.
        images: Upright images.
        features: Features of the upright images.
        prepare: Function applied to every batch before the network.
        device: Device that the network runs on.
    """

    def turns(rows: NDArray[np.floating]) -> NDArray[np.intp]:
        with torch.no_grad():
            return head.cpu().eval()(torch.from_numpy(rows)).argmax(dim=1).numpy()

    wrong = [np.mean(turns(features) != 0)]
    for turn in range(1, TURNS):
        turned = np.ascontiguousarray(np.rot90(images, turn, axes=(1, 2)))
        outputs = forward(network, last, turned, prepare=prepare, device=device)
        wrong.append(np.mean(turns(outputs.known_features) != turn))
    return float(np.mean(wrong))


def rotation_head(width: int) -> nn.Sequential:
    """A linear layer on standardised features."""
    return nn.Sequential(nn.BatchNorm1d(width, affine=False), nn.Linear(width, TURNS))


def train_rotation_head(
    network: nn.Module,
    last: str,
    images: NDArray[np.generic],
    *,
    seed: int,
    prepare: Prepare | None = None,
    device: str = "cpu",
) -> nn.Module:
    """A head on the frozen network, from the four rotations of in-distribution images."""
    turned = [np.ascontiguousarray(np.rot90(images, turn, axes=(1, 2))) for turn in range(TURNS)]
    features = [forward(network, last, x, prepare=prepare, device=device).known_features for x in turned]
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
        """The classes."""
        return self.network(x)

    def turns(self, x: Tensor) -> Tensor:
        """By how much each image was turned."""
        seen: list[Tensor] = []
        layer = self.network.get_submodule(self.last)
        hook = layer.register_forward_pre_hook(lambda _, entering: seen.append(entering[0]))
        try:
            self.network(x)
        finally:
            hook.remove()
        return self.head(seen[0])


def joint_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the classes, and of the rotation of every image by a turn drawn for it."""
    assert isinstance(model, JointRotation)
    turns = torch.randint(TURNS, (len(x),))
    turned = torch.stack([torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(x, turns, strict=True)])
    return functional.cross_entropy(model(x), y) + functional.cross_entropy(model.turns(turned), turns.to(y.device))
