"""Sweeps, trajectories, residuals and ensembles of a run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from deep.comparison.analysis_config import SweepConfig
from deep.comparison.comparison import run_comparison
from deep.comparison.ensemble import STACKED, ensembles, mean_of, residual_correlations, stacked, standardised
from deep.comparison.presets import preset
from deep.comparison.score_quality import qualities
from deep.comparison.scores import Scores
from deep.comparison.sweep import AS_RUN, run_sweep, settings_of, sweep_scores
from deep.comparison.trained_networks import TrainedNetworks
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from tests.small import SMALL as WHOLE

SMALL = WHOLE.updated(
    {
        "data": {"n": 100, "n_validation": 40},
        "finetune": {"epochs": 2},
        "projnorm": {"trajectory": (1, 3, 6)},
        "methods": ("Entropy", "ProjNorm"),
    }
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


def residuals(score: np.ndarray, errors: np.ndarray) -> np.ndarray:
    return errors - np.polyval(np.polyfit(score, errors, 1), score)


def test_residuals_are_those_of_plain_regressions(drawn):
    found = residual_correlations(drawn)
    left = [residuals(drawn.values[:, i], drawn.errors) for i in range(4)]
    np.testing.assert_allclose(found.correlation, np.corrcoef(left), atol=1e-10)
    assert np.all(found.low <= found.correlation + 1e-12)
    assert np.all(found.high >= found.correlation - 1e-12)
    assert found.correlation[0, 1] > 0.7 > abs(found.correlation[0, 2])


def test_the_intervals_of_residuals_are_those_of_drawing_families(drawn):
    found = residual_correlations(drawn)
    rng, names, drawn_by_hand = np.random.default_rng(1), np.unique(drawn.families), []
    for _ in range(400):
        rows = np.concatenate([np.flatnonzero(drawn.families == f) for f in rng.choice(names, len(names))])
        left = [residuals(drawn.values[rows, i], drawn.errors[rows]) for i in (0, 2)]
        drawn_by_hand.append(np.corrcoef(left)[0, 1])
    ends = np.quantile(drawn_by_hand, [0.025, 0.975])
    np.testing.assert_allclose([found.low[0, 2], found.high[0, 2]], ends, atol=0.08)


def test_residuals_of_an_exact_method_and_of_few_families(drawn):
    exact = replace(drawn, values=np.column_stack([drawn.values[:, :3], 3 * drawn.errors + 1]))
    assert np.isnan(residual_correlations(exact).correlation[3, :3]).all()
    few = replace(drawn, families=np.array(["a", "b"] * 15))
    found = residual_correlations(few)
    assert np.isnan(found.low).all()
    assert np.isfinite(found.correlation).all()


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


def test_of_many_methods_only_pairs_with_projnorm_are_made():
    rng = np.random.default_rng(0)
    many = made_up(rng.random((12, 9)), rng.random(12), [*"aaaabbbbcccc"])
    many = replace(many, methods=(*many.methods[:-1], "ProjNorm"))
    added = ensembles(many).methods[9:]
    assert len(added) == 8 + 1 + 1  # pairs, all, stacked
    assert all("ProjNorm" in name for name in added[:-1])
    assert len(ensembles(many.only(many.methods[:3])).methods[3:]) == 3 + 1 + 1


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
    one_family = replace(drawn, families=np.full(30, "a"))
    assert STACKED not in ensembles(one_family, [("method 0", "method 1")]).methods
    with pytest.raises(ValueError, match="each once; got method 0, method 0"):
        ensembles(drawn, [("method 0", "method 0")])


def test_a_sweep_computes_what_is_new_and_shares_the_rest(tmp_path, monkeypatch):
    context = RunContext(tmp_path)
    base = run_comparison(SMALL, context)
    trained = TrainedNetworks._trained

    def only_the_reference(networks, stage):
        return trained(networks, stage) if stage == "reference" else pytest.fail("trained again")

    monkeypatch.setattr(TrainedNetworks, "_trained", only_the_reference)
    asked = SweepConfig(base.id[:8], (3,), (30,), (0.01,), ("fine-tuned",), ("true",), ("frozen",))
    record = run_sweep(asked, context)
    assert record.config["run"] == base.id
    scores = sweep_scores(record)
    varied = ("T = 3", "m = 30", "lr = 0.01", "reference = fine-tuned", "labels = true", "batch norm = frozen")
    assert scores.methods == (AS_RUN, *varied)
    np.testing.assert_array_equal(scores.values[:, 0], base.arrays["scores"][:, 1])
    np.testing.assert_array_equal(scores.errors, base.arrays["errors"])
    for before, after in pairwise(scores.values.T):
        assert np.all(before != after)
    alone = SMALL.updated({"projnorm": {"steps": 3, "trajectory": (1, 3)}})
    monkeypatch.setattr("deep.estimators.projnorm.ProjNorm.measure", lambda *_: pytest.fail("trained again"))
    # Values are shared with a run of the same settings, and the record is found again.
    np.testing.assert_array_equal(scores.values[:, 1], run_comparison(alone, context).arrays["scores"][:, 1])
    assert run_sweep(replace(asked, run=base.id), context).created == record.created


def test_the_papers_sweep_of_the_papers_run():
    base = preset("paper-cifar10-resnet18")
    asked = SweepConfig.like_the_paper("run", base)
    samples = (5000, 2000, 1000, 500, 100)
    assert asked == SweepConfig("run", (500, 200), samples, (5e-4, 1e-4), ("fine-tuned",), ("true",))
    assert not asked.is_empty
    assert SweepConfig("run").is_empty
    steps = {s.value: s.config.projnorm.steps for s in settings_of(asked, base) if s.varied == "m"}
    assert steps == {"5000": 500, "2000": 200, "1000": 100, "500": 50, "100": 10}
    half = base.updated({"projnorm": {"samples": 5000}})
    scaled = [s.config.projnorm.steps for s in settings_of(asked, half) if s.varied == "m"]
    assert scaled[1] == 1000 * 2000 // 5000


@pytest.mark.parametrize(
    ("sweep", "change", "message"),
    [
        ({"steps": (3, 3)}, {}, "must name each setting once"),
        ({"steps": (3,)}, {"methods": ("Entropy",)}, "did not compute ProjNorm"),
        ({"steps": (3,)}, {"projnorm": {"steps": 0, "epochs": 2, "trajectory": ()}}, "a sweep needs a number of steps"),
        ({"samples": (400,)}, {}, "`projnorm.samples` must be 0 for all, or from 2 to m = 60"),
    ],
)
def test_what_cannot_be_varied_is_refused(sweep, change, message):
    with pytest.raises(InputError, match=message):
        settings_of(SweepConfig("run", **sweep), SMALL.updated(change))


def test_a_sweep_over_layers_trains_them_alone(finished):
    _, head, block = settings_of(SweepConfig("run", layers=("fc", "layer4+fc")), SMALL)
    assert (str(head), head.config.projnorm.layers) == ("layers = fc", ("fc",))
    assert block.config.projnorm.layers == ("layer4", "fc")
    assert head.config.methods == ("ProjNorm",)
    context, record = finished
    with pytest.raises(InputError, match=r"`projnorm.layers` must be of features, avgpool, fc"):
        run_sweep(SweepConfig(record.id, layers=("fc", "layer4+fc")), context)
    assert not list(context.root.glob("deep-sweep-*"))
