"""Sweeps, trajectories, residuals and ensembles of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from deep.calibration import qualities
from deep.config import DeepConfig
from deep.ensemble import STACKED, ensembles, mean_of, stacked, standardised
from deep.estimators.projnorm import ProjNorm
from deep.experiments.comparison import run_comparison
from deep.experiments.sweep import AS_RUN, SweepConfig, run_sweep, settings_of, sweep_scores
from deep.presets import preset
from deep.residuals import residual_correlations
from deep.scores import Scores
from figures import deep_table, residuals, sweep, trajectory
from tests.deep.test_cli import QUICK

SMALL = DeepConfig(
    families=("gaussian_noise", "contrast"),
    severities=(1, 5),
    n_train=100,
    n_validation=40,
    m=60,
    architecture="small-cnn",
    epochs=2,
    lr=0.05,
    batch=50,
    steps=6,
    projnorm_lr=0.05,
    projnorm_batch=20,
    trajectory=(1, 3, 6),
    methods=("Entropy", "ProjNorm"),
)


def made_up(values: np.ndarray, errors: np.ndarray, families: list[str]) -> Scores:
    count = len(errors)
    names = tuple(f"method {i}" for i in range(values.shape[1]))
    targets = np.array([f"t{i}" for i in range(count)])
    zeros = np.zeros(count, dtype=int)
    return Scores(targets, np.array(families), zeros, targets, zeros, errors, names, values)


@pytest.fixture
def drawn():
    rng = np.random.default_rng(5)
    errors = rng.uniform(0.1, 0.9, 30)
    shared = rng.standard_normal(30)
    noise = rng.standard_normal((30, 4)) + np.outer(shared, [2.0, 2.0, 0.0, 0.0])
    return made_up(errors[:, None] * [1.0, 30.0, 2.0, 5.0] + noise * [0.1, 3.0, 0.2, 1.0], errors, [*"abcdef"] * 5)


def test_residuals_are_those_of_plain_regressions(drawn):
    found = residual_correlations(drawn)
    left = [
        drawn.errors - np.polyval(np.polyfit(score, drawn.errors, 1), score)
        for score in np.ascontiguousarray(drawn.values.T)
    ]
    np.testing.assert_allclose(found.correlation, np.corrcoef(left), atol=1e-10)
    assert np.all(found.low <= found.correlation + 1e-12)
    assert np.all(found.high >= found.correlation - 1e-12)
    assert found.correlation[0, 1] > 0.7 > abs(found.correlation[0, 2])


def test_the_intervals_of_residuals_are_those_of_drawing_families(drawn):
    found = residual_correlations(drawn)
    rng, names, drawn_by_hand = np.random.default_rng(1), np.unique(drawn.families), []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(drawn.families == f) for f in rng.choice(names, len(names))])
        errors = drawn.errors[rows]
        left = [
            errors - np.polyval(np.polyfit(drawn.values[rows, i], errors, 1), drawn.values[rows, i]) for i in (0, 2)
        ]
        drawn_by_hand.append(np.corrcoef(left)[0, 1])
    np.testing.assert_allclose(
        [found.low[0, 2], found.high[0, 2]], np.quantile(drawn_by_hand, [0.025, 0.975]), atol=0.08
    )


def test_residuals_of_an_exact_method_and_of_few_families(drawn):
    exact = replace(drawn, values=np.column_stack([drawn.values[:, :3], 3 * drawn.errors + 1]))
    assert np.isnan(residual_correlations(exact).correlation[3, :3]).all()
    few = replace(drawn, families=np.array(["a", "b"] * 15))
    found = residual_correlations(few)
    assert np.isnan(found.low).all()
    assert np.isfinite(found.correlation).all()
    assert residuals.build(found).rows[0][1] == f"{found.correlation[1, 0]:.2f}"
    assert len(residuals.draw(found).axes) == 2


def test_an_ensemble_is_the_mean_of_standardised_scores(drawn):
    z = (drawn.values - drawn.values.mean(axis=0)) / drawn.values.std(axis=0)
    np.testing.assert_allclose(mean_of(drawn, ["method 0", "method 2"]), (z[:, 0] + z[:, 2]) / 2)
    scaled = replace(drawn, values=drawn.values * [1.0, 7.0, 0.1, 1e6] + 3.0)
    np.testing.assert_allclose(standardised(scaled), standardised(drawn), atol=1e-9)
    together = ensembles(drawn)
    assert len(together.methods) == 4 + 6 + 1 + 1
    assert together.values.shape == (30, 12)
    assert ensembles(drawn, [("method 3", "method 1")]).methods[4:] == ("method 3 + method 1", STACKED)
    constant = replace(drawn, values=np.ones_like(drawn.values))
    assert not standardised(constant).any()
    with pytest.raises(ValueError, match="method 3, each once; got ATC"):
        mean_of(drawn, ["ATC"])


def test_stacking_never_sees_the_family_it_predicts(drawn):
    before = stacked(drawn)
    inside = drawn.families == "c"
    other = replace(drawn, errors=np.where(inside, 1.0 - drawn.errors, drawn.errors))
    np.testing.assert_array_equal(stacked(other)[inside], before[inside])
    assert np.all(stacked(other)[~inside] != before[~inside])
    values = np.column_stack([drawn.values[:, :2] * 0.0, 4 * drawn.errors - 1])
    exact = replace(drawn, values=values, methods=("a", "b", "c"))
    np.testing.assert_allclose(stacked(exact), drawn.errors, atol=1e-9)
    falling = replace(drawn, values=-values, methods=("a", "b", "c"))
    for family in "abcdef":  # no negative weight: the mean of the others is left
        inside = drawn.families == family
        np.testing.assert_allclose(stacked(falling)[inside], drawn.errors[~inside].mean())
    with pytest.raises(ValueError, match="there is only one"):
        stacked(replace(drawn, families=np.full(30, "a")))


def test_the_error_of_stacking_is_that_of_its_predictions(drawn):
    together = ensembles(drawn)
    *_, quality = qualities(together, predicting=(STACKED,))
    assert quality.mae.value == pytest.approx(np.abs(stacked(drawn) - drawn.errors).mean())
    assert deep_table.build(together).rows[-1][3].startswith(f"{100 * quality.mae.value:.1f} ")
    one_family = replace(drawn, families=np.full(30, "a"))
    assert STACKED not in ensembles(one_family, [("method 0", "method 1")]).methods
    with pytest.raises(ValueError, match="each once; got method 0, method 0"):
        ensembles(drawn, [("method 0", "method 0")])


def test_a_sweep_runs_what_is_new_and_shares_the_rest(tmp_path, monkeypatch):
    base = run_comparison(SMALL, root=tmp_path)
    monkeypatch.setattr("deep.stages._fine_tuned", _refused)
    asked = SweepConfig(base.id, (3,), (30,), (0.01,), ("fine-tuned",), ("true",), ("frozen",))
    said = []
    record = run_sweep(asked, root=tmp_path, announce=said.append)
    scores = sweep_scores(record)
    assert scores.methods == (
        AS_RUN,
        "T = 3",
        "m = 30",
        "lr = 0.01",
        "reference = fine-tuned",
        "labels = true",
        "batch norm = frozen",
    )
    assert said[1] == "setting 2 of 7: T = 3"
    np.testing.assert_array_equal(scores.values[:, 0], base.arrays["scores"][:, 1])
    np.testing.assert_array_equal(scores.errors, base.arrays["errors"])
    for before, after in pairwise(scores.values.T):
        assert np.all(before != after)
    np.testing.assert_array_equal(
        scores.values[:, 1],
        run_comparison(replace(SMALL, steps=3, trajectory=(1, 3)), root=tmp_path).arrays["scores"][:, 1],
    )
    monkeypatch.setattr("deep.projnorm.ProjNorm.measure", _refused)
    assert run_sweep(asked, root=tmp_path).created == record.created
    assert len(sweep.build(record).rows) == 7
    assert len(sweep.draw(record).axes) == 6
    assert len(trajectory.draw(base).axes) == 2
    with pytest.raises(ValueError, match="kept no trajectory"):
        trajectory.draw(run_comparison(replace(SMALL, trajectory=(), methods=("Entropy",)), root=tmp_path))
    with pytest.raises(ValueError, match="must name each setting once"):
        settings_of(replace(asked, steps=(3, 3)), SMALL)
    with pytest.raises(ValueError, match="must vary something"):
        settings_of(SweepConfig(base.id), SMALL)
    fewer = [setting.config.steps for setting in settings_of(asked, replace(SMALL, projnorm_samples=40))]
    assert fewer[2] == round(6 * 30 / 40)
    with pytest.raises(ValueError, match="did not compute ProjNorm"):
        settings_of(asked, replace(SMALL, methods=("Entropy",)))


def test_a_sweep_begun_afresh_keeps_the_network_and_mends_its_record(tmp_path, monkeypatch, caplog):
    base = run_comparison(SMALL, root=tmp_path)
    monkeypatch.setattr("deep.stages._fine_tuned", _refused)
    ledger = tmp_path / base.id / "ledger.jsonl"
    written = ledger.stat().st_mtime_ns
    asked = SweepConfig(base.id, steps=(3,))
    first = run_sweep(asked, root=tmp_path)
    (tmp_path / first.id / "record.json").write_text("{}")
    mended = run_sweep(asked, root=tmp_path)
    assert f"{first.id}/record.json: not a record; its files are now in" in caplog.text
    np.testing.assert_array_equal(mended.arrays["scores"], first.arrays["scores"])
    measured = []
    plain = ProjNorm.measure
    monkeypatch.setattr(ProjNorm, "measure", lambda *a, **k: measured.append(1) or plain(*a, **k))
    again = run_sweep(asked, root=tmp_path, fresh=True)
    np.testing.assert_array_equal(again.arrays["scores"], first.arrays["scores"])
    assert len(measured) == 5
    assert ledger.stat().st_mtime_ns == written


def test_a_sweep_of_a_joint_network_stays_with_it(tmp_path):
    config = replace(SMALL, rotation="joint", methods=("Rotation", "ProjNorm"), rotation_samples=40)
    base = run_comparison(config, root=tmp_path)
    record = run_sweep(SweepConfig(base.id, steps=(6, 3)), root=tmp_path)
    np.testing.assert_array_equal(record.arrays["scores"][:, 0], record.arrays["scores"][:, 1])


def _refused(*_, **__):
    raise AssertionError("trained again")


def test_the_papers_sweep_of_the_papers_run():
    asked = SweepConfig.like_the_paper("run", preset("paper-cifar10-resnet18"))
    assert asked == SweepConfig(
        "run", (500, 200), (5000, 2000, 1000, 500, 100), (5e-4, 1e-4), ("fine-tuned",), ("true",)
    )
    steps = {s.value: s.config.steps for s in settings_of(asked, preset("paper-cifar10-resnet18")) if s.varied == "m"}
    assert steps == {"5000": 500, "2000": 200, "1000": 100, "500": 50, "100": 10}


def test_the_analyses_on_the_command_line(projnorm, tmp_path):
    assert projnorm("deep", "run", "digits", *QUICK, "--trajectory", "1,2,3", "--workers", "1")[0] == 0
    code, out, err = projnorm("deep", "sweep", "--T", "2", "--labels", "true", "--workers", "1")
    assert code == 0
    assert "setting 2 of 3: T = 2" in err
    assert "\nlabels = true " in out
    code, out, _ = projnorm("deep", "sweep", "--T", "2", "--labels", "true", "--json")
    assert [row["setting"] for row in json.loads(out)["settings"]] == [AS_RUN, "T = 2", "labels = true"]
    code, out, _ = projnorm("deep", "residuals")
    assert code == 0
    assert "\nProjNorm " in out
    assert len(json.loads(projnorm("deep", "residuals", "--json")[1])["correlation"]) == 6
    code, out, _ = projnorm("deep", "ensemble", "--methods", "ProjNorm,ATC")
    assert "ProjNorm + ATC " in out
    assert "stacked " in out
    code, out, _ = projnorm("deep", "trajectory")
    assert "trajectory.png" in out
    folder = next((tmp_path / "projnorm-out" / "runs").glob("deep-[0-9a-f]*"))
    assert (folder / "residuals.png").exists()
    for bad, words in (
        (("sweep", "--T", "two"), "--steps"),
        (("sweep", "--T", "none"), "must vary something"),
        (("sweep", "--m", "400"), "`projnorm_samples` must be 0 for all, or from 2 to m = 40"),
        (("sweep", "--reference", "mine"), "`reference` must be one of trained, fine-tuned"),
        (("ensemble", "--methods", "Crystal,ATC"), "`methods` must be of Rotation"),
        (("ensemble", "--format", "yaml"), "`format` must be one of"),
        (("residuals", "deep-none"), "ID must name one run"),
    ):
        code, out, err = projnorm("deep", *bad)
        assert (code, out) == (2, ""), bad
        assert words in err
        assert err.count("\n") == 1


def test_of_many_methods_only_pairs_with_projnorm_are_made():
    rng = np.random.default_rng(0)
    methods = (*(f"m{i}" for i in range(8)), "ProjNorm")
    count = 12
    many = Scores(
        np.array([f"t{i}" for i in range(count)]),
        np.repeat(["a", "b", "c"], 4),
        np.zeros(count, int),
        np.full(count, "generated"),
        np.full(count, 10),
        rng.random(count),
        methods,
        rng.random((count, len(methods))),
    )
    added = ensembles(many).methods[len(methods) :]
    assert len(added) == 8 + 1 + 1  # pairs, all, stacked
    assert all("ProjNorm" in name for name in added[:-1])
    few = ensembles(many.only(methods[:3])).methods[3:]
    assert len(few) == 3 + 1 + 1


def test_a_sweep_over_layers_trains_them_alone():
    base = preset("digits")
    _, head, block = settings_of(SweepConfig("run", layers=("fc", "layer4+fc")), base)
    assert (str(head), head.config.projnorm_layers) == ("layers = fc", ("fc",))
    assert block.config.projnorm_layers == ("layer4", "fc")
    assert head.config.methods == ("ProjNorm",)
