"""AgreeScore: Madani, Pennock and Flake, "Co-Validation" (NIPS 2004).

Also Jiang et al., "Assessing Generalization of SGD via Disagreement" (ICLR 2022). With outputs of the second network at
hand it is `deep.estimators.gde.GDE`, whose formula it uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deep.estimators.base import Estimator, register
from deep.estimators.gde import disagreement
from deep.outputs import Outputs

if TYPE_CHECKING:
    from torch import nn

    from deep.training import Prepare


@register
@dataclass(frozen=True, eq=False)
class AgreeScore(Estimator):
    """How often a second network, trained independently on the same samples, disagrees.

    Attributes:
        second: The second network.
        last: Name of its last layer.
        prepare: Function applied to every batch before it.
        device: Device that it runs on.
    """

    second: nn.Module
    last: str
    prepare: Prepare | None = None
    device: str = "cpu"

    name = "AgreeScore"
    is_error = True
    needs = frozenset({"torch", "second network", "inputs"})
    costly = True

    def _score(self, target: Outputs) -> float:
        """Share of samples that the two networks label differently."""
        from deep.forward import forward

        assert target.inputs is not None
        other = forward(self.second, self.last, target.inputs, prepare=self.prepare, device=self.device)
        return disagreement(target.predicted, (other.logits,))
