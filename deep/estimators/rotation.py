"""Rotation: Deng, Gould and Zheng, "What Does Rotation Prediction Tell Us about Classifier Accuracy?" (ICML 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from deep.estimators.evidence import Evidence
from deep.outputs import forward
from deep.training import Hardware, Prepare, Recipe, train

TURNS = 4
# Of the linear head: standardised features make one recipe fit every network.
_HEAD = Recipe(steps=400, lr=0.05, batch=256)


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """How often a head on the network's features misjudges by how much an image was turned.

    Attributes:
        network: Whose features are used.
        last: Name of its last layer.
        head: From features to four classes: 0, 90, 180 and 270 degrees.
        prepare: Applied to every batch before the network.
        hardware: Where.
    """

    network: nn.Module
    last: str
    head: nn.Module
    prepare: Prepare | None = None
    hardware: Hardware | None = None

    name = "Rotation"
    direction = "up"
    is_error = False
    needs = ("features", "training images")

    def score(self, evidence: Evidence) -> float:
        """The error over the four rotations of every image."""
        upright = evidence.outputs.features
        wrong = [np.mean(self._turns(upright) != 0)]
        for turn in range(1, TURNS):
            turned = np.ascontiguousarray(np.rot90(evidence.inputs, turn, axes=(1, 2)))
            found = forward(self.network, self.last, turned, prepare=self.prepare, hardware=self.hardware)
            wrong.append(np.mean(self._turns(found.features) != turn))
        return float(np.mean(wrong))

    def _turns(self, features: NDArray[np.float32]) -> NDArray[np.intp]:
        with torch.no_grad():
            head = self.head.cpu().eval()
            return head(torch.from_numpy(features)).argmax(dim=1).numpy()


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
    hardware: Hardware | None = None,
) -> nn.Module:
    """A head on the frozen network, from the four rotations of in-distribution images."""
    turned = [np.ascontiguousarray(np.rot90(images, turn, axes=(1, 2))) for turn in range(TURNS)]
    features = [forward(network, last, x, prepare=prepare, hardware=hardware).features for x in turned]
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
        hook = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
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
