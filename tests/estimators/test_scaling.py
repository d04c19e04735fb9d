"""Calibrated probabilities before every method."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax

from projnorm.estimators.cbpe import CBPE
from projnorm.estimators.scaling import Scaling
from projnorm.outputs.outputs import Outputs
from tests.small import gaussian_outputs


def bent(n: int, seed: int) -> Outputs:
    """Logits of two classes, of which the second is less likely than they say, and more so the surer they are."""
    rng = np.random.default_rng(seed)
    margin = 3.0 * rng.standard_normal(n)
    labels = (rng.random(n) < expit(margin) ** 3).astype(np.int64)
    return Outputs(np.column_stack([np.zeros(n), margin]), labels=labels)


@pytest.mark.parametrize("factor", [0.2, 1.0, 4.0])
def test_a_temperature_undoes_what_logits_were_multiplied_by(factor):
    outputs = gaussian_outputs(3000, [0.25] * 4, np.random.default_rng(0))
    scaling = Scaling.fit(Outputs(factor * outputs.logits, labels=outputs.labels))
    assert scaling.isotonic is None
    assert scaling.temperature == pytest.approx(factor, rel=0.1)
    scaled = scaling(Outputs(factor * outputs.logits))
    np.testing.assert_allclose(scaled.logits, factor * outputs.logits / scaling.temperature)


def test_two_classes_are_calibrated_by_a_monotone_function():
    source, target = bent(4000, 0), bent(4000, 1)
    scaling = Scaling.fit(source)
    assert scaling.isotonic is not None
    second = softmax(scaling(target).logits, axis=1)[:, 1]
    order = np.argsort(target.logits[:, 1])
    assert (np.diff(second[order]) >= -1e-12).all()
    for low, high in ((0.0, 0.2), (0.2, 0.6), (0.6, 1.0)):
        inside = (second >= low) & (second <= high)
        assert second[inside].mean() == pytest.approx(target.known_labels[inside].mean(), abs=0.04)
    # CBPE decides on the same function, so confidence after scaling is CBPE.
    assert 1.0 - second.mean() != pytest.approx(1.0 - softmax(target.logits, axis=1)[:, 1].mean(), abs=0.02)
    scaled = scaling(target)
    rows = softmax(scaled.logits, axis=1)
    expected = 1.0 - rows[np.arange(len(rows)), scaled.predicted].mean()
    assert expected == pytest.approx(CBPE().fit(source).score(target), abs=1e-9)


def test_two_classes_that_need_none_have_a_temperature():
    source = gaussian_outputs(400, [0.5, 0.5], np.random.default_rng(0), spread=0.4)
    source = Outputs(0.1 * source.logits, labels=source.labels)  # sure of nothing, and always right
    assert source.error < 0.01
    scaling = Scaling.fit(source)
    assert scaling.isotonic is None
    largest = softmax(scaling(source).logits, axis=1).max(axis=1)
    assert 1.0 - largest.mean() == pytest.approx(source.error, abs=0.01)


@pytest.mark.parametrize("source", [bent(500, 0), gaussian_outputs(300, [0.5, 0.3, 0.2], np.random.default_rng(1))])
def test_predicted_classes_stay_those_of_the_model(source):
    scaling = Scaling.fit(source)
    np.testing.assert_array_equal(scaling(source).predicted, source.logits.argmax(axis=1))
    assert scaling(source).error == source.error
    own = 1 - np.minimum(1, source.predicted)
    with_own = Outputs(source.logits, labels=source.labels, predictions=own)
    np.testing.assert_array_equal(scaling(with_own).predicted, own)


def test_labels_of_one_class_and_logits_without_bounds_stay_finite():
    for logits in (np.zeros((20, 2)), 1e5 * np.eye(2)[[0, 1] * 10]):
        for labels in (np.zeros(20, np.int64), np.arange(20) % 2):
            source = Outputs(logits, labels=labels)
            assert np.isfinite(Scaling.fit(source)(source).logits).all()
