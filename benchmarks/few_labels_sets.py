"""Targets of which `few_labels.py` labels a few samples: how likely each prediction is to be wrong, and which are.

Four sets are reported. No model has seen a target:

- "elec2": electricity prices over time, gradient boosting; twelve later blocks.
- "reviews": books, then the fifteen other domains; tf-idf and logistic regression.
- "cifar10": logistic regression on the last features of a ResNet18 whose given weights stay as they are, at 32 pixels
  and fitted to 10,000 training images; ten families of corruptions of 2,000 test images at severities 1, 3 and 5. It is
  a weaker model than the fine-tuned ResNet18 of the benchmark, whose training takes longer than all the rest here.
- "fmow": satellite pictures by region and year, of which only confidences are known; a sample is as likely to be wrong
  as isotonic regression on the labelled validation pictures says.

The others are for trying constants on, so that what is reported stays unbiased: "beijing-sites", "beijing-quarters",
"digits", "office" and "shares".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.shifts.confidence_only import FMOW_NETWORKS, fmow
from benchmarks.shifts.models import BOOSTING, LOGISTIC, NETWORK, PIXELS, TFIDF, fitted
from benchmarks.shifts.problems import GivenOutputs, LabelledSet, Places, Problem, split_source
from benchmarks.shifts.suites import Case
from projnorm.core.store import Entry, Store
from projnorm.estimate.error_estimator import ErrorEstimator
from projnorm.estimate.target_estimate import estimate_per_sample
from projnorm.estimators.softmax import Floats
from projnorm.outputs.outputs import Outputs

M, SEED = 2_000, 0
FAMILIES = (
    "gaussian_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "snow",
    "fog",
    "contrast",
    "elastic_transform",
    "jpeg_compression",
)
SEVERITIES = (1, 3, 5)
_POOL_SHARE, _MOST_TRAIN = 2 / 3, 10_000
_LAST, _SIZE = "fc", 32


@dataclass(frozen=True, slots=True, eq=False)
class LabelTarget:
    """A set whose samples are to be labelled.

    Attributes:
        suite: Name of the set that it belongs to.
        name: Its own name.
        expected: Probability that each prediction is wrong, as the outputs say.
        wrong: Whether it is.
    """

    suite: str
    name: str
    expected: Floats
    wrong: NDArray[np.bool_]


def targets_of(name: str, places: Places, store: Store) -> list[LabelTarget]:
    """The targets of a set, which are computed once and stored."""
    entry = store.get_or_compute(f"{name}-{M}-{SEED}", lambda: _stored(SETS[name](places)))
    ends = np.cumsum(entry.arrays["sizes"])[:-1]
    parts = zip(
        entry.facts["names"],
        np.split(entry.arrays["expected"], ends),
        np.split(entry.arrays["wrong"], ends),
        strict=True,
    )
    return [LabelTarget(name, target, expected, wrong) for target, expected, wrong in parts]


def _case(suite: str, setting: str, model: str) -> Callable[[Places], list[LabelTarget]]:
    """The targets of a case of the benchmark."""

    def load(places: Places) -> list[LabelTarget]:
        problem = Case(suite, setting, model).question(places, M, SEED)
        assert isinstance(problem, Problem)
        return _of_problem(problem, model, places)

    return load


def _cifar(places: Places) -> list[LabelTarget]:
    """Corrupted CIFAR-10."""
    from projnorm.data.corruptions.families import corrupt
    from projnorm.data.datasets import load_splits
    from projnorm.data.images import ImageNetInput
    from projnorm.models.forward import forward
    from projnorm.models.weights import load_network

    rng = np.random.default_rng(SEED)
    splits = load_splits(places.images)
    train, test = (LabelledSet(part.images, part.labels) for part in (splits.train, splits.test))
    parts = split_source(test, (), rng, share=_POOL_SHARE)
    clean = parts.train.at_most(M, rng)
    network = load_network(
        "resnet18", places.weights, num_outputs=int(train.labels.max()) + 1, seed=SEED, drop_head=True
    )

    def features(samples: LabelledSet) -> LabelledSet:
        return replace(
            samples, inputs=forward(network.model, _LAST, samples.inputs, prepare=ImageNetInput(_SIZE)).features
        )

    targets = tuple(
        features(replace(clean, inputs=corrupt(clean.inputs, family, level, seed=SEED), name=f"{family}-{level}"))
        for family in FAMILIES
        for level in SEVERITIES
    )
    problem = Problem(features(train.at_most(_MOST_TRAIN, rng)), features(parts.source), targets)
    return _of_problem(problem, LOGISTIC, places)


def _fmow(places: Places) -> list[LabelTarget]:
    """Satellite pictures."""
    from sklearn.isotonic import IsotonicRegression

    signals = fmow(places, FMOW_NETWORKS[0], np.random.default_rng(SEED))
    rule = IsotonicRegression(increasing=False, out_of_bounds="clip")
    rule.fit(signals.source.confidence, signals.source.wrong)
    return [LabelTarget("", target.name, rule.predict(target.confidence), target.wrong) for target in signals.targets]


def _of_problem(problem: Problem, model: str, places: Places) -> list[LabelTarget]:
    """What a model of the benchmark makes of a problem, with the probabilities that `choose_labels` would use."""
    with threadpool_limits(2):
        given_outputs: GivenOutputs = fitted(model, problem, places, SEED).outputs_on(problem)
    estimator = ErrorEstimator.fit(None, _logits_only(given_outputs.source))
    return [_target(estimator, _logits_only(target)) for target in given_outputs.targets]


def _target(estimator: ErrorEstimator, outputs: Outputs) -> LabelTarget:
    with estimator.one_thread():
        expected = estimate_per_sample(estimator.fitted, outputs).wrong
    return LabelTarget("", outputs.name, expected, outputs.predicted != outputs.labels)


def _logits_only(outputs: Outputs) -> Outputs:
    return Outputs(outputs.logits, labels=outputs.labels, name=outputs.name)


def _stored(targets: Sequence[LabelTarget]) -> Entry:
    arrays = {
        "expected": np.concatenate([target.expected for target in targets]),
        "wrong": np.concatenate([target.wrong for target in targets]),
        "sizes": np.array([len(target.wrong) for target in targets]),
    }
    return Entry(arrays, {"names": [target.name for target in targets]})


REPORTED = ("elec2", "reviews", "fmow", "cifar10")
SETS: dict[str, Callable[[Places], list[LabelTarget]]] = {
    "elec2": _case("elec2", "", BOOSTING),
    "reviews": _case("reviews", "books", TFIDF),
    "cifar10": _cifar,
    "fmow": _fmow,
    "beijing-sites": _case("beijing-sites", "Dongsi", BOOSTING),
    "beijing-quarters": _case("beijing-quarters", "", LOGISTIC),
    "digits": _case("digits", "mnist", PIXELS),
    "office": _case("office", "amazon", LOGISTIC),
    "shares": _case("shares", "sklearn", NETWORK),
}
