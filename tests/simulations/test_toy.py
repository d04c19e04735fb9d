"""The toy experiment: its sweep, its closed forms, its blindness, its independence of workers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from projnorm.core.backends import Backend
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm_theory import min_norm_solution, projnorm_linear, toy_asymptotics
from projnorm_theory.sign_labels import OUTPUTS
from simulations import ToyConfig, run_toy
from simulations.toy import ToyDraw, projnorm_sweep, toy_trial
from simulations.toy_designs import DESIGNS
from simulations.toy_summaries import TOY_QUANTITIES, closed_forms, interval_tracking, score_tracking

SMALL = {"d1": 40, "d2": 20, "n": 20, "m": 20}


@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 12),
    st.integers(1, 12),
    st.integers(1, 12),
    st.lists(st.floats(0.0, 5.0), min_size=1, max_size=4),
)
def test_the_sweep_agrees_with_forming_every_sigma(seed, d1, d2, m, sigmas):
    rng = np.random.default_rng(seed)
    theta, seen, hidden = rng.standard_normal(d1), rng.standard_normal((m, d1)), rng.standard_normal((m, d2))
    b = np.array([sigma if sigma > 1e-3 else 0.0 for sigma in sigmas])
    swept = projnorm_sweep(theta, seen, hidden, np.ones_like(b), b)
    for value, sigma in zip(swept, b, strict=True):
        direct = projnorm_linear(np.concatenate([theta, np.zeros(d2)]), np.hstack([seen, sigma * hidden])).value
        # The square is a difference, so what is close to zero is known to the root of rounding only.
        assert value**2 == pytest.approx(direct**2, abs=1e-7 * (theta @ theta))


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("design", DESIGNS)
def test_a_trial_agrees_with_its_definition(design, outputs):
    config = ToyConfig(design, **SMALL, outputs=outputs, sigmas=(0.0, 0.7, 3.0), trials=1, interval_trials=0, seed=5)
    arrays = toy_trial(config, 0)
    rng = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(0,)))
    draw = ToyDraw.from_design(DESIGNS[design], config, rng)
    theta = np.concatenate([draw.theta.reshape(40, -1), np.zeros((20, draw.theta.size // 40))])
    truth = np.concatenate([draw.truth, np.zeros(19), [draw.hidden_truth]])
    np.testing.assert_allclose(draw.X @ draw.theta, draw.Y, atol=1e-9)
    a, b = DESIGNS[design].weights(np.array(config.sigmas))
    for i in range(3):
        X_ood = np.hstack([a[i] * draw.seen, b[i] * draw.hidden])
        predicted, labels = X_ood @ theta, np.sign(X_ood @ truth) * draw.flips
        if outputs == "sign":
            logits, responses = np.hstack([predicted, -predicted]), labels[:, None]
        else:
            logits, responses = predicted, np.stack([(1 + labels) / 2, (1 - labels) / 2], axis=1)
        softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        p = softmax.max(axis=1)
        assert arrays["test_error"][i] == pytest.approx(np.mean(np.argmax(logits, axis=1) != (labels < 0)))
        assert arrays["squared_loss"][i] == pytest.approx(np.mean(np.sum((predicted - responses) ** 2, axis=1)))
        assert arrays["confidence"][i] == pytest.approx(np.mean(p))
        assert arrays["entropy"][i] == pytest.approx(np.mean(-np.sum(softmax * np.log(softmax), axis=1)))
        margin = np.abs(predicted[:, 0]) if outputs == "sign" else np.abs(predicted[:, 0] - predicted[:, 1])
        assert arrays["mean_margin"][i] == pytest.approx(np.mean(margin))
        assert arrays["confident_share"][i] == pytest.approx(np.mean(p > 0.9))
        assert arrays["projnorm_linear"][i] == pytest.approx(projnorm_linear(theta, X_ood).value, rel=1e-8)
    assert arrays["theta_norm"] == pytest.approx(np.linalg.norm(theta))


def test_one_hot_weights_are_halves_of_the_sum_and_difference_of_two_fits():
    """So the error is that of one output, and the square of ProjNormLinear the mean of those of y and of 1."""
    options = {**SMALL, "sigmas": (0.0, 2.0), "trials": 1, "interval_trials": 0}
    sign, one_hot = (ToyConfig(**options, outputs=outputs) for outputs in OUTPUTS)
    draws = [ToyDraw.from_design(DESIGNS["gaussian"], config, np.random.default_rng(3)) for config in (sign, one_hot)]
    ones = min_norm_solution(draws[0].X, np.ones(20)).theta
    both = np.stack([ones + draws[0].theta, ones - draws[0].theta], axis=1) / 2
    np.testing.assert_allclose(draws[1].theta, both, atol=1e-10)
    weights = DESIGNS["gaussian"].weights(np.array(options["sigmas"]))
    of_ones, of_signs, of_both = (
        projnorm_sweep(theta, draws[0].seen, draws[0].hidden, *weights) for theta in (ones, draws[0].theta, both)
    )
    np.testing.assert_allclose(of_both**2, (of_ones**2 + of_signs**2) / 2)
    assert np.array_equal(toy_trial(sign, 0)["test_error"], toy_trial(one_hot, 0)["test_error"])


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_rho_is_measured_on_the_responses_that_are_fitted(outputs):
    config = ToyConfig(**SMALL, outputs=outputs, sigmas=(0.5, 2.0), trials=1, interval_trials=1, seed=5)
    draw = ToyDraw.from_design(
        DESIGNS["gaussian"], config, np.random.default_rng(np.random.SeedSequence(5, spawn_key=(0,)))
    )
    labels = draw.labels(np.ones(2), np.array(config.sigmas))
    for rho, sigma, y in zip(toy_trial(config, 0)["rho"], config.sigmas, labels, strict=True):
        responses = y if outputs == "sign" else np.stack([y > 0, y < 0], axis=1).astype(float)
        shifted = min_norm_solution(np.hstack([draw.seen, sigma * draw.hidden]), responses).theta
        assert rho == pytest.approx(np.linalg.norm(shifted) / np.linalg.norm(draw.theta))


def test_closed_forms_of_other_designs_follow_from_those_of_the_paper():
    sigmas, sizes = np.array([0.0, 1.0, 4.0]), {"d1": 100, "d2": 50, "n": 50, "m": 60}
    gaussian, overlap = (DESIGNS[name].asymptotics(sigmas, **sizes) for name in ("gaussian", "overlap"))
    for name in ("test_error", "projnorm_linear", "theta_norm"):
        np.testing.assert_allclose(getattr(overlap, name), getattr(gaussian, name), err_msg="units do not enter")
    assert np.all(np.diff(overlap.confidence) < 0), "as the outputs shrink"
    assert np.ptp(gaussian.confidence) == 0.0
    certain = DESIGNS["label-noise"].asymptotics(np.array([0.0]), d1=5, d2=1, n=10**9, m=5)
    assert certain.test_error[0] == pytest.approx(0.1, abs=1e-4), "the share of flipped labels"


@pytest.mark.slow
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("design", DESIGNS)
def test_every_design_agrees_with_its_closed_forms(design, outputs, tmp_path):
    sizes = {"d1": 400, "d2": 200, "n": 200, "m": 200}
    config = ToyConfig(design, **sizes, outputs=outputs, sigmas=(0.0, 1.0, 4.0), trials=40, interval_trials=0, seed=1)
    record = run_toy(config, RunContext(tmp_path))
    theory = closed_forms(record)
    assert np.all(theory.effective > 50)
    for name in (*TOY_QUANTITIES, "theta_norm"):
        sample, expected = record.arrays[name], getattr(theory, name)
        if name == "theta_norm":
            sample = np.repeat(sample[:, None], 3, axis=1)
        error = sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
        assert np.all(np.abs(sample.mean(axis=0) - expected) <= 4 * error + expected / theory.effective), name


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_the_papers_design_has_the_same_closed_forms_either_way(outputs):
    sigmas, sizes = np.linspace(0, 5, 4), {"d1": 4000, "d2": 2000, "n": 2000, "m": 2000}
    exact = toy_asymptotics(sigmas, **sizes, outputs=outputs)
    general = DESIGNS["gaussian"].asymptotics(sigmas, **sizes, outputs=outputs)
    for name in (*TOY_QUANTITIES, "theta_norm", "kappa", "effective"):
        np.testing.assert_allclose(getattr(general, name), getattr(exact, name), rtol=1 / 2000, err_msg=name)


@pytest.mark.parametrize("design", [name for name in DESIGNS if name != "overlap"])
def test_any_function_of_the_outputs_is_blind_to_sigma(design):
    """The outputs themselves do not change by a bit, so nothing computed from them can."""
    config = ToyConfig(design, **{**SMALL, "m": 50}, sigmas=(0.0, 1.0, 5.0), trials=1, interval_trials=0)
    draw = ToyDraw.from_design(DESIGNS[design], config, np.random.default_rng(0))
    a, b = DESIGNS[design].weights(np.array(config.sigmas))
    outputs = draw.outputs(a)
    assert np.array_equal(outputs[0], outputs[1])
    assert np.array_equal(outputs[0], outputs[2])
    from_features = [np.hstack([draw.seen, sigma * draw.hidden]) @ np.append(draw.theta, np.zeros(20)) for sigma in b]
    for row in from_features:
        np.testing.assert_allclose(row, outputs[0], atol=1e-12)
    arrays = toy_trial(config, 0)
    for name in ("confidence", "entropy", "mean_margin", "confident_share"):
        assert np.ptp(arrays[name]) == 0.0
    for name in ("test_error", "projnorm_linear", "squared_loss"):
        assert np.ptp(arrays[name]) > 0.0


def test_without_a_context_the_record_is_the_same_and_no_file_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    config = ToyConfig(**SMALL, sigmas=(0.0, 2.0), trials=2, interval_trials=1)
    record = run_toy(config)
    assert not list(tmp_path.iterdir())
    kept = run_toy(config, RunContext(tmp_path / "runs"))
    for name, values in kept.arrays.items():
        np.testing.assert_array_equal(record.arrays[name], values)


def test_a_trial_does_not_depend_on_how_many_there_are(tmp_path):
    few = run_toy(ToyConfig(**SMALL, trials=3), RunContext(tmp_path))
    many = run_toy(ToyConfig(**SMALL, trials=8), RunContext(tmp_path))
    for name in ("test_error", "projnorm_linear", "theta_norm", "sharp"):
        assert np.array_equal(few.arrays[name][:3], many.arrays[name][:3])
    assert not np.array_equal(
        few.arrays["test_error"],
        run_toy(ToyConfig(**SMALL, trials=3, seed=1), RunContext(tmp_path)).arrays["test_error"],
    )


@pytest.mark.slow
def test_means_are_within_three_standard_errors_of_the_closed_forms(tmp_path):
    sigmas = (0.0, 1.0, 3.0, 5.0)
    record = run_toy(ToyConfig(sigmas=sigmas, interval_trials=0), RunContext(tmp_path, Backend(2)))
    theory = toy_asymptotics(sigmas, d1=1000, d2=500, n=500, m=500)
    for name in ("test_error", "projnorm_linear", "confidence", "squared_loss"):
        sample = record.arrays[name]
        mean, error = sample.mean(axis=0), sample.std(axis=0, ddof=1) / np.sqrt(len(sample))
        assert np.all(np.abs(mean - getattr(theory, name)) <= 3 * error), name
        np.testing.assert_allclose(mean, getattr(theory, name), rtol=0.02)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_that_know_rho_contain_every_loss(design, outputs, tmp_path):
    config = ToyConfig(design, **SMALL, outputs=outputs, trials=3, interval_trials=3)
    record = run_toy(config, RunContext(tmp_path))
    coverage = {row["interval"]: row["coverage"] for row in interval_tracking(record)}
    assert coverage["generalised"] == coverage["sharp"] == 1.0


def test_projnorm_tracks_the_loss_and_confidence_does_not(tmp_path):
    record = run_toy(ToyConfig(d1=400, d2=200, n=200, m=200, trials=6, interval_trials=0), RunContext(tmp_path))
    projnorm, confidence = score_tracking(record).values()
    assert projnorm.r_squared > 0.7
    assert projnorm.spearman > 0.8
    assert confidence.r_squared < 0.3


def test_points_without_a_ground_truth_are_told_from_misses(tmp_path):
    """More rows than features: the labels of both sets fit no linear ground truth at sigma = 0."""
    record = run_toy(ToyConfig(d1=20, d2=20, n=15, m=15, sigmas=(0.0, 2.0), trials=2), RunContext(tmp_path))
    sharp = interval_tracking(record)[2]
    assert sharp["infeasible"] == pytest.approx(np.isnan(record.arrays["sharp"][..., 0]).mean())
    assert sharp["infeasible"] > 0
    independent = record.arrays["sharp"][:, 1]
    loss = record.arrays["squared_loss"][:, 1]
    assert np.all((independent[:, 0] <= loss) & (loss <= independent[:, 1])), "with hidden variance the rows are free"


def test_tracking_of_a_record_made_by_hand(tmp_path):
    from dataclasses import replace

    record = run_toy(ToyConfig(**SMALL, sigmas=(0.0, 1.0), trials=2, interval_trials=2), RunContext(tmp_path))
    loss = np.array([[1.0, 2.0], [3.0, 4.0]])
    ends = np.stack([loss / 2, loss * np.array([[3.0, 0.5], [3.0, 3.0]])], axis=-1)
    arrays = {**record.arrays, "squared_loss": loss, "projnorm_linear": loss**3, "confidence": -loss, "paper": ends}
    by_hand = replace(record, arrays=arrays)
    projnorm, confidence = score_tracking(by_hand).values()
    assert (projnorm.spearman, confidence.spearman) == (1.0, -1.0)
    assert confidence.r_squared == pytest.approx(1.0)
    assert projnorm.r_squared == pytest.approx(np.corrcoef(loss.ravel() ** 3, loss.ravel())[0, 1] ** 2)
    paper = interval_tracking(by_hand)[0]
    assert (paper["coverage"], paper["infeasible"], paper["median_width"]) == (0.75, 0.0, 6.0)
    assert paper["spearman_upper"] == pytest.approx(0.8)


def test_the_designs_have_the_variances_their_names_promise():
    power_law, spiked = (DESIGNS[name].scale(200) ** 2 for name in ("power-law", "spiked"))
    np.testing.assert_allclose(power_law[0] / power_law, np.arange(1, 201))
    assert power_law.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(spiked, np.r_[np.full(10, 25.0), np.ones(190)])
    for design in DESIGNS.values():
        scale = design.scale(200)
        assert np.sum((scale * design.truth(scale)) ** 2) == pytest.approx(1.0), "the label's seen part has variance 1"
    a, b = DESIGNS["overlap"].weights(np.array([0.0, 1.0, 5.0]))
    np.testing.assert_allclose(a**2 + b**2, 1.0)
    assert DESIGNS["label-noise"].flipped == 0.1


def test_a_record_is_drawn_and_read_as_a_table():
    record = run_toy(ToyConfig(n=20, m=20, d1=30, d2=10, trials=2, interval_trials=1, sigmas=(1.0, 2.0)))
    table = record.to_frame()
    assert table["sigma"].tolist() == [1.0, 2.0]
    assert len(record.plot()) > 1
    assert record.to_frame("toy_scores")["design"].tolist() == ["gaussian"]
    with pytest.raises(InputError, match="toy records have the figures toy, blindness; got 'toi'"):
        record.plot("toi")
