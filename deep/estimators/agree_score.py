"""AgreeScore: Madani, Pennock and Flake, "Co-Validation" (NIPS 2004).

Also Jiang et al., "Assessing Generalization of SGD via Disagreement" (ICLR 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from deep.estimators.evidence import Evidence
from deep.outputs import forward
from deep.training import Hardware, Prepare


@dataclass(frozen=True, slots=True, eq=False)
class AgreeScore:
    """How often a second network, trained independently on the same images, disagrees.

    Attributes:
        second: The other network.
        head: Name of its last layer.
        prepare: Applied to every batch before it.
        hardware: Where.
    """

    second: nn.Module
    head: str
    prepare: Prepare | None = None
    hardware: Hardware | None = None

    name = "AgreeScore"
    direction = "up"
    is_error = True
    needs = ("outputs", "second network")

    def score(self, evidence: Evidence) -> float:
        """Share of images that the two networks label differently."""
        other = forward(self.second, self.head, evidence.inputs, prepare=self.prepare, hardware=self.hardware)
        return float(np.mean(other.predicted != evidence.outputs.predicted))
