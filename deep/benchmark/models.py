"""The models of the benchmark: logistic regression, gradient boosting, and networks of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deep.benchmark.problems import GivenOutputs, LabelledSet, Places, Problem
from deep.outputs import Outputs, log_probabilities

LOGISTIC, BOOSTING, NETWORK = "logistic", "boosting", "network"
PIXELS, TFIDF, RESNET = "pixels", "tfidf", "resnet18"
_SIDE = 8


@dataclass(frozen=True, slots=True, eq=False)
class FittedModel:
    """A trained model.

    Attributes:
        model: An estimator of scikit-learn, or a network of torch.
        classes: Number of classes.
        prepare: Function from a batch of inputs to what a network takes; None for other models.
        last: Name of a network's last layer; empty for other models.
    """

    model: Any
    classes: int
    prepare: Callable[..., Any] | None = None
    last: str = ""

    def outputs(self, samples: LabelledSet) -> Outputs:
        """What it says of samples: logits and, of a network, features; with the labels, and inputs that are numbers."""
        if self.last:
            from deep.forward import forward

            said = forward(self.model, self.last, samples.inputs, prepare=self.prepare)
        else:
            rows = np.zeros((len(samples), self.classes))
            rows[:, self.model.classes_] = self.model.predict_proba(samples.inputs)
            said = Outputs(log_probabilities(rows, samples.name))
        inputs = samples.inputs if samples.inputs.dtype.kind in "fu" else None
        return Outputs(said.logits, said.features, samples.labels, inputs=inputs, name=samples.name)

    def outputs_on(self, problem: Problem) -> GivenOutputs:
        """What it says of the source and the targets of a problem."""
        source, *targets = (self.outputs(samples) for samples in (problem.source, *problem.targets))
        return GivenOutputs(source, tuple(targets), tuple(target.kind for target in problem.targets))


def fitted(model: str, problem: Problem, places: Places, seed: int) -> FittedModel:
    """A model of this name, trained on the training set of a problem."""
    train, classes = problem.train, problem.classes
    if model == RESNET:
        from deep.benchmark.cifar import finetuned

        return finetuned(train, places.weights, Path(places.cache), classes=classes, seed=seed)
    if model == NETWORK:
        from deep.benchmark.networks import small_network

        return small_network(train, classes=classes, seed=seed)
    return FittedModel(_estimator(model, seed).fit(train.inputs, train.labels), classes)


def grey_pixels(images: Any) -> NDArray[np.float64]:
    """Images as rows of 8 x 8 grey pixels from 0 to 1, for models that take rows of numbers."""
    grey = np.asarray(images).mean(axis=3) / 255.0
    block = grey.shape[1] // _SIDE
    return grey.reshape(len(grey), _SIDE, block, _SIDE, block).mean(axis=(2, 4)).reshape(len(grey), -1)


def _estimator(model: str, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    if model == BOOSTING:
        return HistGradientBoostingClassifier(random_state=seed, early_stopping=False)
    regression = LogisticRegression(max_iter=1_000)
    if model == TFIDF:
        return make_pipeline(TfidfVectorizer(min_df=2, sublinear_tf=True), regression)
    if model == PIXELS:
        return make_pipeline(FunctionTransformer(grey_pixels), regression)
    return make_pipeline(SimpleImputer(), StandardScaler(), regression)
