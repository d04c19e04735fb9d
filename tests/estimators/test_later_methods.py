"""Predictors that came after the paper: values by hand or by another algorithm, and what must not change them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.special import softmax
from scipy.stats import norm
from sklearn.metrics import log_loss

import deep
from deep.comparison.config import run_methods
from ntk.experiments.variants import KernelBlocks
from projnorm import estimators
from projnorm.estimators.base import Resources
from projnorm.estimators.class_shares import label_shares
from projnorm.estimators.registry import ESTIMATORS, build
from projnorm.estimators.softmax import HOTTEST, fit_temperature
from projnorm.outputs.outputs import Outputs
from projnorm_theory import projnorm_linear_from_gram
from tests import small

CLASSES = 4


def world(n: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, logits from them, labels."""
    points, labels = small.world(n, shift, seed)
    features = points.astype(float)
    return features, 3.0 * features, labels


def outputs(logits, features=None, labels=None) -> Outputs:
    logits = np.asarray(logits, np.float64)
    return Outputs(logits, logits if features is None else np.asarray(features), labels)


FEATURES, LOGITS, LABELS = world(600, 0.0, 0)
ERROR = float(np.mean(LOGITS.argmax(axis=1) != LABELS))
SHARES_ONLY = (estimators.BBSE, estimators.RLLS, estimators.MLLS)
LEARNING = (
    estimators.AC,
    estimators.DoC,
    estimators.ImportanceWeighting,
    estimators.COT,
    estimators.COTT,
    estimators.CBPE,
    *SHARES_ONLY,
)
SOURCE = Outputs(LOGITS, FEATURES, LABELS)


# Every method that looks at the outputs of one network, also one that is added later.
EVERY = [build(name, Resources(), SOURCE) for name in run_methods() if ESTIMATORS[name].needs <= {"labels", "features"}]
# Not asked of those that see label shift only, and of GdScore, whose gradients of four features are too few.
MOVING = [e for e in EVERY if e.name not in ("BBSE", "RLLS", "MLLS", "COT-MLLS", "COT-adapted", "GdScore")]


@pytest.mark.parametrize("estimator", MOVING, ids=lambda e: e.name)
def test_scores_move_with_the_error_as_they_say(estimator):
    scores, errors = [], []
    for step, shift in enumerate((0.0, 0.2, 0.4, 0.6)):
        features, logits, labels = world(600, shift, 1 + step)
        scores.append(estimator.score(outputs(logits, features)))
        errors.append(np.mean(logits.argmax(axis=1) != labels))
    assert errors == sorted(errors)
    assert scores == sorted(scores, reverse=estimator.direction == "down")


# Not asked of GdScore, which draws labels by place.
@pytest.mark.parametrize("estimator", [e for e in EVERY if e.name != "GdScore"], ids=lambda e: e.name)
def test_order_and_duplication_change_nothing(estimator):
    features, logits, _ = world(80, 0.3, 9)
    order = np.random.default_rng(0).permutation(80)
    found = estimator.score(outputs(logits, features))
    assert estimator.score(outputs(logits[order], features[order])) == pytest.approx(found, rel=1e-9)
    twice = estimator.score(outputs(np.tile(logits, (2, 1)), np.tile(features, (2, 1))))
    if estimator.name == "MDE":
        assert math.exp(twice) == pytest.approx(math.exp(found) + math.log(2))
    elif estimator.name == "ClassFeatureShift":  # it subtracts what the noise of so few samples adds
        assert twice**2 == pytest.approx(found**2 + CLASSES / (2 * 80))
    elif estimator.name == "Frechet":  # the covariance divides by m - 1
        assert twice == pytest.approx(found, rel=0.05)
    elif estimator.name == "COTT":  # in a plan a row for each class but one may be split, and so may its copy
        assert abs(twice - found) <= (CLASSES - 1) / 80
    else:
        assert twice == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize("learning", LEARNING, ids=lambda c: c.name)
def test_the_names_of_classes_do_not_matter(learning):
    _, target, _ = world(200, 0.3, 5)
    new = np.array([2, 0, 3, 1])
    inverse = np.argsort(new)
    plain = learning().fit(SOURCE).score(outputs(target))
    renamed = learning().fit(outputs(LOGITS[:, inverse], labels=new[LABELS])).score(outputs(target[:, inverse]))
    assert renamed == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(
    "learning",
    [estimators.DoC, estimators.ImportanceWeighting, estimators.COTT, estimators.BBSE, estimators.RLLS],
    ids=lambda c: c.name,
)
def test_on_what_it_learnt_from_it_predicts_the_error(learning):
    assert learning().fit(SOURCE).score(outputs(LOGITS)) == pytest.approx(ERROR, abs=1e-8)


@pytest.mark.parametrize("learning", LEARNING, ids=lambda c: c.name)
@pytest.mark.parametrize("error", [0.0, 1.0])
def test_a_source_without_errors_or_with_nothing_else_is_no_obstacle(learning, error):
    labels = LOGITS.argmax(axis=1) if error == 0.0 else (LOGITS.argmax(axis=1) + 1) % CLASSES
    score = learning().fit(outputs(LOGITS, labels=labels)).score(outputs(LOGITS))
    assert math.isfinite(score)
    if learning not in (estimators.AC, estimators.COT, estimators.CBPE):
        assert score == pytest.approx(error, abs=1e-8)


def test_the_temperature_is_that_of_a_fine_grid_and_undoes_a_scaling():
    grid = np.geomspace(0.2, 5.0, 2001)
    losses = [log_loss(LABELS, softmax(LOGITS / temperature, axis=1)) for temperature in grid]
    found = fit_temperature(LOGITS, LABELS)
    assert found == pytest.approx(grid[np.argmin(losses)], rel=2e-3)
    assert fit_temperature(3.0 * LOGITS, LABELS) == pytest.approx(3.0 * found, rel=1e-5)
    right = 3.0 * np.eye(CLASSES)[LABELS]
    unsure = 1.0 - softmax(right / fit_temperature(right, LABELS), axis=1).max(axis=1).mean()
    assert unsure == pytest.approx(0.5 / (len(LABELS) + 1), rel=1e-3)  # without a mistake, half of one is expected
    assert fit_temperature(LOGITS, (LOGITS.argmax(axis=1) + 1) % CLASSES) == pytest.approx(HOTTEST, rel=1e-3)


def logs(*rows: list[float]) -> Outputs:
    """Outputs that say these probabilities."""
    return outputs(np.log(rows))


ROWS, EXTREME = [[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]], [[2000.0, -2000.0, 0.0]]
ONE_WRONG = replace(logs([0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]), labels=np.array([0, 0, 0, 1]))
NEW = [[0.95, 0.05], [0.62, 0.38], [0.55, 0.45], [0.99, 0.01]]
SURE, NOTHING = 1000.0 * np.eye(3)[[0, 1, 2, 0, 1, 2]], np.zeros((6, 3))
PROBABILITIES = softmax(LOGITS, axis=1)
JOINT = PROBABILITIES / len(LOGITS)
TWO = np.array([[0.9, 0.1], [0.2, 0.8]])
SHARES = label_shares(np.array([0, 0, 1, 1]), 2)
THREE, PLACES = np.eye(3)[[0, 0, 1]], [[0.0, 0.0], [2.0, 0.0], [4.0, 3.0]]
# Of four samples the first two are sure and right, the last two unsure and half right.
WEIGHTED = estimators.ImportanceWeighting().fit(
    outputs(np.log([[0.95, 0.05], [0.92, 0.08], [0.55, 0.45], [0.52, 0.48]]), labels=np.array([0, 0, 0, 1]))
)
# Of each class one in four is mistaken.
LABEL_SHIFT = estimators.BBSE().fit(
    outputs(np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 0]], labels=np.array([0, 0, 0, 0, 1, 1, 1, 1]))
)
MOSTLY_FIRST = outputs(np.eye(2)[[0] * 28 + [1] * 12])  # 0.9 * 0.75 + 0.1 * 0.25 = 0.7 predicted as the first
# Means 1 and 5, standard deviations 1 and 0; the constant feature is left out.
CENTRED = estimators.FeatureShift().fit(outputs(np.zeros((2, 2)), [[0.0, 5.0], [2.0, 5.0]]))
UNSURE = estimators.MaNo(is_sure=False)
# Means 1 and 4, standard deviations sqrt(2) and 2 sqrt(2).
NARROW = estimators.Frechet().fit(outputs(np.zeros((2, 2)), [[0.0], [2.0]]))
FAR = world(300, 0.4, 8)[0]
COVARIANCES = np.cov(FEATURES.T), np.cov(FAR.T)
BY_ROOT = np.sum((FEATURES.mean(axis=0) - FAR.mean(axis=0)) ** 2) + np.trace(
    sum(COVARIANCES) - 2 * sqrtm(COVARIANCES[0] @ COVARIANCES[1]).real
)
NAN = math.nan


@pytest.mark.parametrize(
    ("estimator", "target", "expected"),
    [
        (estimators.ConfScore(), logs(*ROWS), 1 - 0.65),
        (estimators.ConfScore(), outputs(EXTREME), 0.0),
        (estimators.Entropy(), logs(*ROWS), (1.5 * math.log(2) + 0.8 * math.log(1 / 0.8) + 0.2 * math.log(10)) / 2),
        (estimators.Entropy(), outputs(EXTREME), 0.0),
        (estimators.Entropy(), outputs(NOTHING), math.log(3)),
        # Two of these are less sure than the one sample of four that was wrong.
        *((estimators.ATC(by=by).fit(ONE_WRONG), logs(*NEW), 0.5) for by in ("entropy", "confidence")),
        (estimators.AC(2.0), logs(*TWO), 1 - (0.75 + 2 / 3) / 2),
        (estimators.DoC(estimators.AC(2.0), 0.1), logs(*TWO), 1.1 - (0.75 + 2 / 3) / 2),
        (WEIGHTED, logs([0.03, 0.97], [0.99, 0.01], [0.91, 0.09], [0.58, 0.42]), 0.25 * 0.5),
        # What no labelled sample is like says nothing, and the rest counts for all.
        (WEIGHTED, logs([0.75, 0.25], [0.58, 0.42]), 0.5),
        (WEIGHTED, logs([0.75, 0.25]), NAN),
        # Both rows lean to the first class, but half of the mass is the second's: the second row moves there.
        (estimators.COT(SHARES), logs([0.9, 0.1], [0.6, 0.4]), (0.1 + 0.6) / 2),
        (estimators.COTT(SHARES, -0.3), logs([0.9, 0.1], [0.6, 0.4]), 0.5),
        (estimators.NuclearNorm(), outputs(SURE), 1.0),
        (estimators.NuclearNorm(), outputs(NOTHING), 1 / 3),
        (
            estimators.NuclearNorm(),
            outputs(LOGITS),
            np.linalg.svd(PROBABILITIES, compute_uv=False).sum() / math.sqrt(600 * 4),
        ),
        # Not sure: v = 1 + z + z^2/2 = [2.5, 0.5], less the least [2, 0], normalised [1, 0].
        (UNSURE, outputs([[1.0, -1.0]]), 0.5**0.25),
        # v of [2, 0, 1] is [5, 1, 2.5]: [4, 0, 1.5] / 5.5.
        (UNSURE, outputs([[2.0, 0.0, 1.0]]), ((4**4 + 1.5**4) / 5.5**4 / 3) ** 0.25),
        # Sure, by the source or the target: softmax is used, where the quadratic would give other shares.
        (estimators.MaNo(is_sure=True), outputs([[2.0, 0.0, 1.0]]), np.mean(softmax([2.0, 0.0, 1.0]) ** 4) ** 0.25),
        (estimators.MaNo(criterion="target", is_sure=False), outputs([[20.0, 20.0, -30.0]]), (2 * 0.5**4 / 3) ** 0.25),
        (estimators.MaNo().fit(outputs([[20.0, 20.0, -30.0]])), logs(ROWS[0]), ((0.5**4 + 2 * 0.25**4) / 3) ** 0.25),
        (UNSURE, outputs(np.zeros((2, 4))), 0.25),
        # Means (1, 0) of two and (4, 3) of one around (2, 1): 2 * 2 + 1 * 8 = 12; one degree of freedom, three samples.
        (estimators.Dispersion(), outputs(THREE, PLACES), math.log(12 / 1 / 3)),
        (estimators.Dispersion(), outputs(THREE[:2], PLACES[:2]), NAN),
        (estimators.Dispersion(), outputs(THREE, np.ones((3, 2))), NAN),
        (estimators.MDE(), outputs(np.ones((7, 3))), math.log(math.log(7))),
        # Energies -log 2 and -log 8: the sum of exp(E) is 1/2 + 1/8.
        (estimators.MDE(), logs([1.0, 1.0], [4.0, 4.0]), math.log(math.log(5 / 8) + (math.log(2) + math.log(8)) / 2)),
        (estimators.MDE(), outputs([[1.0, 2.0]]), NAN),
        (estimators.Frechet().fit(SOURCE), outputs(FAR, FAR), BY_ROOT),
        (estimators.Frechet().fit(SOURCE), outputs(FEATURES, FEATURES), 0.0),
        (NARROW, outputs(np.zeros((2, 2)), [[2.0], [6.0]]), 9 + 2),
        (LABEL_SHIFT, MOSTLY_FIRST, 0.25),
        (
            estimators.MutualInformation(),
            outputs(LOGITS),
            np.sum(JOINT * np.log(JOINT / (JOINT.sum(axis=1, keepdims=True) * JOINT.sum(axis=0)))),
        ),
        (estimators.MutualInformation(), outputs(SURE), math.log(3)),
        (estimators.MutualInformation(), outputs(SURE[[0, 0]]), 0.0),
        (CENTRED, outputs(np.zeros((2, 2)), [[4.0, 9.0], [4.0, 9.0]]), 3.0),
        (estimators.FeatureShift().fit(outputs(np.ones((3, 2)))), outputs(np.zeros((2, 2))), 0.0),
        (
            estimators.GDE(),
            Outputs(np.eye(3)[[0, 1]], others=(np.eye(3)[[0, 2]], np.eye(3)[[1, 2]])),
            (1 / 2 + 2 / 2) / 2,
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_score_is_what_the_definition_gives_by_hand(estimator, target, expected):
    assert estimator.score(target) == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)


def test_feature_shift_does_not_depend_on_units():
    units, target = np.array([1, 10, 100, 1000]), FEATURES[:50] + 0.3
    scaled = estimators.FeatureShift().fit(outputs(LOGITS, FEATURES * units)).score(outputs(target, target * units))
    assert scaled == pytest.approx(estimators.FeatureShift().fit(SOURCE).score(outputs(target, target)))


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: fit_temperature(LOGITS, LABELS[:3]), "one class per row of `logits`; got 3 for 600"),
        (lambda: estimators.Frechet().fit(outputs(np.zeros((1, 2)))), "a covariance needs two samples or more; got 1"),
        (lambda: estimators.ProjNormLinearEstimator(ridge=0.0), "`ridge` must be positive; got 0"),
        (lambda: estimators.GDE().score(SOURCE), "GDE needs outputs of a second model; the target has none"),
        (
            lambda: estimators.ALineS().fit(replace(SOURCE, others=(LOGITS,))),
            "ALine-S needs outputs of two more models; the",
        ),
        (lambda: estimators.ProjNormLinearMatched(ridge=-1.0), "`ridge` must be positive; got -1"),
        (lambda: estimators.MaNo(criterion="batch"), "`criterion` must be one of source, target; got 'batch'"),
        (lambda: estimators.ATC(by="margin"), "`by` must be one of entropy, confidence"),
        (lambda: estimators.ATC().score(SOURCE), "ATC has learnt nothing yet; call fit"),
        (lambda: estimators.ATC().fit(outputs(LOGITS)), "ATC needs labels; the source has none"),
    ],
)
def test_what_cannot_be_learnt_or_scored_is_said(fit, message):
    with pytest.raises(ValueError, match=message):
        fit()


def test_gradient_scores_are_those_of_autograd():
    features, _, _ = world(50, 0.5, 3)
    head = torch.nn.Linear(CLASSES, 3, bias=False).double()
    logits = head(torch.from_numpy(features))
    rows = torch.softmax(logits, dim=1).detach().numpy()
    drawn = np.random.default_rng(7).integers(3, size=50)
    labels = torch.from_numpy(np.where(rows.max(axis=1) < 0.5, drawn, rows.argmax(axis=1)))
    assert 0 < (rows.max(axis=1) < 0.5).sum() < 50
    norms = []
    for start in (0, 20, 40):
        loss = torch.nn.functional.cross_entropy(logits[start : start + 20], labels[start : start + 20])
        (gradient,) = torch.autograd.grad(loss, head.weight, retain_graph=True)
        norms.append(float(torch.linalg.vector_norm(gradient, ord=0.3)))
    found = estimators.GdScore(seed=7, batch=20).score(outputs(logits.detach().numpy(), features))
    assert found == pytest.approx(np.mean(norms), rel=1e-9)


@pytest.mark.parametrize("m", [3, 60])
def test_projnorm_linear_is_that_of_the_theory_on_centred_kernels(m):
    # Three samples of four features take the route through the kernel, sixty the other.
    features, logits, _ = world(m, 0.4, 11)
    blocks = KernelBlocks(FEATURES @ FEATURES.T, features @ FEATURES.T, features @ features.T).centred()
    shares = np.bincount(LABELS) / len(LABELS)
    scale = blocks.train.trace() / len(LABELS)
    by_theory = projnorm_linear_from_gram(
        blocks.train,
        np.eye(CLASSES)[LABELS] - shares,
        blocks.ood_train,
        blocks.ood,
        ridge=(0.3 * scale * len(LABELS), 0.3 * scale * m),
        pseudo_labels=np.eye(CLASSES)[logits.argmax(axis=1)] - shares,
    ).value
    assert estimators.ProjNormLinearEstimator().fit(SOURCE).score(outputs(logits, features)) == pytest.approx(
        by_theory, rel=1e-6
    )


def test_the_disagreement_bound_holds_and_is_near_the_error_without_shift():
    estimator = deep.Dis2().fit(SOURCE)
    for shift in (0.0, 0.3, 0.6):
        features, logits, labels = world(600, shift, 21)
        error = float(np.mean(logits.argmax(axis=1) != labels))
        assert error <= estimator.score(outputs(logits, features)) <= 1.0
    # Without a shift no critic tells the sets apart: what is left is the slack of so few samples, and little else.
    slack = math.sqrt((300 + 4 * 300) * math.log(20.0) / (2 * 300 * 300))
    assert ERROR + slack <= estimator.score(outputs(LOGITS, FEATURES)) <= ERROR + slack + 0.1
    far = estimator.score(outputs(LOGITS[:, ::-1], -3.0 * FEATURES))
    assert far == 1.0  # a critic that disagrees there and nowhere else is easily found
    assert math.isnan(estimator.score(outputs(LOGITS[:1], FEATURES[:1])))


def networks(n: int, shift: float, seed: int, count: int = 4) -> Outputs:
    """Outputs of several networks that see the same features, each with noise of its own."""
    features, _, labels = world(n, shift, seed)
    rng = np.random.default_rng(seed + 100)
    own, *others = (3.0 * (features + 0.5 * rng.standard_normal(features.shape)) for _ in range(count))
    return Outputs(own, labels=labels, others=tuple(others))


def test_agreement_on_the_line_by_hand():
    # Probits that are exactly on a line: agreements 0.5 and 0.7 and 0.9 move to those of slope 0.5 and offset -0.1.
    accuracies, agreements = norm.ppf([0.8, 0.7, 0.6]), norm.ppf([0.5, 0.7, 0.9])
    line = estimators.ALineS(accuracies, agreements)
    slope, offset = line.slope(0.5 * agreements - 0.1)
    assert (slope, offset) == (pytest.approx(0.5), pytest.approx(-0.1))
    # An agreement of nearly all is left out, and two of one kind have no slope.
    assert line.slope(np.array([*(0.5 * agreements[:2] - 0.1), norm.ppf(0.999)]))[0] == pytest.approx(0.5)
    assert math.isnan(line.slope(norm.ppf([0.999, 0.999, 0.5]))[0])


def test_agreement_on_the_line_is_exact_on_its_own_source():
    source = networks(500, 0.2, 33)
    for estimator in (estimators.ALineS(), estimators.ALineD()):
        assert estimator.fit(source).score(source) == pytest.approx(source.error, abs=1e-9)
        assert math.isnan(estimator.fit(source).score(replace(source, others=(source.logits,) * 3)))
