"""Methods that compare samples of the same predicted class: by hand, and under a change of class shares alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from projnorm import estimators
from projnorm.outputs.outputs import Outputs

CENTRES = np.array([[6.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 0.0, 6.0]])


def draw(n, shares, seed, moved=0.0):
    """Classes that are far apart; `moved` mixes their features and leaves the logits."""
    rng = np.random.default_rng(seed)
    features = CENTRES[rng.choice(3, size=n, p=shares)] + rng.standard_normal((n, 3))
    return Outputs(features, (1.0 - moved) * features + moved * np.roll(features, 1, axis=1))


EQUAL, OTHER = [1 / 3, 1 / 3, 1 / 3], [0.8, 0.2, 0.0]


def test_class_feature_shift_by_hand():
    # Two samples of each class: means 1 and 10, and squared distances 2 and 2 within, over 4 - 2 degrees of freedom.
    classes = np.eye(2)[[0, 0, 1, 1]]
    fitted = estimators.ClassFeatureShift().fit(Outputs(classes, np.array([[0.0], [2.0], [9.0], [11.0]])))
    spread = math.sqrt(2.0)
    assert fitted.spread == pytest.approx(spread)
    target = Outputs(np.eye(2)[[0, 0, 0, 1]], np.array([[4.0], [4.0], [4.0], [10.0]]))
    value = 0.75 * ((3 / spread) ** 2 - 1 / 3 - 1 / 2) + 0.25 * (0.0 - 1 - 1 / 2)
    assert fitted.score(target) == pytest.approx(math.sqrt(value))
    # Less than noise has the other sign.
    assert fitted.score(Outputs(np.eye(2)[[0]], np.array([[1.0]]))) == pytest.approx(-math.sqrt(1.5))
    # A class that the source never predicts is left out.
    only = estimators.ClassFeatureShift().fit(Outputs(classes[:2], np.array([[0.0], [2.0]])))
    assert math.isnan(only.score(Outputs(classes[2:], np.array([[0.0], [2.0]]))))
    constant = estimators.ClassFeatureShift().fit(Outputs(classes, np.ones((4, 1))))
    assert constant.score(target) == 0.0


def test_without_a_shift_class_feature_shift_is_zero_on_average():
    fitted = estimators.ClassFeatureShift().fit(draw(300, EQUAL, 0))
    scores = np.array([fitted.score(draw(60, EQUAL, seed)) for seed in range(1, 201)])
    squares = np.sign(scores) * scores**2
    # Of one source; its own noise is shared by all targets, 1/n of each class with a relative error of sqrt(2 / 9).
    assert abs(np.mean(squares)) < 4 * (np.std(squares) / math.sqrt(200) + 3 / 300 * math.sqrt(2 / 9))


@pytest.mark.parametrize(
    "method", [estimators.ClassFeatureShift, estimators.ProjNormLinearMatched], ids=lambda m: m.name
)
def test_a_change_of_class_shares_moves_only_methods_that_do_not_look_at_classes(method):
    source = draw(3000, EQUAL, 0)
    plain = {
        estimators.ClassFeatureShift: estimators.FeatureShift,
        estimators.ProjNormLinearMatched: estimators.ProjNormLinearEstimator,
    }[method]
    labelled = Outputs(source.logits, source.features, source.predicted)
    fitted, whole = method().fit(labelled), plain().fit(labelled)
    still, shares, moved = draw(1000, EQUAL, 1), draw(1000, OTHER, 2), draw(1000, EQUAL, 3, moved=0.5)
    assert abs(fitted.score(shares)) < 0.05 * fitted.score(moved)
    assert abs(fitted.score(still)) < 0.05 * fitted.score(moved)
    assert whole.score(shares) > 10.0 * whole.score(still)
    assert fitted.score(draw(1000, OTHER, 4, moved=0.5)) == pytest.approx(fitted.score(moved), rel=0.3)


def test_a_matched_reference_is_a_regression_on_repeated_samples():
    source, target = draw(40, EQUAL, 5), draw(30, OTHER, 6, moved=0.5)
    counts = np.bincount(source.predicted, minlength=3)
    counts_of_target = np.bincount(target.predicted, minlength=3)
    # Each sample as often as gives the classes the shares of the target.
    repeats = (counts_of_target * math.prod(counts) // counts)[source.predicted]
    x, y = (np.repeat(one, repeats, axis=0) for one in (source.features, np.eye(3)[source.predicted]))
    new, own = target.features, np.eye(3)[target.predicted]
    centre, shares = x.mean(axis=0), y.mean(axis=0)
    np.testing.assert_allclose(shares, counts_of_target / 30)
    ridge = 0.3 * np.mean(np.sum((source.features - source.features.mean(axis=0)) ** 2, axis=1))

    def regression(a, b):
        a, b = a - centre, b - shares
        return np.linalg.solve(a.T @ a / len(a) + ridge * np.eye(3), a.T @ b / len(a))

    distance = np.linalg.norm(regression(x, y) - regression(new, own))
    score = estimators.ProjNormLinearMatched().fit(source).score(target)
    assert score == pytest.approx(distance, rel=1e-9)
    # What the reference was made of has no distance; classes that the source never predicts cannot be matched.
    assert estimators.ProjNormLinearMatched().fit(source).score(source) == pytest.approx(0.0, abs=1e-12)
    few = Outputs(np.eye(3)[[0, 1]], source.features[:2])
    assert math.isnan(estimators.ProjNormLinearMatched().fit(few).score(Outputs(np.eye(3)[[2]], source.features[:1])))
