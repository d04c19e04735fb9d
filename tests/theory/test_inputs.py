"""Every public function takes what people pass, computes in float64, and leaves its input as it was."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

import projnorm_theory as pt

rng = np.random.default_rng(0)
X = rng.integers(-9, 10, (4, 9))
X_OOD = rng.integers(-9, 10, (3, 9))
Y, Y_OOD = rng.integers(-9, 10, 4), rng.integers(-9, 10, 3)
K, C, K_OOD = X @ X.T, X_OOD @ X.T, X_OOD @ X_OOD.T

CALLS = {
    "min_norm_solution": (lambda X, Y: pt.min_norm_solution(X, Y).theta, (X, Y)),
    "ood_loss": (lambda theta, X_ood, Y_ood: pt.ood_loss(theta, X_ood, Y_ood), (X[0], X_OOD, Y_OOD)),
    "RowSpace.project": (lambda X, theta: pt.RowSpace.from_matrix(X).project(theta), (X, X_OOD[0])),
    "RowSpace.residual": (lambda X, theta: pt.RowSpace.from_matrix(X).residual(theta), (X, X_OOD[0])),
    "projnorm_linear": (lambda theta, X_ood: pt.projnorm_linear(theta, X_ood).value, (X[0], X_OOD)),
    "projnorm_linear_from_gram": (
        lambda k, y, c, k_ood: pt.projnorm_linear_from_gram(k, y, c, k_ood).value,
        (K, Y, C, K_OOD),
    ),
    "proposition_bound": (lambda X, Y, X_ood: pt.proposition_bound(X, Y, X_ood, k=1).upper, (X, Y, X_OOD)),
    "generalised_bound": (lambda X, Y, X_ood: pt.generalised_bound(X, Y, X_ood, k=1).upper, (X, Y, X_OOD)),
    "sharp_interval": (lambda X, Y, X_ood: pt.sharp_interval(X, Y, X_ood, rho=2).upper, (X, Y, X_OOD)),
    "attaining_truths": (lambda X, Y, X_ood: pt.attaining_truths(X, Y, X_ood, rho=2).interval.upper, (X, Y, X_OOD)),
    "check_assumptions": (
        lambda X, Y, X_ood, Y_ood: pt.check_assumptions(X, Y, X_ood, Y_ood, k=1).test_loss,
        (X, Y, X_OOD, Y_OOD),
    ),
    "spectrum": (lambda X: pt.spectrum(X).eigenvalues, (X,)),
    "alignment": (lambda X, X_ood: pt.alignment(X, X_ood, 2).matrix, (X, X_OOD)),
    "alignment from blocks": (
        lambda *blocks: pt.alignment(pt.LinearPair.from_gram(*blocks), k=2).matrix,
        (K, C, K_OOD),
    ),
    "principal_angles": (lambda X, X_ood: pt.principal_angles(X, X_ood, 2), (X, X_OOD)),
    "fit_power_law": (lambda values: pt.fit_power_law(values).exponent, (np.array([9, 5, 3, 2]),)),
    "deterministic_projnorm": (lambda theta, s: pt.deterministic_projnorm(theta, s, 2).value, (X[0], np.arange(9))),
    "equivalents": (lambda theta, A, B: pt.equivalents(theta, A, B, n=2, m=2).loss, (X[0], X.T @ X, np.arange(9))),
    "sign_equivalents": (
        lambda w, A, B: pt.sign_equivalents(w, A, B, n=2, m=2).test_error,
        (X[0], X.T @ X, np.arange(9)),
    ),
    "toy_asymptotics": (lambda s: pt.toy_asymptotics(s, d1=30, d2=9, n=9, m=9).test_error, (np.array([0, 1, 5]),)),
}


def _strided(a: np.ndarray) -> np.ndarray:
    padded = np.zeros(tuple(2 * size for size in a.shape))
    view = padded[tuple(slice(None, None, 2) for _ in a.shape)]
    view[...] = a
    return view


FORMS = {
    "float32": lambda a: a.astype(np.float32),
    "int16": lambda a: a.astype(np.int16),
    "list": lambda a: a.tolist(),
    "Fortran order": lambda a: np.asfortranarray(a, dtype=np.float64),
    "non-contiguous view": _strided,
    "reversed view": lambda a: np.ascontiguousarray(a[::-1], dtype=np.float64)[::-1],
    "read-only": lambda a: _read_only(a),
    "Python objects": lambda a: a.astype(object),
}


def _read_only(a: np.ndarray) -> np.ndarray:
    copy = a.astype(np.float64)
    copy.flags.writeable = False
    return copy


# Every form with one call, and every call with one of the forms.
PAIRS = {("generalised_bound", form) for form in FORMS} | set(zip(CALLS, cycle(FORMS), strict=False))


@pytest.mark.parametrize(("name", "form"), sorted(PAIRS))
def test_any_real_array_gives_the_float64_answer(name, form):
    call, arguments = CALLS[name]
    expected = call(*(a.astype(np.float64) for a in arguments))
    # Intervals are widened by the rounding of the type that the data came in.
    rtol = 1e-4 if form == "float32" and name in ("generalised_bound", "sharp_interval", "attaining_truths") else 1e-12
    np.testing.assert_allclose(call(*map(FORMS[form], arguments)), expected, rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", CALLS)
def test_inputs_are_never_modified(name):
    call, arguments = CALLS[name]
    for order in "CF":
        copies = [np.array(a, dtype=np.float64, order=order) for a in arguments]
        before = [copy.copy() for copy in copies]
        call(*copies)
        for copy, original in zip(copies, before, strict=True):
            np.testing.assert_array_equal(copy, original)


@pytest.mark.parametrize(("n", "m", "d"), [(1, 1, 1), (1, 1, 5), (1, 4, 2), (4, 1, 2), (6, 5, 3), (3, 4, 5), (2, 2, 9)])
def test_every_shape_is_served(n, m, d):
    draw = np.random.default_rng(1)
    X, X_ood, theta_star = (draw.standard_normal(shape) for shape in ((n, d), (m, d), (d, 2)))
    Y, Y_ood = X @ theta_star, X_ood @ theta_star
    report = pt.check_assumptions(X, Y, X_ood, Y_ood, k=0)
    for interval in (
        pt.generalised_bound(X, Y, X_ood, rho=report.norms.rho),
        pt.sharp_interval(X, Y, X_ood, rho=report.norms.rho),
    ):
        assert interval.lower - 1e-12 <= report.test_loss <= interval.upper + 1e-12
    assert pt.proposition_bound(X, Y, X_ood, k=0).upper >= 0.0
    assert pt.projnorm_linear(pt.min_norm_solution(X, Y).theta, X_ood).value == pytest.approx(
        report.projnorm_linear, abs=1e-9
    )
    assert str(report)
