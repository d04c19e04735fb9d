"""AgreeScore: Madani, Pennock and Flake, "Co-Validation" (NIPS 2004).

Also Jiang et al., "Assessing Generalization of SGD via Disagreement" (ICLR 2022). With outputs of the second network at
hand it is `projnorm.estimators.gde.GDE`, whose formula it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from projnorm.estimators.base import Estimator, register
from projnorm.estimators.gde import disagreement
from projnorm.outputs.outputs import Outputs

if TYPE_CHECKING:
    from torch import nn

    from projnorm.models.preparation import Prepare


@register
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
        from projnorm.models.forward import forward

        assert target.inputs is not None
        other = forward(self.second, self.last, target.inputs, prepare=self.prepare, device=self.device)
        return disagreement(target.predicted, (other.logits,))
