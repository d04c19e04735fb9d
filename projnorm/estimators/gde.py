"""GDE: Jiang et al., "Assessing Generalization of SGD via Disagreement" (ICLR 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from projnorm.estimators.base import Estimator, register
from projnorm.outputs.outputs import Outputs


@register
class GDE(Estimator):
    """How often another model disagrees, read as an error; the mean over several. It is AgreeScore on outputs.

    It is the error where models are calibrated as a class.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(GDE().fit(source).score(target), 3)
    0.133
    """

    name = "GDE"
    is_error = True
    needs = frozenset({"second"})

    def _score(self, target: Outputs) -> float:
        return disagreement(target.predicted, target.others)


def disagreement(predicted: NDArray[np.int64], others: Sequence[NDArray[np.floating]]) -> float:
    """How often the classes that other models predict, of logits, differ from these; the mean over the models."""
    return float(np.mean([other.argmax(axis=1) != predicted for other in others]))
