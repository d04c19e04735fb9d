"""Designs are what they say they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm.core.records import RunContext
from projnorm_theory import check_assumptions, principal_angles, spectrum
from projnorm_theory.bounds import holds
from simulations import (
    CounterexampleConfig,
    SpectraConfig,
    TailAngleConfig,
    counterexample,
    draw_truth,
    flat_tail_design,
    run_counterexample,
    run_spectra_example,
    run_tail_angle,
    spectral_design,
)
from tests.strategies import generators
from tests.theory import definitions

SPECTRUM, SPECTRUM_OOD = np.array([9.0, 7.0, 2.0, 1.0, 0.1]), np.array([8.0, 6.0, 3.0, 0.5])


@given(generators, st.floats(0.1, math.pi / 2), st.floats(0.0, 0.5), st.floats(1.0, 3.0))
def test_the_dials_set_what_they_name(rng, angle, tilt, rho):
    design = spectral_design(
        rng,
        train_singular_values=SPECTRUM,
        ood_singular_values=SPECTRUM_OOD,
        dim=12,
        k=2,
        n_outputs=2,
        tail_angle=angle,
        span_tilt=tilt,
        rho=rho,
    )
    np.testing.assert_allclose(np.sqrt(spectrum(design.X).eigenvalues), SPECTRUM, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(spectrum(design.X_ood).eigenvalues), SPECTRUM_OOD, rtol=1e-9)
    np.testing.assert_allclose(principal_angles(design.X, design.X_ood, 2), tilt, atol=1e-9)
    report = check_assumptions(design.X, design.Y, design.X_ood, design.Y_ood, k=2)
    assert report.leak == pytest.approx(abs(math.cos(angle)), abs=1e-9)
    assert report.norms.rho == pytest.approx(rho, rel=1e-8)


@given(generators, st.floats(1.0, 4.0))
def test_a_drawn_truth_keeps_the_training_labels_and_the_ratio(rng, rho):
    X, X_ood = rng.standard_normal((5, 14)), rng.standard_normal((4, 14))
    theta = X.T @ rng.standard_normal((5, 2))
    truth = draw_truth(rng, X, theta, X_ood, rho=rho)
    np.testing.assert_allclose(X @ truth, X @ theta, atol=1e-9 * np.abs(X @ theta).max())
    assert definitions.rho(X, X_ood, truth) == pytest.approx(rho, rel=1e-8)


def test_the_counterexample_sweep_measures_its_closed_forms(tmp_path):
    arrays = run_counterexample(CounterexampleConfig(angles=9), RunContext(tmp_path)).arrays
    phi = arrays["phi"]
    np.testing.assert_allclose(arrays["tan_root"], np.tan(phi / 2) ** 2, rtol=1e-9)
    np.testing.assert_allclose(arrays["cot_root"], 1 / np.tan(phi / 2) ** 2, rtol=1e-9)
    np.testing.assert_allclose(arrays["paper"], 1.0)
    roots = np.sort(np.column_stack([arrays["tan_root"], arrays["cot_root"]]), axis=1)
    np.testing.assert_allclose(arrays["sharp"], roots, rtol=1e-9)


def test_the_tail_angle_sweep_breaks_the_paper_bound_and_no_other(tmp_path):
    arrays = run_tail_angle(TailAngleConfig(angles=5, truths=20), RunContext(tmp_path)).arrays
    assert arrays["ratio"].shape == (5, 20)
    inside = {name: holds(arrays["ratio"], arrays[name][:, None, :]) for name in ("paper", "generalised", "sharp")}
    assert inside["generalised"].all()
    assert inside["sharp"].all()
    np.testing.assert_allclose(arrays["extreme"], arrays["sharp"], rtol=1e-6)
    assert inside["paper"][0].all()
    assert not inside["paper"][-1].all()


def test_the_spectra_example_shows_its_own_structure(tmp_path):
    config = SpectraConfig(n=60, dim=120, k=15, top=30)
    arrays = run_spectra_example(config, RunContext(tmp_path)).arrays
    assert arrays["overlap"][14] == pytest.approx(1.0, abs=1e-9)
    assert arrays["span_gap"][14] < 1e-8
    assert arrays["span_gap"][13] > 1e-3
    assert np.abs(arrays["alignment"][:15, 15:]).max() < 1e-8
    np.testing.assert_allclose(np.diag(arrays["alignment"])[15:], np.cos(np.radians(75)), atol=1e-8)
    assert arrays["train_fit"][0] == pytest.approx(1.2, abs=0.15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: counterexample(0.0, root="tan"), "`phi` must lie strictly between 0 and pi"),
        (lambda: counterexample(1.0, root="tan", scale=1.0), "`scale` must exceed 1"),
        (lambda: TailAngleConfig(k=20), "`k` must be between 1 and 19; got 20"),
        (lambda: TailAngleConfig(dim=5), "`dim` must be at least n \\+ m - k = 46; got 5"),
        (lambda: SpectraConfig(k=80), "must satisfy k < top <= n; got 80, 80, 200"),
        (lambda: SpectraConfig(dim=100), "`dim` must be at least 2 n - k = 360; got 100"),
        (
            lambda: flat_tail_design(np.random.default_rng(0), tail=3, k=1, phi=1.0, root="tan", dim=6),
            "`dim` must be at least 7 for these sizes; got 6",
        ),
    ],
)
def test_wrong_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 5}, "`k` must be between 0 and 4; got 5"),
        ({"dim": 6}, "`dim` must be at least 7"),
        ({"train_singular_values": [1.0, 2.0]}, "`train_singular_values` must be positive and descending"),
        ({"ood_singular_values": []}, "`ood_singular_values` must be positive and descending"),
        ({"rho": 0.0}, "`rho` = 0 cannot be reached"),
    ],
)
def test_designs_that_cannot_be_are_refused(change, message):
    settings = {"train_singular_values": SPECTRUM, "ood_singular_values": SPECTRUM_OOD, "dim": 12, "k": 2, **change}
    with pytest.raises(ValueError, match=message):
        spectral_design(np.random.default_rng(0), **settings)
