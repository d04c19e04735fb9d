"""Draws with given class shares: the shares are met, and no sample is drawn twice."""

from __future__ import annotations

import numpy as np
import pytest

from projnorm.data.class_draws import drawn_with_counts, drawn_with_shares, shares_of_few


def test_a_draw_has_the_shares_and_no_sample_twice():
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=1000)
    for shares in (np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.01, 0.01, 0.01, 0.97]), np.full(4, 0.25)):
        drawn = drawn_with_shares(labels, shares, 200, rng, least_share=0.02)
        assert len(np.unique(drawn)) == len(drawn)
        assert len(drawn) == pytest.approx(200, abs=2)
        np.testing.assert_allclose(np.bincount(labels[drawn], minlength=4) / len(drawn), shares, atol=0.01)


def test_a_draw_is_smaller_where_a_class_has_too_few_samples():
    labels = np.repeat([0, 1], [10, 500])
    rng = np.random.default_rng(0)
    drawn = drawn_with_shares(labels, np.array([0.5, 0.5]), 200, rng, least_share=0.02)
    assert np.bincount(labels[drawn]).tolist() == [10, 10]
    assert len(drawn_with_shares(labels, np.array([0.0, 0.0, 1.0]), 200, rng, least_share=0.02)) == 0


def test_a_class_gives_all_it_has_where_more_is_asked_for():
    labels = np.repeat([0, 2], [4, 50])
    drawn = drawn_with_counts(labels, np.array([10, 5, 10]), np.random.default_rng(0))
    assert np.bincount(labels[drawn]).tolist() == [4, 0, 10]


def test_shares_of_few_classes_are_equal():
    shares = shares_of_few(10, 4, np.random.default_rng(0))
    assert sorted(shares) == [0.0] * 6 + [0.25] * 4
