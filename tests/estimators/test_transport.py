"""The transport problem behind COT: the plan and its dual against a linear program, its error against resampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import linprog

from projnorm.core.errors import InputError
from projnorm.estimators.transport import transport


def cost_by_linear_program(rows, shares) -> float:
    m, classes = rows.shape
    distance = 0.5 * np.abs(rows[:, None, :] - np.eye(classes)[None]).sum(axis=2)
    marginals = np.vstack([np.kron(np.eye(m), np.ones(classes)), np.kron(np.ones(m), np.eye(classes))])
    return linprog(distance.ravel(), A_eq=marginals, b_eq=[*np.full(m, 1 / m), *shares]).fun


@given(
    m=st.integers(1, 12),
    classes=st.integers(2, 5),
    kind=st.sampled_from(["any", "multiples of 1/m", "zeros", "one class", "equal rows"]),
    seed=st.integers(0, 1000),
)
def test_the_plan_is_optimal_and_the_dual_solution_proves_it(m, classes, kind, seed):
    rng = np.random.default_rng(seed)
    rows, shares = rng.dirichlet(np.ones(classes), m), rng.dirichlet(np.ones(classes))
    if kind == "multiples of 1/m":  # the plan is degenerate, and dual solutions are many
        shares = np.bincount(rng.integers(classes, size=m), minlength=classes) / m
    elif kind == "zeros":
        shares[0] = 0.0
        shares /= shares.sum()
    elif kind == "one class":
        shares = np.eye(classes)[-1]
    elif kind == "equal rows":
        rows[:] = rows[0]
    found = transport(rows, shares)
    f, g = found.row_potentials, found.class_potentials
    assert found.cost == pytest.approx(cost_by_linear_program(rows, shares), abs=1e-9)
    assert f.mean() + shares @ g == pytest.approx(found.cost, abs=1e-9)
    np.testing.assert_allclose(f, (1.0 - rows - g).min(axis=1), atol=1e-12)
    assert np.isfinite(g).all()
    assert np.ptp(g) <= 1.0 + 1e-12  # costs of a row differ by no more


def test_the_dual_is_the_derivative_with_respect_to_shares():
    rng = np.random.default_rng(0)
    rows, shares = rng.dirichlet(np.ones(4), 37), np.array([0.5, 0.3, 0.2, 0.0])
    found, step = transport(rows, shares), 1e-4
    for k in range(4):  # the last class has no share, and a derivative on one side
        moved = transport(rows, (1.0 - step) * shares + step * np.eye(4)[k])
        expected = found.class_potentials[k] - shares @ found.class_potentials
        assert (moved.cost - found.cost) / step == pytest.approx(expected, abs=1e-6)


def test_no_shares_are_refused():
    with pytest.raises(
        InputError, match=r"`shares` must be 3 numbers, none negative, that add up to 1; got shape \(2,"
    ):
        transport(np.full((4, 3), 1 / 3), np.array([0.5, 0.5]))
    with pytest.raises(InputError, match=r"the sum 1\.5"):
        transport(np.full((4, 2), 1 / 2), np.array([1.0, 0.5]))
