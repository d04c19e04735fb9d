"""Deterministic equivalents: against their definition, against simulation, and at their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm_theory import deterministic_projnorm, equivalents, sign_equivalents, toy_asymptotics
from projnorm_theory.implicit_ridge import ImplicitRidge
from simulations.designs import haar
from tests.strategies import generators

NUMBERS = ("loss", "projnorm_linear", "theta_norm", "error", "output_scale", "kappa", "kappa_ood", "effective")
TWO_OVER_PI = 2 / math.pi


@st.composite
def problems(draw, *, outputs=st.just(1), ridges=st.sampled_from([0.0, 0.3, 5.0])):
    """Arguments of `equivalents`: rotated power laws, zero eigenvalues, few rows and many, noise and ridges or none."""
    d, rng = draw(st.integers(3, 12)), draw(generators)
    covariances = []
    for _ in "AB":
        s = np.arange(1, d + 1) ** -draw(st.floats(0.0, 2.0))
        s[d - draw(st.integers(0, d - 2)) :] = 0.0
        Q = haar(rng, d, d)
        covariances.append((Q * s) @ Q.T)
    sizes = {"n": draw(st.integers(1, 20)), "m": draw(st.integers(1, 20))}
    options = {"noise": draw(st.sampled_from([0.0, 0.7])), "ridge": draw(ridges), "ridge_ood": draw(ridges)}
    if sizes["n"] == np.linalg.matrix_rank(covariances[0]) and options["ridge"] == 0.0:
        options["noise"] = 0.0
    return rng.standard_normal((d, draw(outputs))), *covariances, sizes | options


def _definition(theta, A, B, *, n, m, noise, ridge, ridge_ood, kappa, kappa_ood):
    """The formulas of docs/theory.md as they stand, with dense matrices; neither kappa may be 0."""
    eye = np.eye(len(A))
    R, R_ood = np.linalg.inv(A + kappa * eye), np.linalg.inv(B + kappa_ood * eye)
    assert np.trace(A @ R) == pytest.approx(n - ridge / kappa)
    assert np.trace(B @ R_ood) == pytest.approx(m - ridge_ood / kappa_ood)
    M = kappa * R
    slope = 1 / (m - np.trace(B @ R_ood @ B @ R_ood))
    D = (kappa_ood - ridge_ood * slope) * R_ood + ridge_ood * kappa_ood * slope * R_ood @ R_ood
    excess = kappa**2 * theta @ R @ A @ R @ theta + noise**2

    def variance(D):
        return np.trace(A @ R @ D @ R) / (n - np.trace(A @ R @ A @ R)) * excess

    mean = theta - M @ theta
    outputs = mean @ B @ mean + variance(B)
    return {
        "loss": theta @ M @ B @ M @ theta + variance(B),
        "projnorm_linear": math.sqrt(mean @ D @ mean + variance(D)),
        "theta_norm": math.sqrt(mean @ mean + variance(eye)),
        "error": math.acos(mean @ B @ theta / math.sqrt(outputs * (theta @ B @ theta))) / math.pi,
        "output_scale": math.sqrt(outputs),
        "effective_train": n - np.trace(A @ R @ A @ R),
        "effective_ood": m - np.trace(B @ R_ood @ B @ R_ood),
    }


@given(problems(ridges=st.sampled_from([0.3, 5.0])))
def test_the_values_are_those_of_the_formulas(problem):
    theta, A, B, options = problem
    result = equivalents(theta[:, 0], A, B, **options)
    expected = _definition(theta[:, 0], A, B, **options, kappa=result.kappa, kappa_ood=result.kappa_ood)
    for name, value in expected.items():
        assert getattr(result, name) == pytest.approx(value, rel=1e-8), name


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30),
    st.integers(1, 40),
    st.one_of(st.just(0.0), st.floats(1e-9, 1e9)),
)
def test_the_implicit_ridge_solves_its_equation(s, rows, ridge):
    s = np.array(s)
    kappa = ImplicitRidge.from_eigenvalues(s, rows, ridge).kappa
    if ridge == 0.0 and s.size <= rows:
        assert kappa == 0.0
    else:
        assert np.sum(s / (s + kappa)) + ridge / kappa == pytest.approx(rows, rel=1e-10)


@given(st.lists(st.floats(1e-2, 1e2), min_size=1, max_size=20), st.integers(1, 25), st.floats(1e-2, 1e2))
def test_the_effective_number_is_the_inverse_slope_of_kappa(s, rows, ridge):
    s, step = np.array(s), 1e-4 * ridge
    low, high = (ImplicitRidge.from_eigenvalues(s, rows, ridge + sign * step).kappa for sign in (-1, 1))
    here = ImplicitRidge.from_eigenvalues(s, rows, ridge)
    assert 1 / here.effective == pytest.approx((high - low) / (2 * step), rel=1e-5)
    assert here.effective == pytest.approx(rows - np.sum((s / (s + here.kappa)) ** 2), rel=1e-9)


@given(problems(), generators)
def test_a_rotation_of_everything_changes_nothing(problem, rng):
    theta, A, B, options = problem
    Q = haar(rng, len(A), len(A))
    plain, turned = equivalents(theta, A, B, **options), equivalents(Q @ theta, Q @ A @ Q.T, Q @ B @ Q.T, **options)
    for name in NUMBERS:
        assert getattr(turned, name) == pytest.approx(getattr(plain, name), rel=1e-6, abs=1e-7, nan_ok=True), name
    np.testing.assert_allclose(turned.mean_theta, Q @ plain.mean_theta, atol=1e-7)


@given(problems(), st.sampled_from(["both", "A", "B"]))
def test_a_diagonal_stands_for_its_matrix(problem, which):
    theta, A, B, options = problem
    A, B = np.linalg.eigvalsh(A).clip(1e-3), np.linalg.eigvalsh(B).clip(1e-3)
    options |= {"ridge": options["ridge"] + 0.1}
    dense = equivalents(theta, np.diag(A), np.diag(B), **options)
    given_so = equivalents(theta, A if which != "B" else np.diag(A), B if which != "A" else np.diag(B), **options)
    for name in NUMBERS:
        assert getattr(given_so, name) == pytest.approx(getattr(dense, name), rel=1e-9), name


@given(problems(outputs=st.integers(2, 4)))
def test_outputs_add_up(problem):
    theta, A, B, options = problem
    together = equivalents(theta, A, B, **options)
    columns = [equivalents(column, A, B, **options) for column in theta.T]
    assert together.loss == pytest.approx(sum(one.loss for one in columns), abs=1e-12)
    for name in ("projnorm_linear", "theta_norm", "output_scale"):
        squares = sum(getattr(one, name) ** 2 for one in columns)
        assert getattr(together, name) ** 2 == pytest.approx(squares, abs=1e-12), name
    assert together.error == pytest.approx(np.mean([one.error for one in columns]), abs=1e-6, nan_ok=True)
    assert together.mean_theta.shape == theta.shape
    assert columns[0].mean_theta.shape == (len(A),)


@given(problems(), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_units_of_inputs_and_labels_scale_the_answer(problem, unit, label):
    """Inputs in other units with weights in their inverse, and labels in others still."""
    theta, A, B, options = problem
    plain = equivalents(theta, A, B, **options)
    scaled = {"noise": label * options["noise"], **{k: unit**2 * options[k] for k in ("ridge", "ridge_ood")}}
    changed = equivalents(label / unit * theta, unit**2 * A, unit**2 * B, **(options | scaled))
    assert changed.loss == pytest.approx(label**2 * plain.loss, rel=1e-6, abs=1e-9 * label**2)
    assert changed.theta_norm == pytest.approx(label / unit * plain.theta_norm, rel=1e-6)
    assert changed.projnorm_linear == pytest.approx(
        label / unit * plain.projnorm_linear, rel=1e-5, abs=1e-6 * label / unit
    )
    assert changed.error == pytest.approx(plain.error, abs=1e-6, nan_ok=True)
    assert changed.effective == pytest.approx(plain.effective, rel=1e-6)


@given(problems(ridges=st.just(0.0)))
def test_a_vanishing_ridge_is_none(problem):
    theta, A, B, options = problem
    if options["n"] == np.linalg.matrix_rank(A) or options["m"] == np.linalg.matrix_rank(B):
        return  # there kappa falls like the root of the ridge
    none = equivalents(theta, A, B, **options)
    little = equivalents(theta, A, B, **(options | {"ridge": 1e-10, "ridge_ood": 1e-10}))
    for name in ("loss", "projnorm_linear", "theta_norm"):
        assert getattr(little, name) == pytest.approx(getattr(none, name), rel=1e-5, abs=1e-4), name


@given(problems())
def test_an_endless_ridge_learns_nothing(problem):
    theta, A, B, options = problem
    nothing = equivalents(theta, A, B, **(options | {"ridge": 1e12}))
    assert nothing.loss == pytest.approx(np.trace(theta.T @ B @ theta), rel=1e-6)
    assert nothing.theta_norm == pytest.approx(0.0, abs=1e-4)
    everything_missed = equivalents(theta, A, B, **(options | {"ridge_ood": 1e12}))
    assert everything_missed.projnorm_linear == pytest.approx(everything_missed.theta_norm, rel=1e-6)


@given(problems())
def test_more_rows_of_the_target_never_raise_projnorm(problem):
    theta, A, B, options = problem
    few, more = (equivalents(theta, A, B, **(options | {"m": options["m"] + k})) for k in (0, 1))
    assert more.projnorm_linear <= few.projnorm_linear * (1 + 1e-9) + 1e-9
    assert more.loss == few.loss


@given(st.integers(2, 12), st.integers(1, 15), generators)
def test_fixed_weights_are_a_fit_with_nothing_left_to_learn(d, m, rng):
    theta, s = rng.standard_normal(d), rng.random(d)
    fixed, fitted = deterministic_projnorm(theta, s, m), equivalents(theta, np.ones(d), s, n=d, m=m)
    assert fitted.projnorm_linear == pytest.approx(fixed.value, rel=1e-12)
    assert (fitted.kappa_ood, fitted.effective) == (fixed.kappa, fixed.effective)
    assert (fitted.loss, fitted.effective_train) == (0.0, math.inf)


@given(st.integers(4, 60), st.integers(2, 120))
def test_the_mean_of_an_inverse_wishart_matrix_is_within_one_over_n(d, n):
    """Isotropic rows and labels of noise alone: the mean square of the weights is known exactly."""
    if abs(n - d) < 4:
        return
    result = equivalents(np.zeros(d), np.ones(d), np.ones(d), n=n, m=1, noise=1.0)
    exact = n / (d - n - 1) if n < d else d / (n - d - 1)
    assert abs(exact / result.theta_norm**2 - 1) <= (1 + 1e-9) / (result.effective_train - 1)
    assert result.loss == pytest.approx(result.theta_norm**2)


def test_directions_that_training_never_shows_stay_unlearnt():
    theta, A, B = [3.0, 4.0], [1.0, 0.0], [1.0, 2.0]
    exact = equivalents(theta, A, B, n=1, m=5)
    assert (exact.kappa, exact.kappa_ood, exact.effective) == (0.0, 0.0, math.inf)
    assert exact.mean_theta.tolist() == [3.0, 0.0]
    assert (exact.loss, exact.theta_norm, exact.projnorm_linear) == (32.0, 3.0, 0.0)
    assert exact.error == pytest.approx(math.acos(9 / (3 * math.sqrt(41))) / math.pi)
    noisy = equivalents(theta, A, B, n=5, m=5, noise=2.0)
    assert noisy.loss == pytest.approx(32 + 4 / 4), (
        "the variance of one coefficient from five rows, of order 1 / (n - 1)"
    )
    assert noisy.effective_train == 4.0


def test_the_headline_has_the_answer_and_its_effective_rows():
    text = str(equivalents(np.ones(4), np.ones(4), np.ones(4), n=2, m=1))
    assert text.startswith("Expected loss 2, ProjNormLinear 1.22474, error of the sign 0.25 (0.75 effective rows)")


def test_a_model_without_an_output_has_no_sign():
    assert math.isnan(equivalents([1.0, 1.0], [0.0, 0.0], [1.0, 1.0], n=3, m=1).error)
    assert math.isnan(equivalents([0.0, 0.0], [1.0, 1.0], [1.0, 1.0], n=1, m=1, noise=1.0).error)
    assert equivalents([1.0, 1.0], [0.0, 0.0], [1.0, 1.0], n=3, m=1, ridge=2.0).loss == pytest.approx(2.0)


def test_diagonal_covariances_of_a_hundred_thousand_features_are_served():
    d = 100_000
    s = np.arange(1, d + 1) ** -0.5
    result = equivalents(np.eye(1, d)[0], s, s[::-1], n=1000, m=2000, noise=0.1, ridge=1.0)
    assert np.sum(s / (s + result.kappa)) + 1.0 / result.kappa == pytest.approx(1000, rel=1e-10)
    assert 0.0 < result.projnorm_linear < result.theta_norm < 1.0


def test_spectra_over_hundreds_of_decades_are_served():
    ridge = ImplicitRidge.from_eigenvalues(np.array([1e150, 1e-200, 1e-200]), 1)
    np.testing.assert_allclose(ridge.missed, [0.0, 1.0, 1.0], atol=1e-9)
    assert ImplicitRidge.from_eigenvalues(np.ones(5), 5, 1e-30).kappa == pytest.approx(math.sqrt(1e-30 / 5), rel=1e-9)


# Simulation.

SPECTRA = {"flat": (0.0, 0.0), "falling": (0.5, 1.0), "crossing": (1.0, 0.5), "steep": (1.5, 1.0)}
OPTIONS = {
    "plain": {},
    "noise": {"noise": 0.5},
    "ridges": {"ridge": 0.5, "ridge_ood": 0.7},
    "noise and ridges": {"noise": 0.5, "ridge": 2.0, "ridge_ood": 0.1},
}


def _simulate(theta, A, B, rng, trials, *, n, m, noise=0.0, ridge=0.0, ridge_ood=0.0):
    """Loss, square of ProjNormLinear, square of the norm and error of `trials` draws, from their definitions."""
    X = rng.standard_normal((trials, n, len(A))) @ np.linalg.cholesky(A).T
    X_ood = rng.standard_normal((trials, m, len(A))) @ np.linalg.cholesky(B).T
    Y = X @ theta + noise * rng.standard_normal((trials, n))
    fitted = _fit(X, Y, ridge)
    left = fitted - _fit(X_ood, np.einsum("tmd,td->tm", X_ood, fitted), ridge_ood)
    form = lambda u, v: np.einsum("td,de,te->t", u, B, v)  # noqa: E731
    truth = np.broadcast_to(theta, fitted.shape)
    cosine = form(fitted, truth) / np.sqrt(form(fitted, fitted) * form(truth, truth))
    return {
        "loss": form(fitted - theta, fitted - theta),
        "projnorm_linear": np.sum(left**2, axis=1),
        "theta_norm": np.sum(fitted**2, axis=1),
        "error": np.arccos(np.clip(cosine, -1.0, 1.0)) / math.pi,
    }


def _fit(X, Y, ridge):
    """Minimum-norm or ridge weights of a stack of samples, through the smaller of the two Gram matrices."""
    transposed = X.transpose(0, 2, 1)
    if X.shape[1] <= X.shape[2]:
        gram = X @ transposed + ridge * np.eye(X.shape[1])
        return (transposed @ np.linalg.solve(gram, Y[..., None]))[..., 0]
    return np.linalg.solve(transposed @ X + ridge * np.eye(X.shape[2]), transposed @ Y[..., None])[..., 0]


def _assert_agree(samples, result, factor, *, names=("loss", "projnorm_linear", "theta_norm")):
    """Means within four standard errors and `factor` / N of the equivalents."""
    for name in names:
        value = getattr(result, name)
        expected = value**2 if name in ("projnorm_linear", "theta_norm") else value
        effective = result.effective if name == "projnorm_linear" else result.effective_train
        mean, error = samples[name].mean(), samples[name].std(ddof=1) / math.sqrt(len(samples[name]))
        assert abs(mean - expected) <= 4 * error + (factor / effective + 1e-9) * expected, (name, mean, expected, error)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("commuting", [True, False], ids=["commuting", "turned"])
@pytest.mark.parametrize("spectra", SPECTRA)
def test_simulated_means_are_within_noise_and_one_over_n(spectra, commuting, options):
    rng, d = np.random.default_rng(0), 60
    s, t = (np.arange(1, d + 1) ** -decay for decay in SPECTRA[spectra])
    Q = np.eye(d) if commuting else haar(rng, d, d)
    A, B, theta = np.diag(s), (Q * t) @ Q.T, rng.standard_normal(d) * np.arange(1, d + 1) ** -0.3
    for n, m in ((12, 30), (40, 15)):
        sizes = {"n": n, "m": m, **OPTIONS[options]}
        samples = _simulate(theta, A, B, rng, 300, **sizes)
        result = equivalents(theta, A, B, **sizes)
        assert result.effective > 5
        _assert_agree(samples, result, factor=1.0)
        # The sign's error is a mean of angles, so that the spread of the outputs' scale over draws enters too.
        assert samples["error"].mean() == pytest.approx(result.error, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("sizes", [(20, 24), (50, 20), (80, 30), (80, 75)], ids=str)
@pytest.mark.parametrize("spectra", SPECTRA)
def test_the_error_of_every_mean_is_at_most_five_over_n(spectra, sizes, options):
    """Up to four where the rows outnumber the features and a small ridge is all that is left to see; else about one."""
    rng, d = np.random.default_rng(1), 60
    s, t = (np.arange(1, d + 1) ** -decay for decay in SPECTRA[spectra])
    Q = haar(rng, d, d)
    A, B, theta = np.diag(s), (Q * t) @ Q.T, rng.standard_normal(d)
    arguments = {"n": sizes[0], "m": sizes[1], **OPTIONS[options]}
    result = equivalents(theta, A, B, **arguments)
    samples = _simulate(theta, A, B, rng, 2000, **arguments)
    names = ["theta_norm"] + ["loss"] * (result.loss > 0) + ["projnorm_linear"] * (result.projnorm_linear > 0)
    _assert_agree(samples, result, factor=1.2 if sizes[0] < d and sizes[1] < d else 5.0, names=names)


# The toy experiment.


def _toy(sigma, d1, d2):
    """Direction of the labels and the two covariances."""
    w = np.zeros(d1 + d2)
    w[[0, -1]] = 1.0
    return w, np.repeat([1.0, 0.0], [d1, d2]), np.repeat([1.0, sigma**2], [d1, d2])


@pytest.mark.parametrize("outputs", ["sign", "one-hot"])
@pytest.mark.parametrize(("n", "m"), [(50_000, 50_000), (50_000, 120_000), (160_000, 30_000)])
def test_the_toy_is_the_equivalent_of_a_first_weight_and_noise(n, m, outputs):
    d1, d2 = 100_000, 50_000
    for sigma in (0.0, 1.0, 3.0):
        w, A, B = _toy(sigma, d1, d2)
        toy = toy_asymptotics(sigma, d1=d1, d2=d2, n=n, m=m, outputs=outputs)
        general = sign_equivalents(w, A, B, n=n, m=m, outputs=outputs)
        for name in ("test_error", "projnorm_linear", "confidence", "squared_loss", "theta_norm", "kappa"):
            assert getattr(general, name) == pytest.approx(float(getattr(toy, name)), rel=1e-4, abs=1e-7), name


def test_the_toys_linear_part_and_noise_give_its_weights():
    d1, d2, n, m, sigma = 1000, 500, 400, 500, 2.0
    w, A, B = _toy(sigma, d1, d2)
    first = np.eye(1, d1 + d2)[0]
    general = equivalents(math.sqrt(TWO_OVER_PI) * first, A, B, n=n, m=m, noise=math.sqrt(1 - TWO_OVER_PI))
    assert general.mean_theta[0] == pytest.approx(math.sqrt(TWO_OVER_PI) * n / d1)
    assert general.theta_norm**2 == pytest.approx(TWO_OVER_PI * n / d1 + (1 - TWO_OVER_PI) * n / (d1 - n))
    toy = toy_asymptotics(sigma, d1=d1, d2=d2, n=n, m=m)
    assert general.kappa_ood == pytest.approx(float(toy.kappa), rel=1e-9)
    share = float(toy.kappa / (1 + toy.kappa))
    assert general.projnorm_linear == pytest.approx(general.theta_norm * math.sqrt(share), rel=1e-9)
    assert general.output_scale == pytest.approx(general.theta_norm)
    cosine = general.mean_theta @ (B * w) / (general.output_scale * math.sqrt(1 + sigma**2))
    assert math.acos(cosine) / math.pi == pytest.approx(float(toy.test_error), rel=1e-3)
    with_noise_of_the_target = (
        general.output_scale**2
        + 1
        - 2 * math.sqrt(TWO_OVER_PI / (1 + sigma**2)) * cosine * (general.output_scale * math.sqrt(1 + sigma**2))
    )
    assert with_noise_of_the_target == pytest.approx(float(toy.squared_loss), rel=1e-3)


@pytest.mark.parametrize("outputs", ["sign", "one-hot"])
@pytest.mark.parametrize("flipped", [0.0, 0.2])
def test_signs_under_turned_covariances_agree_with_simulation(flipped, outputs):
    rng, d, n, m, trials = np.random.default_rng(0), 80, 40, 30, 400
    A, B = ((Q * np.arange(1, d + 1) ** -0.4) @ Q.T for Q in (haar(rng, d, d), haar(rng, d, d)))
    w = rng.standard_normal(d)
    result = sign_equivalents(w, A, B, n=n, m=m, flipped=flipped, outputs=outputs)
    X = rng.standard_normal((trials, n, d)) @ np.linalg.cholesky(A).T
    X_ood = rng.standard_normal((trials, m, d)) @ np.linalg.cholesky(B).T
    Y, Y_ood = (
        np.sign(rows @ w) * rng.choice([1, -1], rows.shape[:2], p=[1 - flipped, flipped]) for rows in (X, X_ood)
    )
    parts = [_fit(X, Y, 0.0)] if outputs == "sign" else [_fit(X, (1 + y) / 2, 0.0) for y in (Y, -Y)]
    predicted = [np.einsum("tmd,td->tm", X_ood, part) for part in parts]
    wanted = [Y_ood] if outputs == "sign" else [(1 + Y_ood) / 2, (1 - Y_ood) / 2]
    margin = 2 * predicted[0] if outputs == "sign" else predicted[0] - predicted[1]
    samples = {
        "test_error": np.mean(np.sign(margin) != Y_ood, axis=1),
        "confidence": np.mean(1 / (1 + np.exp(-np.abs(margin))), axis=1),
        "squared_loss": sum(np.mean((p - y) ** 2, axis=1) for p, y in zip(predicted, wanted, strict=True)),
        "projnorm_linear": sum(
            np.sum((a - _fit(X_ood, p, 0.0)) ** 2, axis=1) for a, p in zip(parts, predicted, strict=True)
        ),
        "theta_norm": sum(np.sum(part**2, axis=1) for part in parts),
    }
    for name, sample in samples.items():
        expected = getattr(result, name) ** (2 if name in ("projnorm_linear", "theta_norm") else 1)
        error = sample.std(ddof=1) / math.sqrt(trials)
        assert abs(sample.mean() - expected) <= 4 * error + expected / result.effective, name


@given(st.floats(0.0, 0.5), st.floats(0.2, 5.0))
def test_with_endless_rows_only_the_flipped_labels_are_wrong(flipped, scale):
    result = sign_equivalents([3.0, 4.0], [1.0, 2.0], [scale, 2.0 * scale], n=10**12, m=1, flipped=flipped)
    if flipped < 0.49:  # at one half nothing can be learnt
        assert result.test_error == pytest.approx(flipped, abs=1e-3)
    kept = (1 - 2 * flipped) ** 2 * TWO_OVER_PI
    # Trained on variance 1, the output on variance `scale` is the root of that too large.
    assert result.squared_loss == pytest.approx(1 + kept * (scale - 2 * math.sqrt(scale)), abs=1e-6)
