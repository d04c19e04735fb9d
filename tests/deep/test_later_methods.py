"""Predictors that came after the paper: values by hand or by another algorithm, and what must not change them."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.linalg import sqrtm
from scipy.optimize import linprog
from scipy.special import softmax
from scipy.stats import norm
from sklearn.isotonic import IsotonicRegression

import deep
from deep.config import METHODS, run_methods
from deep.estimators import ESTIMATORS, Resources, build
from deep.estimators.aline import SourceLine
from deep.estimators.cot import class_shares, transport_costs
from deep.estimators.temperature import COLDEST, HOTTEST, fit_temperature
from deep.experiments.comparison import run_comparison
from deep.outputs import Outputs
from ntk.variants import Blocks
from projnorm.errors import InputError
from projnorm_theory import projnorm_linear_from_gram
from tests.deep.small import SMALL

CLASSES = 4
LATER_METHODS = run_methods()[len(METHODS) :]


def outputs(logits, features=None, labels=None) -> Outputs:
    logits = np.asarray(logits, np.float64)
    return Outputs(logits, logits if features is None else np.asarray(features), labels)


def world(n: int, shift: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features around four corners, logits from them, labels; the further shifted, the nearer the corners."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    features = (1.0 - shift) * 2.0 * np.eye(CLASSES)[labels] + 0.7 * rng.standard_normal((n, CLASSES))
    return features, 3.0 * features, labels


FEATURES, LOGITS, LABELS = world(600, 0.0, 0)
ERROR = float(np.mean(LOGITS.argmax(axis=1) != LABELS))
LEARNING = (deep.AC, deep.DoC, deep.ImportanceWeighting, deep.COT, deep.COTT, deep.CBPE, deep.BBSE)
SOURCE = Outputs(LOGITS, FEATURES, LABELS)


# Every method that looks at the outputs of one network, also one that is added later.
EVERY = [build(name, Resources(), SOURCE) for name in run_methods() if ESTIMATORS[name].needs <= {"labels", "features"}]
# Not asked of BBSE, which sees label shift only, and of GdScore, whose gradients of four features are too few.
MOVING = [e for e in EVERY if e.name not in ("BBSE", "GdScore")]


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


@pytest.mark.parametrize("learning", [deep.DoC, deep.ImportanceWeighting, deep.COTT, deep.BBSE], ids=lambda c: c.name)
def test_on_what_it_learnt_from_it_predicts_the_error(learning):
    assert learning().fit(SOURCE).score(outputs(LOGITS)) == pytest.approx(ERROR, abs=1e-8)


@pytest.mark.parametrize("learning", LEARNING, ids=lambda c: c.name)
@pytest.mark.parametrize("error", [0.0, 1.0])
def test_a_source_without_errors_or_with_nothing_else_is_no_obstacle(learning, error):
    labels = LOGITS.argmax(axis=1) if error == 0.0 else (LOGITS.argmax(axis=1) + 1) % CLASSES
    score = learning().fit(outputs(LOGITS, labels=labels)).score(outputs(LOGITS))
    assert math.isfinite(score)
    if learning not in (deep.AC, deep.COT, deep.CBPE):
        assert score == pytest.approx(error, abs=1e-8)


def test_the_temperature_is_that_of_a_fine_grid_and_undoes_a_scaling():
    grid = np.exp(np.linspace(np.log(0.2), np.log(5.0), 2001))
    losses = []
    for temperature in grid:
        scaled = LOGITS / temperature
        losses.append(np.mean(np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(len(LABELS)), LABELS]))
    found = fit_temperature(LOGITS, LABELS)
    assert found == pytest.approx(grid[np.argmin(losses)], rel=2e-3)
    assert fit_temperature(3.0 * LOGITS, LABELS) == pytest.approx(3.0 * found, rel=1e-5)
    assert fit_temperature(LOGITS, LOGITS.argmax(axis=1)) == pytest.approx(COLDEST, rel=1e-3)
    assert fit_temperature(LOGITS, (LOGITS.argmax(axis=1) + 1) % CLASSES) == pytest.approx(HOTTEST, rel=1e-3)
    with pytest.raises(ValueError, match="`labels` must hold one class per row of `logits`; got 3 for 600"):
        fit_temperature(LOGITS, LABELS[:3])


def test_the_temperature_is_applied():
    rows = np.log([[0.9, 0.1], [0.2, 0.8]])
    assert deep.AC(2.0).score(outputs(rows)) == pytest.approx(1 - (0.75 + 2 / 3) / 2)
    assert deep.DoC(deep.AC(2.0), 0.1).score(outputs(rows)) == pytest.approx(1.1 - (0.75 + 2 / 3) / 2)


def test_importance_weights_by_hand():
    source = np.log([[0.95, 0.05], [0.92, 0.08], [0.55, 0.45], [0.52, 0.48]])
    estimator = deep.ImportanceWeighting().fit(outputs(source, labels=np.array([0, 0, 0, 1])))
    # Three of four targets are as sure as the first two, which are right; the fourth is as the last two, half right.
    target = np.log([[0.03, 0.97], [0.99, 0.01], [0.91, 0.09], [0.58, 0.42]])
    assert estimator.score(outputs(target)) == pytest.approx(0.25 * 0.5)
    # What no labelled sample is like says nothing, and the rest counts for all.
    beside = np.log([[0.75, 0.25], [0.58, 0.42]])
    assert estimator.score(outputs(beside)) == pytest.approx(0.5)
    assert math.isnan(estimator.score(outputs(np.log([[0.75, 0.25]]))))


@settings(deadline=None, max_examples=30)
@given(m=st.integers(1, 12), classes=st.integers(2, 5), seed=st.integers(0, 1000))
def test_transport_costs_are_those_of_a_linear_program(m, classes, seed):
    rng = np.random.default_rng(seed)
    rows, shares = rng.dirichlet(np.ones(classes), m), rng.dirichlet(np.ones(classes))
    distance = 0.5 * np.abs(rows[:, None, :] - np.eye(classes)[None]).sum(axis=2)
    from_rows = np.kron(np.eye(m), np.ones(classes))
    to_corners = np.kron(np.ones(m), np.eye(classes))
    plan = linprog(
        distance.ravel(),
        A_eq=np.vstack([from_rows, to_corners]),
        b_eq=np.concatenate([np.full(m, 1 / m), shares]),
        method="highs",
    )
    assert transport_costs(rows, shares).mean() == pytest.approx(plan.fun, abs=1e-9)


def test_transport_by_hand():
    shares = class_shares(np.array([0, 0, 1, 1]), 2)
    # Both rows lean to the first class, but half of the mass is the second's: the second row moves there.
    rows = np.array([[0.9, 0.1], [0.6, 0.4]])
    np.testing.assert_allclose(transport_costs(rows, shares), [0.1, 0.6])
    assert deep.COT(shares).score(outputs(np.log(rows))) == pytest.approx(0.35)
    assert deep.COTT(shares, -0.3).score(outputs(np.log(rows))) == 0.5


def test_the_nuclear_norm_is_one_at_its_largest_and_by_hand():
    sure = 1000.0 * np.eye(3)[[0, 1, 2, 0, 1, 2]]
    assert deep.NuclearNorm().score(outputs(sure)) == pytest.approx(1.0)
    assert deep.NuclearNorm().score(outputs(np.zeros((6, 3)))) == pytest.approx(1 / 3)
    rows = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    by_roots = np.trace(sqrtm(rows.T @ rows)).real / math.sqrt(600 * 4)
    assert deep.NuclearNorm().score(outputs(LOGITS)) == pytest.approx(by_roots, rel=1e-9)


def test_mano_by_hand_on_either_side_of_being_sure():
    # Not sure: v = 1 + z + z^2/2 = [2.5, 0.5], less the least [2, 0], normalised [1, 0].
    assert deep.MaNo().score(outputs([[1.0, -1.0]])) == pytest.approx(0.5**0.25)
    # v of [2, 0, 1] is [5, 1, 2.5]: [4, 0, 1.5] / 5.5.
    by_hand = ((4**4 + 1.5**4) / 5.5**4 / 3) ** 0.25
    assert deep.MaNo().score(outputs([[2.0, 0.0, 1.0]])) == pytest.approx(by_hand)
    # Sure: the mean of -log p is about 20 / 2, and softmax is used, where the quadratic would give [0.9..., 0].
    assert deep.MaNo().score(outputs([[10.0, -10.0], [10.0, -10.0]])) == pytest.approx(0.5**0.25)
    half = deep.MaNo().score(outputs([[20.0, 20.0, -30.0]]))
    assert half == pytest.approx((2 * 0.5**4 / 3) ** 0.25)
    assert deep.MaNo().score(outputs(np.zeros((2, 4)))) == pytest.approx(0.25)


def test_dispersion_by_hand():
    logits = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    features = [[0.0, 0.0], [2.0, 0.0], [4.0, 3.0]]
    # Means (1, 0) of two and (4, 3) of one around (2, 1): 2 * 2 + 1 * 8 = 12; one degree of freedom, three samples.
    assert deep.Dispersion().score(outputs(logits, features)) == pytest.approx(math.log(12 / 1 / 3))
    assert math.isnan(deep.Dispersion().score(outputs(logits[:2], features[:2])))
    assert math.isnan(deep.Dispersion().score(outputs(logits, np.ones((3, 2)))))


def test_meta_distribution_energy_by_hand():
    assert deep.MDE().score(outputs(np.ones((7, 3)))) == pytest.approx(math.log(math.log(7)))
    # Energies -log 2 and -log 8 (logits that exponentiate to 1 + 1 and 4 + 4): sum of exp(E) = 1/2 + 1/8.
    logits = np.log([[1.0, 1.0], [4.0, 4.0]])
    by_hand = math.log(math.log(5 / 8) + (math.log(2) + math.log(8)) / 2)
    assert deep.MDE().score(outputs(logits)) == pytest.approx(by_hand)
    assert math.isnan(deep.MDE().score(outputs([[1.0, 2.0]])))


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
    found = deep.GdScore(seed=7, batch=20).score(outputs(logits.detach().numpy(), features))
    assert found == pytest.approx(np.mean(norms), rel=1e-9)


def test_frechet_is_the_formula_with_a_matrix_root():
    target, _, _ = world(300, 0.4, 8)
    one, other = np.cov(FEATURES.T), np.cov(target.T)
    apart = np.sum((FEATURES.mean(axis=0) - target.mean(axis=0)) ** 2)
    by_root = apart + np.trace(one + other - 2 * sqrtm(one @ other)).real
    estimator = deep.Frechet().fit(SOURCE)
    assert estimator.score(outputs(target, target)) == pytest.approx(by_root, rel=1e-9)
    assert estimator.score(outputs(FEATURES, FEATURES)) == pytest.approx(0.0, abs=1e-9)
    narrow = deep.Frechet().fit(outputs(np.zeros((2, 2)), [[0.0], [2.0]]))
    # Means 1 and 4, standard deviations sqrt(2) and 2 sqrt(2).
    assert narrow.score(outputs(np.zeros((2, 2)), [[2.0], [6.0]])) == pytest.approx(9 + 2)
    with pytest.raises(ValueError, match="a covariance needs two samples or more; got 1"):
        deep.Frechet().fit(outputs(np.zeros((1, 2))))


def test_frechet_of_fewer_samples_than_features_is_finite():
    rng = np.random.default_rng(0)
    few = rng.standard_normal((3, 20))
    assert 0.0 < deep.Frechet().fit(outputs(rng.standard_normal((5, 20)))).score(outputs(few)) < math.inf


def test_calibrated_confidence_by_hand():
    # Of the first class 0.6 is right once in two, 0.8 always; the pools of the second mirror them.
    source = np.log([[0.6, 0.4], [0.6, 0.4], [0.8, 0.2], [0.8, 0.2], [0.1, 0.9], [0.1, 0.9]])
    estimator = deep.CBPE().fit(outputs(source, labels=np.array([0, 1, 0, 0, 1, 1])))
    target = np.log([[0.6, 0.4], [0.8, 0.2], [0.7, 0.3], [0.95, 0.05], [0.05, 0.95]])
    # 0.5, 1, halfway between, and flat beyond what was seen.
    assert estimator.score(outputs(target)) == pytest.approx(1 - (0.5 + 1 + 0.75 + 1 + 1) / 5)


def test_label_shift_is_undone():
    logits, labels = np.eye(2)[[0, 0, 0, 1, 1, 1, 1, 0]], np.array([0, 0, 0, 0, 1, 1, 1, 1])
    estimator = deep.BBSE().fit(outputs(logits, labels=labels))
    # Nine tenths of the target are of the first class: of each class one in four is mistaken.
    target = np.eye(2)[[0] * 28 + [1] * 12]  # 0.9 * 0.75 + 0.1 * 0.25 = 0.7 predicted as the first
    np.testing.assert_allclose(estimator.weights(outputs(target)), [1.8, 0.2])
    assert estimator.score(outputs(target)) == pytest.approx(0.25)
    # With classes of different difficulty the error moves with their shares.
    labels = np.array([0, 0, 0, 0, 1, 1, 0, 0])
    uneven = deep.BBSE().fit(outputs(logits, labels=labels))
    found = uneven.weights(outputs(target))
    assert found @ (np.bincount(labels) / 8) == pytest.approx(1.0)


def test_mutual_information_is_that_of_the_joint_distribution():
    rows = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    joint = rows / len(rows)
    by_definition = np.sum(joint * np.log(joint / (joint.sum(axis=1, keepdims=True) * joint.sum(axis=0))))
    assert deep.MutualInformation().score(outputs(LOGITS)) == pytest.approx(by_definition, rel=1e-9)
    sure = 1000.0 * np.eye(3)[[0, 1, 2]]
    assert deep.MutualInformation().score(outputs(sure)) == pytest.approx(math.log(3))
    assert deep.MutualInformation().score(outputs(sure[[0, 0]])) == pytest.approx(0.0, abs=1e-12)


def test_feature_shift_by_hand():
    # Means 1 and 5, standard deviations 1 and 0; the constant feature is left out.
    estimator = deep.FeatureShift().fit(outputs(np.zeros((2, 2)), [[0.0, 5.0], [2.0, 5.0]]))
    assert estimator.score(outputs(np.zeros((2, 2)), [[4.0, 9.0], [4.0, 9.0]])) == pytest.approx(3.0)
    assert deep.FeatureShift().fit(outputs(np.ones((3, 2)))).score(outputs(np.zeros((2, 2)), np.zeros((2, 2)))) == 0.0
    scaled = deep.FeatureShift().fit(outputs(LOGITS, FEATURES * [1, 10, 100, 1000]))
    target = FEATURES[:50] + 0.3
    plain = deep.FeatureShift().fit(SOURCE).score(outputs(target, target))
    assert scaled.score(outputs(target, target * [1, 10, 100, 1000])) == pytest.approx(plain)


@pytest.mark.parametrize("m", [3, 60])
def test_projnorm_linear_is_that_of_the_theory_on_centred_kernels(m):
    # Three samples of four features take the route through the kernel, sixty the other.
    features, logits, _ = world(m, 0.4, 11)
    blocks = Blocks(FEATURES @ FEATURES.T, features @ FEATURES.T, features @ features.T).centred()
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
    assert deep.ProjNormLinear().fit(SOURCE).score(outputs(logits, features)) == pytest.approx(by_theory, rel=1e-6)
    with pytest.raises(ValueError, match="`ridge` must be positive; got 0"):
        deep.ProjNormLinear(ridge=0.0)


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


def test_disagreement_is_the_mean_over_the_other_networks():
    own, one, other = np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[0, 1, 2, 1]], np.eye(3)[[1, 2, 2, 0]]
    assert deep.GDE().score(Outputs(own, others=(one, other))) == pytest.approx((1 / 4 + 2 / 4) / 2)
    with pytest.raises(InputError, match="GDE needs outputs of a second model; the target has none"):
        deep.GDE().score(outputs(own))


def test_agreement_on_the_line_follows_accuracies_that_lie_on_one():
    source = networks(4000, 0.0, 31)
    for shift in (0.2, 0.4):
        moved = networks(4000, shift, 32)
        for estimator in (deep.ALineS(), deep.ALineD()):
            assert estimator.fit(source).score(moved) == pytest.approx(moved.error, abs=0.12)


def test_agreement_on_the_line_by_hand():
    # Probits that are exactly on a line: agreements 0.5 and 0.7 and 0.9 move to those of slope 0.5 and offset -0.1.
    accuracies, agreements = norm.ppf([0.8, 0.7, 0.6]), norm.ppf([0.5, 0.7, 0.9])
    line = SourceLine(accuracies, agreements)
    slope, offset = line.slope(0.5 * agreements - 0.1)
    assert (slope, offset) == (pytest.approx(0.5), pytest.approx(-0.1))
    # An agreement of nearly all is left out, and two of one kind have no slope.
    assert line.slope(np.array([*(0.5 * agreements[:2] - 0.1), norm.ppf(0.999)]))[0] == pytest.approx(0.5)
    assert math.isnan(line.slope(norm.ppf([0.999, 0.999, 0.5]))[0])
    with pytest.raises(InputError, match="ALine-S needs outputs of two more models; the source has none"):
        deep.ALineS().fit(replace(SOURCE, others=(LOGITS,)))


def test_agreement_on_the_line_is_exact_on_its_own_source():
    source = networks(500, 0.2, 33)
    for estimator in (deep.ALineS(), deep.ALineD()):
        assert estimator.fit(source).score(source) == pytest.approx(source.error, abs=1e-9)
        assert math.isnan(estimator.fit(source).score(replace(source, others=(source.logits,) * 3)))


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 40), levels=st.integers(2, 30), sharp=st.sampled_from([1.0, 40.0]), seed=st.integers(0, 1000))
def test_calibrated_confidence_is_that_of_scikit_learn(n, levels, sharp, seed):
    rng = np.random.default_rng(seed)
    # Few levels give ties; sharp logits probabilities within rounding of 0 and 1.
    logits, new = (sharp * rng.integers(levels, size=(m, 3)) / levels for m in (n, 50))
    labels = rng.integers(3, size=n)
    rows, targets = (softmax(x, axis=1) for x in (logits, new))
    fitted = [IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(rows[:, k], labels == k) for k in range(3)]
    predicted = new.argmax(axis=1)
    right = [fitted[k].predict(targets[[j], k])[0] for j, k in enumerate(predicted)]
    found = deep.CBPE().fit(outputs(logits, labels=labels)).score(outputs(new))
    assert found == pytest.approx(1.0 - np.mean(right), abs=1e-12)


@pytest.mark.slow
def test_a_run_takes_them_by_name(finished, tmp_path):
    context, record = finished
    shutil.copytree(context.root, tmp_path / "runs")
    config = replace(SMALL, methods=(*LATER_METHODS, "ATC"))
    found = run_comparison(config, replace(context, root=tmp_path / "runs")).arrays
    assert found["methods"].tolist() == [*LATER_METHODS, "ATC"]
    np.testing.assert_array_equal(found["errors"], record.arrays["errors"])
    assert np.isfinite(found["scores"]).all()
