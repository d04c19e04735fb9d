"""PAPE, probabilistic adaptive performance estimation: Bialek et al. (2024), for tables.

The paper is "Estimating Model Performance Under Covariate Shift Without Labels". As CBPE, but calibrated to the inputs
of the target: labelled samples count as much more as inputs like theirs are found there, according to a classifier that
tells the two sets apart.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from projnorm.core.statistics import Floats
from projnorm.estimators.base import LEARNT, Resources, SupervisedEstimator, register
from projnorm.estimators.cbpe import calibrated_classes, expected_error
from projnorm.estimators.isotonic import Isotonic
from projnorm.estimators.softmax import probabilities
from projnorm.outputs.outputs import Outputs

# Small trees in small steps, stopped by held-out samples: twice nearer to known ratios than scikit-learn's default.
_BOOSTING: dict[str, Any] = {"max_iter": 300, "learning_rate": 0.05, "max_leaf_nodes": 8, "early_stopping": True}
# Probabilities of a classifier that is nearly sure say little of the ratio of densities.
_LARGEST_ODDS = 50.0


@register
class PAPE(SupervisedEstimator):
    """The mean calibrated probability of the predicted class, calibrated on samples that are weighted like it.

    >>> from projnorm.outputs.examples import example_outputs
    >>> source, target = example_outputs()
    >>> round(PAPE().fit(source).score(target), 3)
    0.194

    Attributes:
        folds: Number of parts; the weights of each are those of a classifier that was trained on the others.
        seed: Seed of the parts and of the classifier.
        source: Outputs on labelled samples with their inputs, a table of numbers.
    """

    folds: int = 5
    seed: int = 0
    source: Outputs = LEARNT

    name = "PAPE"
    needs = frozenset({"labels", "table"})
    costly = True

    @classmethod
    def lacking(cls, outputs: Outputs, resources: Resources | None = None) -> str:
        """What the method lacks: a table of numbers, some of which may be missing, or scikit-learn."""
        lack = super().lacking(outputs, resources)
        if not lack and find_spec("sklearn") is None:
            return "scikit-learn: pip install '.[nn]' in a clone of the project"
        return lack

    def weights(self, target: Outputs) -> Floats:
        """Density of the input of each labelled sample in the target over that in distribution; the mean is one."""
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        assert self.source.inputs is not None
        assert target.inputs is not None
        x = np.concatenate([np.asarray(outputs.inputs, dtype=np.float64) for outputs in (self.source, target)])
        is_target = np.arange(len(x)) >= len(self.source)
        folds = min(self.folds, len(self.source), len(target))
        if folds < 2:
            return np.ones(len(self.source))
        model = HistGradientBoostingClassifier(**_BOOSTING, random_state=self.seed)
        parts = StratifiedKFold(folds, shuffle=True, random_state=self.seed)
        rows = cross_val_predict(model, x, is_target, cv=parts, method="predict_proba")
        of_target = rows[: len(self.source), 1]
        odds = of_target / np.maximum(1.0 - of_target, 1e-12) * len(self.source) / len(target)
        odds = np.clip(odds, 0.0, _LARGEST_ODDS)
        return odds / odds.mean() if odds.mean() > 0.0 else np.ones(len(odds))

    def _fit(self, source: Outputs) -> PAPE:
        return replace(self, source=source)

    def _score(self, target: Outputs) -> float:
        weights, labels = self.weights(target), self.source.known_labels
        rows = probabilities(self.source.logits)
        calibrations: list[Isotonic | None] = [None] * target.classes
        for k in calibrated_classes(target.classes):
            calibrations[k] = Isotonic.fit(rows[:, k], labels == k, weights)
        return expected_error(tuple(calibrations), target)
