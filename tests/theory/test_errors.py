"""Each wrong input raises ValueError, and its message names the argument and says what was required."""

from __future__ import annotations

import numpy as np
import pytest

import projnorm_theory as pt

rng = np.random.default_rng(0)
X, X_OOD = rng.standard_normal((4, 9)), rng.standard_normal((3, 9))
Y, Y_OOD = rng.standard_normal(4), rng.standard_normal(3)
K, C, K_OOD = X @ X.T, X_OOD @ X.T, X_OOD @ X_OOD.T
WITH_NAN, WITH_INF = X.copy(), X_OOD.copy()
WITH_NAN[1, 2] = np.nan
WITH_INF[0, 0] = np.inf
ONLY_RHO = np.linalg.norm(pt.RowSpace.from_matrix(X[:2]).project(pt.min_norm_solution(X, Y).theta)) / np.linalg.norm(
    pt.min_norm_solution(X, Y).theta
)
EYE, ONES, D2 = np.eye(2, 4), np.ones((3, 4)), [1.0, 1.0]
HARD = np.eye(2)[[0, 1, 1]]
TOY = {"d1": 100, "d2": 50, "n": 50, "m": 50}


def _stopped(**options):
    pair = pt.LinearPair.from_features(np.eye(2, 3), [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return pt.projnorm_linear_after(pair, [1.0, 1.0], **options)


def _certificate(**options):
    return pt.ridge_error_bound(EYE, np.eye(2), np.eye(3, 4), **options)


CASES = {
    # arrays
    "NaN": (lambda: pt.min_norm_solution(WITH_NAN, Y), r"`X` must be finite; 1 entries.*first at \[1, 2\]"),
    "infinity": (lambda: pt.projnorm_linear(X[0], WITH_INF), r"`X_ood` must be finite.*\[0, 0\]"),
    "NaN in Y": (lambda: pt.sharp_interval(X, [1, 2, np.nan, 4], X_OOD), r"`Y` must be finite.*first at \[2\]"),
    "overflow": (lambda: pt.RowSpace.from_matrix([[1e200, 1.0]]), "`X` is so large that its sum of squares overflows"),
    "1-D X": (lambda: pt.spectrum([1.0, 2.0]), r"`X` must be 2-D.*got shape \(2,\).*reshape\(1, -1\)"),
    "3-D X": (lambda: pt.spectrum(np.zeros((2, 2, 2))), r"`X` must be 2-D.*got shape \(2, 2, 2\)\.$"),
    "scalar theta": (lambda: pt.projnorm_linear(1.0, X_OOD), r"`theta` must be 1-D or 2-D; got shape \(\)"),
    "empty X": (lambda: pt.min_norm_solution(np.zeros((0, 3)), []), r"`X` must not be empty; got shape \(0, 3\)"),
    "empty columns": (lambda: pt.RowSpace.from_matrix(np.zeros((3, 0))), r"`X` must not be empty; got shape \(3, 0\)"),
    "no outputs": (lambda: pt.min_norm_solution(X, np.zeros((4, 0))), r"`Y` must not be empty; got shape \(4, 0\)"),
    "ragged": (
        lambda: pt.RowSpace.from_matrix([[1.0, 2.0], [3.0]]),
        "`X` must be an array of real numbers with a regular",
    ),
    "strings": (lambda: pt.RowSpace.from_matrix([["a", "b"]]), "`X` must be an array of real numbers"),
    "complex": (lambda: pt.RowSpace.from_matrix([[1j]]), "`X` must be an array of real numbers"),
    "None": (lambda: pt.RowSpace.from_matrix(None), r"`X` must be"),
    "huge integers": (lambda: pt.RowSpace.from_matrix([[10**400]]), "`X` must be an array of real numbers"),
    "masked": (lambda: pt.RowSpace.from_matrix(np.ma.masked_equal([[1.0, 2.0]], 2.0)), "`X` has masked entries"),
    # shapes that do not fit
    "columns": (
        lambda: pt.LinearPair.from_features(X, X_OOD[:, :5]),
        r"`X_ood` must have 9 columns like `X`; got shape \(3, 5\)",
    ),
    "rows of Y": (lambda: pt.min_norm_solution(X, Y[:3]), r"`Y` must have 4 rows like `X`; got shape \(3,\)"),
    "rows of Y in a pair": (lambda: pt.sharp_interval(X, Y[:3], X_OOD), r"`Y` must have 4 rows like `X`"),
    "theta": (lambda: pt.projnorm_linear(X[0, :5], X_OOD), r"`theta` must have 9 rows like the columns of `X_ood`"),
    "theta of a space": (
        lambda: pt.RowSpace.from_matrix(X).project(Y),
        "`theta` must have 9 rows like the features of `X`",
    ),
    "Y of a space": (lambda: pt.RowSpace.from_matrix(X).solve(Y_OOD), "`Y` must have 4 rows like `X`"),
    "outputs of the loss": (
        lambda: pt.ood_loss(X[0], X_OOD, np.zeros((3, 2))),
        r"`Y_ood` must have the shape \(3,\) of the predictions.*got \(3, 2\)",
    ),
    "rows of the loss": (lambda: pt.ood_loss(X[0], X_OOD, Y), r"`Y_ood` must have 3 rows like `X_ood`"),
    "outputs of the report": (
        lambda: pt.check_assumptions(X, Y, X_OOD, np.zeros((3, 2)), k=1),
        "`Y_ood` must have 1 outputs like `Y`; got 2",
    ),
    "no labels": (lambda: pt.check_assumptions(X, Y, X_OOD, k=1), "`Y_ood` is required"),
    # pairs
    "pair and X_ood": (
        lambda: pt.sharp_interval(pt.LinearPair.from_features(X, X_OOD), Y, X_OOD),
        "`X_ood` must be left out when `X` is a LinearPair",
    ),
    "no X_ood": (lambda: pt.sharp_interval(X, Y), "`X_ood` is required unless `X` is a LinearPair"),
    # Gram matrices
    "square": (lambda: pt.LinearPair.from_gram(C, C, K_OOD), r"`k_train` must be square; got shape \(3, 4\)"),
    "symmetric": (
        lambda: pt.LinearPair.from_gram([[1.0, 2.0], [0.0, 1.0]], C, K_OOD),
        "`k_train` must be symmetric; entries differ",
    ),
    "definite": (
        lambda: pt.projnorm_linear_from_gram(K, Y, C, -K_OOD),
        "`k_ood` must be positive semi-definite; its eigenvalues run from",
    ),
    "cross block": (
        lambda: pt.projnorm_linear_from_gram(K, Y, C.T, K_OOD),
        r"`k_ood_train` must have shape \(3, 4\).*got \(4, 3\)",
    ),
    "ridge": (lambda: pt.projnorm_linear_from_gram(K, Y, C, K_OOD, ridge=-1.0), "`ridge` must be finite and zero or"),
    "ridge triple": (
        lambda: pt.projnorm_linear_from_gram(K, Y, C, K_OOD, ridge=(1, 2, 3)),
        r"`ridge` must be a number or a pair \(train, ood\)",
    ),
    # k
    "k negative": (lambda: pt.generalised_bound(X, Y, X_OOD, k=-1), "`k` must be between 0 and 3, the smaller rank"),
    "k too large": (lambda: pt.generalised_bound(X, Y, X_OOD, k=4), "`k` must be between 0 and 3.*got 4"),
    "k of the paper": (lambda: pt.proposition_bound(X, Y, X_OOD, k=3), "`k` must be between 0 and 2.*got 3"),
    "k None": (lambda: pt.proposition_bound(X, Y, X_OOD, k=None), "`k` must be a whole number; got None"),
    "k a float": (lambda: pt.alignment(X, X_OOD, 1.5), "`k` must be a whole number; got 1.5"),
    "k of angles": (lambda: pt.principal_angles(X, X_OOD, 4), "`k` must be between 0 and 3"),
    "k of the report": (lambda: pt.check_assumptions(X, Y, X_OOD, Y_OOD, k=9), "`k` must be between 0 and 3"),
    "ks": (lambda: pt.check_assumptions(X, Y, X_OOD, Y_OOD, k=1, ks=[0]), "`ks` must be between 1 and 3"),
    # rho
    "rho negative": (lambda: pt.sharp_interval(X, Y, X_OOD, rho=-1), "`rho` must be finite and zero or more; got -1"),
    "rho infinite": (lambda: pt.generalised_bound(X, Y, X_OOD, rho=np.inf), "`rho` must be finite and zero or more"),
    "rho text": (lambda: pt.sharp_interval(X, Y, X_OOD, rho="one"), "`rho` must be a number; got 'one'"),
    "rho reversed": (lambda: pt.sharp_interval(X, Y, X_OOD, rho=(2, 1)), r"`rho` must have low <= high; got \(2, 1\)"),
    "rho triple": (lambda: pt.sharp_interval(X, Y, X_OOD, rho=(1, 2, 3)), r"`rho` must be a number or a pair"),
    "rho infeasible": (
        lambda: pt.generalised_bound(X, Y, X[:3], k=2, rho=0.0),
        "`rho` must be at least .*: the top-2 span alone carries that much; got 0.0",
    ),
    # options
    "rcond": (lambda: pt.min_norm_solution(X, Y, rcond=-1e-3), r"`rcond` must lie in \[0, 1\); got -0.001"),
    "rcond text": (lambda: pt.spectrum(X, rcond="small"), "`rcond` must be a number; got 'small'"),
    "rcond nan": (lambda: pt.RowSpace.from_matrix(X, rcond=np.nan), r"`rcond` must lie in \[0, 1\); got nan"),
    "method": (lambda: pt.min_norm_solution(X, Y, method="lu"), "`method` must be one of 'auto', 'gram', 'qr', 'svd'"),
    "gram refused": (
        lambda: pt.min_norm_solution(np.vstack([X, X]), np.ones(8), method="gram"),
        r"`method` 'gram' needs a well-conditioned matrix.*shape \(8, 9\).*use method='auto' or 'svd'",
    ),
    "gram of a tall matrix": (lambda: pt.min_norm_solution(X.T, np.ones(9), method="gram"), "`method` 'gram' needs"),
    "qr refused": (
        lambda: pt.min_norm_solution(np.vstack([X, X]), np.ones(8), method="qr"),
        "`method` 'qr' needs a matrix of full rank",
    ),
    # power law
    "too few": (lambda: pt.fit_power_law([3.0, 2.0]), "`eigenvalues` must have at least 3 between"),
    "zeros": (lambda: pt.fit_power_law([3.0, 2.0, 1.0, 0.0]), "`eigenvalues` must be positive.*pass `last`"),
    "ascending": (lambda: pt.fit_power_law([1.0, 2.0, 3.0]), "`eigenvalues` must be in descending order"),
    "2-D": (lambda: pt.fit_power_law(K), r"`eigenvalues` must be 1-D; got shape \(4, 4\)"),
    "first": (lambda: pt.fit_power_law([3, 2, 1], first=0), "`first` must be at least 1; got 0"),
    "last": (lambda: pt.fit_power_law([3, 2, 1], last=4), "`last` must be between 1 and 3 eigenvalues; got 4"),
    "confidence": (lambda: pt.fit_power_law([3, 2, 1], confidence=1.0), "`confidence` must lie strictly between"),
    # asymptotics
    "eigenvalue": (lambda: pt.deterministic_projnorm([1, 1], [1, -1], 1), "`covariance_eigenvalues` must be zero or"),
    "theta rows": (
        lambda: pt.deterministic_projnorm([1, 1, 1], [1, 1], 1),
        "`theta` must have 2 rows like `covariance_eigenvalues`",
    ),
    "m": (lambda: pt.deterministic_projnorm([1, 1], [1, 1], 0), "`m` must be at least 1; got 0"),
    "sigma": (lambda: pt.toy_asymptotics([-1.0, 2.0], **TOY), r"`sigma` must lie between 0 and 1e\+100; got -1 to 2"),
    "sigma huge": (lambda: pt.toy_asymptotics(1e200, **TOY), "`sigma` must lie between 0 and"),
    # overflow on the way
    "loss overflows": (lambda: pt.ood_loss([1e100], [[1e100]], [0.0]), "the test loss overflows float64"),
    "rho overflows": (lambda: pt.sharp_interval(X, Y, X_OOD, rho=1e200), "the interval for the loss overflows"),
    "rho overflows k": (lambda: pt.generalised_bound(X, Y, X_OOD, rho=1e200), "the interval for the loss overflows"),
    "scales": (lambda: pt.sharp_interval(1e-120 * X, Y, 1e120 * X_OOD), "the interval for the loss overflows"),
    "scales k": (
        lambda: pt.proposition_bound(1e-120 * X, Y, 1e120 * X_OOD, k=1),
        "the interval for the loss overflows",
    ),
    "zero responses": (
        lambda: pt.sharp_interval(X, 0 * Y, X_OOD),
        "`Y` must not be fitted by zero weights: `rho` is a ratio to their length",
    ),
    "zero responses k": (lambda: pt.generalised_bound(X, 0 * Y, X_OOD), "`Y` must not be fitted by zero weights"),
    "inconsistent by a tenth": (
        lambda: pt.LinearPair.from_gram(K, 1.1 * K, K),
        "`k_ood_train` does not fit `k_train` and `k_ood`",
    ),
    "k of the paper, few training rows": (
        lambda: pt.proposition_bound(X[:2], Y[:2], X_OOD, k=2),
        "`k` must be between 0 and 1.*got 2",
    ),
    "rho above the only one": (
        lambda: pt.sharp_interval(X, Y, X[:2], rho=1.3 * ONLY_RHO),
        "`rho` must be .*: the rows of `X_ood` lie in the row space of `X`",
    ),
    "sigma nan": (lambda: pt.toy_asymptotics(np.nan, **TOY), "`sigma` must be finite"),
    "d2": (lambda: pt.toy_asymptotics(1.0, **{**TOY, "d2": 0}), "`d2` must be at least 1; got 0"),
    "toy n": (lambda: pt.toy_asymptotics(1.0, **{**TOY, "n": 100}), "`n` must be at most d1 - 4 = 96"),
    "average case: zero responses": (
        lambda: pt.spherical_loss(EYE, [0.0, 0.0], ONES),
        "`Y` must not be zero on the column space of `X`",
    ),
    "average case: zero responses, loo": (lambda: pt.scaled_loss(EYE, [0.0, 0.0], ONES), "`Y` must not be zero"),
    "average case: level": (
        lambda: pt.spherical_loss(EYE, [1.0, 2.0], ONES).interval(1.0),
        "`level` must lie strictly between 0 and 1; got 1.0",
    ),
    "average case: p": (
        lambda: pt.spherical_loss(EYE, [1.0, 2.0], ONES).quantile(0),
        "`p` must lie strictly between 0 and 1; got 0",
    ),
    "average case: loss": (
        lambda: pt.spherical_loss(EYE, [1.0, 2.0], ONES).cdf(np.nan),
        "`loss` must be a number; got nan",
    ),
    "average case: outputs": (
        lambda: pt.spherical_loss(EYE, [1.0, 2.0], ONES, independent_outputs=2),
        "`independent_outputs` must be between 1 and 1, the number of outputs; got 2",
    ),
    "average case: method": (
        lambda: pt.scaled_loss(EYE, [1.0, 2.0], ONES, method="cv"),
        "`method` must be 'loo' or 'power'; got 'cv'",
    ),
    "average case: exponent": (
        lambda: pt.scaled_loss(EYE, [1.0, 2.0], ONES, method="power", exponent=5),
        "`exponent` must lie between -1 and 4; got 5",
    ),
    "average case: exponent of loo": (
        lambda: pt.scaled_loss(EYE, [1.0, 2.0], ONES, exponent=1),
        "`exponent` belongs to method='power'",
    ),
    "average case: no new row": (
        lambda: pt.scaled_loss(np.ones((2, 3)), [1.0, 1.0], np.eye(3)),
        "`X` must have a row that is not a combination of the others",
    ),
    "average case: ill conditioned": (
        lambda: pt.scaled_loss([[1.0, 0, 0], [0, 1e-9, 0]], [1.0, 2.0], [[0.0, 0, 1]], method="power", exponent=1.0),
        "`X` is too ill conditioned for a power prior",
    ),
    "average case: ill conditioned together": (
        lambda: pt.scaled_loss([[1.0, 0, 0]], [1.0], [[0.0, 0, 1e-13]], method="power"),
        "the inputs are too ill conditioned for a power prior",
    ),
    "average case: overflow": (
        lambda: pt.spherical_loss(1e-100 * EYE, [1.0, 2.0], 1e100 * ONES),
        "the law of the loss overflows float64",
    ),
    "average case: rows": (lambda: pt.average_ratio(EYE, np.ones((3, 5))), "`X_ood` must have 4 columns like `X`"),
    "early stopping: too large": (
        lambda: _stopped(steps=1, step_size=1.001),
        r"`step_size` must be positive and below 2 / l_max = 1, .*got 1\.001",
    ),
    "early stopping: zero": (lambda: _stopped(steps=1, step_size=0.0), "`step_size` must be positive and below"),
    "early stopping: negative": (
        lambda: _stopped(steps=1, step_size=-1.0),
        "`step_size` must be finite and zero or more; got -1.0",
    ),
    "early stopping: negative steps": (
        lambda: _stopped(steps=[1, -2], step_size=0.1),
        r"`steps` must lie between 0 and 2\^63 - 1; got -2 to 1",
    ),
    "early stopping: half a step": (
        lambda: _stopped(steps=[0.5], step_size=0.1),
        "`steps` must be whole numbers; got an array of float64",
    ),
    "early stopping: no steps": (
        lambda: _stopped(steps=np.zeros(0, dtype=int), step_size=0.1),
        "`steps` must not be empty",
    ),
    "early stopping: labels": (
        lambda: _stopped(steps=1, step_size=0.1, pseudo_labels=np.ones((2, 2))),
        "must have 1 outputs like `Y`; got 2",
    ),
    "certificate: neither": (lambda: _certificate(ridge=1.0), "exactly one of `drift` and `Y_ood` must be given"),
    "certificate: both": (
        lambda: _certificate(ridge=1.0, drift=1.0, Y_ood=HARD),
        "exactly one of `drift` and `Y_ood` must be given",
    ),
    "certificate: ridge": (
        lambda: _certificate(ridge=-1.0, drift=1.0),
        "`ridge` must be finite and zero or more; got -1.0",
    ),
    "certificate: train ridge": (
        lambda: _certificate(ridge=1.0, drift=1.0, train_ridge=-1.0),
        "`train_ridge` must be finite and zero or more",
    ),
    "certificate: soft": (
        lambda: _certificate(ridge=1.0, Y_ood=0.5 * HARD),
        "`Y_ood` must be hard labels, each row one-hot, .*; row 0 is not",
    ),
    "certificate: rows": (
        lambda: _certificate(ridge=1.0, drift=9.0, pseudo_labels=HARD[:2]),
        "`pseudo_labels` must have 3 rows like `X_ood`",
    ),
    "certificate: outputs": (
        lambda: _certificate(ridge=1.0, Y_ood=[1.0, 1.0, -1.0]),
        "`Y_ood` must have 2 outputs like `Y`; got 1",
    ),
    "certificate: signs": (
        lambda: pt.ridge_error_bound(EYE, [1.0, -1.0], np.eye(3, 4), ridge=1.0, Y_ood=[1.0, 0.0, 1.0]),
        "`Y_ood` must be hard labels, each row 1 or -1; row 1 is not",
    ),
    "balance: zero inputs": (
        lambda: pt.balancing_ridge(pt.LinearPair.from_features(np.eye(2), np.zeros((1, 2)))),
        "`X_ood` must not be zero",
    ),
    "equivalents: shape": (lambda: pt.equivalents(D2, np.ones((2, 2, 2)), D2, n=1, m=1), "`A` must be 2-D"),
    "equivalents: ragged": (
        lambda: pt.equivalents(D2, D2, [[1.0], [1.0, 2.0]], n=1, m=1),
        "`B` must be an array of real numbers",
    ),
    "equivalents: square": (
        lambda: pt.equivalents(D2, np.ones((2, 3)), D2, n=1, m=1),
        r"`A` must be square; got shape \(2, 3\)",
    ),
    "equivalents: symmetric": (lambda: pt.equivalents(D2, D2, [[1, 2], [0, 1]], n=1, m=1), "`B` must be symmetric"),
    "equivalents: definite": (
        lambda: pt.equivalents(D2, np.diag([1, -1]), D2, n=1, m=1),
        "`A` must be positive semi-definite.* -1 to 1",
    ),
    "equivalents: negative": (
        lambda: pt.equivalents(D2, [1, -2], D2, n=1, m=1),
        "`A` must be zero or more; the smallest entry is -2",
    ),
    "equivalents: features": (
        lambda: pt.equivalents(D2, D2, [1.0], n=1, m=1),
        "`B` must have 2 features like `A`; got 1",
    ),
    "equivalents: theta": (
        lambda: pt.equivalents([1.0], D2, D2, n=1, m=1),
        r"`theta_star` must have 2 rows like `A`; got shape \(1,\)",
    ),
    "equivalents: n": (lambda: pt.equivalents(D2, D2, D2, n=0, m=1), "`n` must be at least 1; got 0"),
    "equivalents: m": (lambda: pt.equivalents(D2, D2, D2, n=1, m=1.5), "`m` must be a whole number; got 1.5"),
    "equivalents: noise": (
        lambda: pt.equivalents(D2, D2, D2, n=1, m=1, noise=-1),
        "`noise` must be finite and zero or more; got -1",
    ),
    "equivalents: ridge": (
        lambda: pt.equivalents(D2, D2, D2, n=1, m=1, ridge=-1),
        "`ridge` must be finite and zero or more",
    ),
    "equivalents: ridge_ood": (
        lambda: pt.equivalents(D2, D2, D2, n=1, m=1, ridge_ood=np.inf),
        "`ridge_ood` must be finite and zero",
    ),
    "equivalents: n at the rank": (
        lambda: pt.equivalents([1, 1, 1], [1, 2, 0], [1, 1, 1], n=2, m=1, noise=0.1),
        "`n` must not be the rank of `A` where there is noise and no ridge.*got n = 2",
    ),
    "equivalents: overflow": (
        lambda: pt.equivalents([1e100], [1e-150], [1e150], n=1, m=1, ridge=1.0),
        "the loss overflows float64",
    ),
    "equivalents: direction": (
        lambda: pt.sign_equivalents([1.0], D2, D2, n=1, m=1),
        "`direction` must have 2 rows like `A`",
    ),
    "equivalents: unseen": (
        lambda: pt.sign_equivalents([0, 1], [1, 0], D2, n=1, m=1),
        "`direction` must have variance on the training rows; the one that `A` gives it is 0",
    ),
    "equivalents: unseen later": (
        lambda: pt.sign_equivalents([0, 1], D2, [1, 0], n=1, m=1),
        "variance on the target rows",
    ),
    "equivalents: flipped": (
        lambda: pt.sign_equivalents(D2, D2, D2, n=1, m=1, flipped=0.7),
        "`flipped` must lie between 0 and 1/2",
    ),
    "equivalents: outputs": (
        lambda: pt.sign_equivalents(D2, D2, D2, n=1, m=1, outputs="two"),
        "`outputs` must be one of 'sign', 'one-hot'; got 'two'",
    ),
    "equivalents: toy outputs": (
        lambda: pt.toy_asymptotics(1.0, d1=9, d2=1, n=2, m=1, outputs="softmax"),
        "`outputs` must be one of",
    ),
}


def test_the_shared_dimension_of_the_proposition_has_no_default():
    with pytest.raises(TypeError, match="'k'"):
        pt.proposition_bound(X, Y, X_OOD)


def test_an_input_error_is_one_class_for_the_whole_project():
    import projnorm
    from projnorm.core import errors

    assert pt.InputError is errors.InputError is projnorm.InputError
    assert issubclass(pt.InfeasibleRatioError, pt.InputError)


@pytest.mark.parametrize("case", CASES)
def test_wrong_input_is_named_in_one_line(case):
    call, message = CASES[case]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
