"""The models of the benchmark: logistic regression, gradient boosting, and networks of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.shifts.fitted_model import FittedModel
from benchmarks.shifts.problems import Places, Problem

LOGISTIC, BOOSTING, NETWORK = "logistic", "boosting", "network"
PIXELS, TFIDF, RESNET = "pixels", "tfidf", "resnet18"
_SIDE = 8


def fitted(model: str, problem: Problem, places: Places, seed: int) -> FittedModel:
    """A model of this name, trained on the training set of a problem."""
    train, classes = problem.train, problem.classes
    if model == RESNET:
        from benchmarks.shifts.cifar import finetuned

        return finetuned(train, places.weights, Path(places.cache), classes=classes, seed=seed)
    if model == NETWORK:
        from benchmarks.shifts.networks import small_network

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
