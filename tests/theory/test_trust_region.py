"""Extremes on a sphere, against a fine search of the sphere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory.trust_region import extreme_on_sphere

lengths = st.one_of(st.just(0.0), st.floats(1e-12, 10.0))


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=2),
    st.tuples(lengths, lengths),
    st.floats(1e-3, 10.0),
    st.booleans(),
)
def test_agrees_with_a_search_of_the_circle(curvatures, centre, radius, largest):
    curvatures, S = np.array(curvatures), np.array(centre)[:, None]
    angles = np.linspace(0, 2 * np.pi, 20001)
    circle = radius * np.array([np.cos(angles), np.sin(angles)])
    values = curvatures @ (circle - S) ** 2
    found = extreme_on_sphere(curvatures, S, radius, largest=largest)
    assert np.linalg.norm(found.point) == pytest.approx(radius, rel=1e-9)
    scale = curvatures.max() * (radius + np.linalg.norm(S)) ** 2
    if largest:
        assert values.max() - 1e-9 * scale <= found.value <= values.max() + 1e-6 * scale
    else:
        assert values.min() - 1e-6 * scale <= found.value <= values.min() + 1e-9 * scale


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_no_point_drawn_on_the_sphere_is_more_extreme(seed, q, c, largest):
    rng = np.random.default_rng(seed)
    curvatures, S, radius = rng.uniform(0.1, 10, q), rng.standard_normal((q, c)), rng.uniform(0.1, 3)
    found = extreme_on_sphere(curvatures, S, radius, largest=largest)
    points = rng.standard_normal((500, q, c))
    points *= radius / np.linalg.norm(points, axis=(1, 2), keepdims=True)
    values = np.einsum("q,pqc->p", curvatures, (points - S) ** 2)
    if largest:
        assert found.value >= values.max() * (1 - 1e-12)
    else:
        assert found.value <= values.min() * (1 + 1e-12)


@pytest.mark.parametrize("tiny", [0.0, 1e-300, 1e-17, 1e-9])
@pytest.mark.parametrize("largest", [True, False])
def test_the_hard_case_and_its_neighbourhood_are_continuous(tiny, largest):
    """Nothing, or next to nothing, of the centre along the extreme curvature, and a radius too large for the rest."""
    curvatures = np.array([1.0, 2.0, 3.0])
    centre = np.array([0.1, 0.3, tiny]) if largest else np.array([tiny, 0.3, 0.1])
    found = extreme_on_sphere(curvatures, centre[:, None], 5.0, largest=largest)
    assert np.linalg.norm(found.point) == pytest.approx(5.0, rel=1e-12)
    limit = extreme_on_sphere(curvatures, np.where(centre == tiny, 0.0, centre)[:, None], 5.0, largest=largest)
    assert found.value == pytest.approx(limit.value, rel=1e-7)


def test_a_zero_radius_leaves_the_centre_itself():
    assert extreme_on_sphere(np.array([2.0, 1.0]), np.array([[3.0], [1.0]]), 0.0, largest=True).value == 19.0


def test_equal_curvatures_are_a_distance_to_a_sphere():
    centre = np.array([[3.0], [4.0]])
    for largest, distance in ((True, 7.0), (False, 3.0)):
        found = extreme_on_sphere(np.full(2, 0.5), centre, 2.0, largest=largest)
        assert found.value == pytest.approx(0.5 * distance**2)
