"""Laws of sums of squared normals, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from projnorm_theory.quadratic_forms import RatioLaw, ShiftedLaw, quadratic_tails, quantile
from tests.strategies import generators


def _ratio(weights, dof: int, denominator_dof: int) -> RatioLaw:
    return RatioLaw(np.asarray(weights, dtype=float), dof, np.ones(1), np.array([float(denominator_dof)]))


@pytest.mark.parametrize("numerator", [1, 2, 5, 300])
@pytest.mark.parametrize("denominator", [1, 2, 7, 400])
def test_equal_weights_give_the_f_distribution_in_both_tails(numerator, denominator):
    """To relative 1e-10 in the smaller tail, from probabilities of 1e-280 upwards."""
    exact = stats.f(numerator, denominator)
    law = _ratio(np.full(numerator, denominator / numerator), 1, denominator)
    for x in 10.0 ** np.arange(-12, 13, 2):
        tails = law.tails(x)
        ours, theirs = min((tails.lower, exact.cdf(x)), (tails.upper, exact.sf(x)), key=lambda pair: pair[1])
        if theirs > 1e-280:
            assert ours == pytest.approx(theirs, rel=1e-10)
        assert tails.lower + tails.upper == pytest.approx(1.0, abs=1e-15)


@given(st.lists(st.integers(0, 24), min_size=2, max_size=6, unique=True), st.integers(1, 50), st.floats(-13.0, 3.0))
def test_pairs_of_equal_weights_over_twelve_decades_match_the_sum_of_exponentials(half_decades, denominator, log_x):
    r"""With two degrees of freedom each, P(ratio > x) is a sum of (1 + x / l_j)^(-h/2) with known coefficients."""
    weights = 10.0 ** (-np.array(half_decades) / 2)
    coefficients = np.array(
        [np.prod([w / (w - other) for other in np.delete(weights, j)]) for j, w in enumerate(weights)]
    )
    x = 10.0**log_x
    exact = float(np.sum(coefficients * (1 + x / weights) ** (-denominator / 2)))
    assert _ratio(weights, 2, denominator).tails(x).upper == pytest.approx(exact, abs=1e-11)


@given(generators, st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 3]), st.floats(-6.0, 6.0))
def test_the_reciprocal_ratio_has_the_complementary_law(rng, numerator, denominator, dof, log_x):
    above, below = 10.0 ** rng.uniform(-6, 0, numerator), 10.0 ** rng.uniform(-6, 0, denominator)
    law = RatioLaw(above, dof, below, np.full(denominator, float(dof)))
    reciprocal = RatioLaw(below, dof, above, np.full(numerator, float(dof)))
    x = 10.0**log_x
    assert law.tails(x).lower == pytest.approx(reciprocal.tails(1 / x).upper, rel=1e-8, abs=1e-13)


@given(generators, st.integers(1, 20), st.sampled_from([1, 3]), st.integers(1, 40), st.floats(1e-9, 1 - 1e-9))
def test_the_quantile_inverts_the_law(rng, size, dof, denominator, p):
    law = _ratio(10.0 ** rng.uniform(-12, 0, size), dof, denominator)
    assert law.tails(quantile(law, p)).lower == pytest.approx(p, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("dof", [1, 2, 9, 200])
@pytest.mark.parametrize("noncentrality", [0.0, 0.1, 5.0, 1000.0])
def test_one_shifted_chi_square_matches_scipy(dof, noncentrality):
    exact = stats.ncx2(dof, noncentrality) if noncentrality else stats.chi2(dof)
    for p in (1e-4, 0.05, 0.5, 0.95, 1 - 1e-4):
        x = float(exact.ppf(p))
        tails = quadratic_tails(np.ones(1), np.array([float(dof)]), np.array([noncentrality]), x)
        assert tails.lower == pytest.approx(float(exact.cdf(x)), abs=1e-9)


@pytest.mark.parametrize("scale_dof", [1, 2, 3, 30])
def test_a_shifted_law_without_shift_is_a_ratio(scale_dof):
    weights = np.array([1.0, 0.3, 1e-2])
    shifted = ShiftedLaw(weights, 2, np.zeros(3), 0.0, scale_dof)
    for x in 10.0 ** np.arange(-3.0, 3.0):
        assert shifted.tails(x).lower == pytest.approx(_ratio(weights, 2, scale_dof).tails(x).lower, abs=1e-6)


def test_a_shifted_law_matches_simulation():
    rng = np.random.default_rng(0)
    weights, shifts, draws = np.array([1.0, 0.3, 1e-2]), np.array([0.5, 0.0, 0.2]), 200_000
    law = ShiftedLaw(weights, 1, shifts, 0.1, 5)
    roots = np.sqrt(weights / rng.chisquare(5, (draws, 1)))
    values = 0.1 + np.sum((np.sqrt(shifts) + roots * rng.standard_normal((draws, 3))) ** 2, axis=1)
    for x in (0.2, 0.5, 1.0, 3.0):
        share = np.mean(values <= x)
        assert law.tails(x).lower == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / draws))
    assert (law.tails(0.1).lower, law.tails(0.0).upper, law.tails(math.inf).lower) == (0.0, 1.0, 1.0)
