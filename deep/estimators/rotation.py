"""Rotation: Deng, Gould and Zheng, "What Does Rotation Prediction Tell Us about Classifier Accuracy?" (ICML 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from projnorm.estimators.base import LEARNT, Estimator, Resources, register
from projnorm.outputs.outputs import Outputs

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare


@register
class Rotation(Estimator):
    """How often a head on the network's features misjudges by how much an image was turned.

    Attributes:
        network: Network whose features are used.
        last: Name of its last layer.
        prepare: Function applied to every batch before the network.
        device: Device that the network runs on.
        seed: Seed of the training of a head.
        head: Head from features to four classes, 0, 90, 180 and 270 degrees; trained on the source where there is none.
    """

    network: nn.Module
    last: str
    prepare: Prepare | None = None
    device: str = "cpu"
    seed: int = 0
    head: nn.Module = LEARNT

    name = "Rotation"
    needs = frozenset({"torch", "network", "features", "inputs"})
    costly = True

    @classmethod
    def lacking(cls, outputs: Outputs, resources: Resources | None = None) -> str:
        """Images must be square as well, or a turn would change their shape."""
        x = outputs.inputs
        is_square = isinstance(x, np.ndarray) and x.ndim == 4 and x.shape[1] == x.shape[2] and x.shape[3] == 3
        has_images = is_square and x.dtype == np.uint8
        if not has_images or (resources is not None and (resources.network is None or resources.last is None)):
            return "the network, with a linear last layer, and square images"
        return super().lacking(outputs, resources)

    def _fit(self, source: Outputs) -> Rotation:
        if self._has_learnt("head"):
            return self
        from deep.training.rotation import train_rotation_head

        assert source.inputs is not None
        head = train_rotation_head(self.network, self.last, source.inputs, self.seed, self.prepare, self.device)
        return replace(self, head=head)

    def _score(self, target: Outputs) -> float:
        """The error over the four rotations of every image."""
        from deep.training.rotation import TURNS, predicted_turns, turned_features

        assert target.inputs is not None
        wrong = [np.mean(predicted_turns(self.head, target.known_features) != 0)]
        for turn in range(1, TURNS):
            turned = turned_features(self.network, self.last, target.inputs, turn, self.prepare, self.device)
            wrong.append(np.mean(predicted_turns(self.head, turned) != turn))
        return float(np.mean(wrong))
