"""Attacks and label shift: inside the ball, rising with its size, and predicted by the run's lines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import softmax

from deep.comparison.adversarial import pgd, run_adversarial
from deep.comparison.analysis_config import PAPER_EPS, AdversarialConfig, LabelShiftConfig
from deep.comparison.comparison import run_comparison
from deep.comparison.label_shift import difficulty_groups, dirichlet_mixture, run_label_shift
from deep.comparison.runs import Run, open_run
from deep.comparison.stress import predictions
from deep.comparison.trained_networks import networks_of
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.core.statistics import subsample_indices
from projnorm.data.images import ImageNetInput
from projnorm.models.forward import forward
from projnorm.outputs.outputs import Outputs
from tests.small import SMALL as WHOLE

SMALL = WHOLE.updated(
    {"data": {"n": 600, "m": 100}, "finetune": {"epochs": 8}, "projnorm": {"steps": 5, "batch": 25, "trajectory": ()}}
)
PREPARE = ImageNetInput(32)
QUICK = SMALL.updated({"methods": ("Entropy", "ATC"), "finetune": {"epochs": 1}})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    context = RunContext(tmp_path_factory.mktemp("stressed"), device="cpu")
    return context, run_comparison(SMALL, context)


@pytest.fixture
def attacked(run):
    context, record = run
    opened = Run(SMALL, context, record.id)
    images = networks_of(opened).data.targets[0].samples
    return networks_of(opened).network(), images.images, images.labels


def seen(network, images, labels) -> Outputs:
    return replace(forward(network, "fc", images, prepare=PREPARE), labels=labels)


def test_attacks_raise_the_error_and_stay_inside_the_ball(attacked):
    network, images, labels = attacked
    errors = []
    for eps in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
        found = pgd(network, images, labels, eps=eps, prepare=PREPARE)
        assert np.abs(found - images).max() <= eps
        assert 0 <= found.min() <= found.max() <= 255
        errors.append(seen(network, found, labels).error)
    assert errors[0] == seen(network, images, labels).error < 0.5
    assert np.all(np.diff(errors) >= -0.02)
    assert errors[-1] > errors[0] + 0.3


def test_one_step_on_a_linear_network_goes_to_the_corner():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    images = np.full((3, 2, 2, 3), 100.0, dtype=np.float32)
    images[2, 0, 0, 0] = 254.0
    labels = np.array([0, 1, 0])
    weight = model[1].weight.detach().numpy()
    found = pgd(model, images, labels, eps=3.0, steps=1)
    for image, before, label in zip(found, images, labels, strict=True):
        direction = np.sign(weight[1 - label] - weight[label]).reshape(2, 2, 3)
        np.testing.assert_array_equal(image, np.clip(before + 3.0 * direction, 0, 255))


def test_an_attack_leaves_the_network_as_it_was_and_can_start_elsewhere(attacked):
    network, images, labels = attacked
    attack = partial(pgd, network, images, labels, eps=4.0, steps=2, prepare=PREPARE)
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first = attack(start=1)
    assert network.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    network.eval()
    np.testing.assert_array_equal(first, attack(start=1))
    assert np.any(first != attack(start=2))
    assert np.abs(first - images).max() <= 4.0 + 1e-4


def test_errors_under_attack_are_predicted_by_the_runs_lines(run):
    context, record = run
    config = AdversarialConfig(record.id, eps=(0.0, 2.0, 8.0), m=40, steps=5)
    attacked = run_adversarial(config, context)
    a = attacked.arrays
    assert a["sets"].tolist() == ["eps = 0", "eps = 2", "eps = 8"]
    assert a["sizes"].tolist() == [40, 40, 40]
    assert np.all(a["farthest"] <= [0.0, 2.0, 8.0])
    scores = record.arrays["scores"]
    for column, method in enumerate(predictions(attacked)):
        fit = stats.linregress(scores[:, column], record.arrays["errors"])
        np.testing.assert_allclose(method.predicted, fit.intercept + fit.slope * a["scores"][:, column], rtol=1e-9)
        assert method.mse == pytest.approx(np.mean((method.predicted - a["errors"]) ** 2))


def test_a_lost_network_is_trained_again_by_the_same_run(tmp_path):
    context, asked = RunContext(tmp_path), AdversarialConfig(eps=(1.0,), steps=1)
    record = run_comparison(QUICK, context)
    next((tmp_path / "trained").glob("network-*.npz")).write_bytes(b"damaged")
    with pytest.raises(InputError, match="is not finished; run it again to go on with it"):
        run_adversarial(asked, context)
    again = run_comparison(QUICK, context)
    np.testing.assert_array_equal(again.arrays["scores"], record.arrays["scores"])
    assert run_adversarial(asked, context).arrays["errors"][0] >= 0


def test_a_constant_score_predicts_nothing_and_one_target_is_too_few(tmp_path):
    context = RunContext(tmp_path)
    record = run_comparison(QUICK, context)
    run = open_run(tmp_path, record.id)
    for number in range(5):
        (part,) = run.target_scores(f"outputs-{number:04d}")
        run.put_scores(f"outputs-{number:04d}", [replace(part, scores={**part.scores, "ATC": 0.5})])
    arrays = run_adversarial(AdversarialConfig(eps=(0.0, 1.0), steps=1), context).arrays
    assert np.isnan(arrays["predicted"][:, 1]).all()
    assert np.isfinite(arrays["predicted"][:, 0]).all()
    alone = run_comparison(QUICK.updated({"data": {"families": ()}}), context)
    with pytest.raises(InputError, match="has one target; a line from score to error needs two"):
        run_adversarial(AdversarialConfig(alone.id), context)


def test_an_attack_finds_the_slope_of_a_saturated_loss():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0], [-1.0]]).expand(2, 12))
    images = np.full((1, 2, 2, 3), 10.0, dtype=np.float32)  # logits of 120 and -120
    np.testing.assert_array_equal(pgd(model, images, np.array([0]), eps=3.0, steps=1), images - 3.0)


def test_groups_are_of_classes_by_difficulty():
    labels = np.repeat(np.arange(6), 10)
    errors = np.array([0.1, 0.9, 0.3, 0.5, 0.2, np.nan])
    found = difficulty_groups(labels[labels < 5], errors, 2, 25, np.random.default_rng(0))
    assert list(found) == ["group 1 of 2", "group 2 of 2"]
    first, second = found.values()
    assert set(labels[first]) == {1, 3, 2}
    assert set(labels[second]) == {0, 4}
    assert (len(first), len(second)) == (25, 20)
    assert not np.array_equal(first, np.flatnonzero(np.isin(labels[labels < 5], [1, 3, 2]))[:25])


def test_a_mixture_has_its_priors():
    labels = np.repeat(np.arange(10), 500)
    rng = np.random.default_rng(0)
    even = np.bincount(labels[dirichlet_mixture(labels, 1e6, 1000, rng)], minlength=10)
    assert even.sum() == 1000
    assert stats.chisquare(even).pvalue > 1e-3
    uneven = dirichlet_mixture(labels, 0.05, 1000, rng)
    assert len(set(uneven.tolist())) == len(uneven)
    assert np.bincount(labels[uneven], minlength=10).max() > 0.4 * len(uneven)


def test_label_shift_is_scored_and_the_groups_are_ordered(run):
    context, record = run
    config = LabelShiftConfig(record.id, groups=5, concentrations=(1.0,), draws=2, m=50)
    a = run_label_shift(config, context).arrays
    assert a["sets"].tolist()[4:] == ["group 5 of 5", "Dirichlet 1, draw 1", "Dirichlet 1, draw 2"]
    assert a["errors"][0] > a["errors"][4]
    assert a["scores"].shape == (7, 6)
    assert np.isnan(a["farthest"]).all()
    # Two classes of ten are a shift, but one of class shares.
    assert (a["no_shift_p"][:5] < 0.01).all()
    assert (a["class_shares_p"][:5] > a["no_shift_p"][:5]).all()
    assert len(run_label_shift(replace(config, groups=0), context).arrays["sets"]) == 2


@pytest.mark.parametrize(
    ("stress", "message"),
    [
        (lambda context: run_adversarial(AdversarialConfig(m=101), context), "`m` must be at most 100"),
        (lambda context: run_label_shift(LabelShiftConfig(groups=11), context), "`groups` must be at most 10"),
        (lambda _: AdversarialConfig(eps=(1.0, 1.0000001)), "`eps` must be different numbers"),
        (lambda _: AdversarialConfig(m=1), "`m` must be 0 for all, or at least 2"),
        (lambda _: LabelShiftConfig(groups=0, concentrations=()), "must ask for something"),
        (lambda _: LabelShiftConfig(groups=1), "`groups` must be 0, or at least 2"),
        (
            lambda _: difficulty_groups(np.arange(2), np.ones(2), 6, 5, None),
            "`groups` must be at most 2, the number of",
        ),
        *(
            (lambda _, bad=bad: pgd(None, None, None, **bad), "`eps` must not be negative")
            for bad in ({"eps": -1.0}, {"eps": float("nan")}, {"eps": 1.0, "steps": 0})
        ),
    ],
)
def test_what_is_no_stress_is_refused(run, stress, message):
    with pytest.raises(InputError, match=message):
        stress(run[0])


def test_the_clean_images_score_as_in_the_run_and_fewer_are_drawn_from_all(run, attacked):
    context, record = run
    arrays = run_adversarial(AdversarialConfig(record.id, eps=(0.0,)), context).arrays
    np.testing.assert_allclose(arrays["scores"][0], record.arrays["scores"][0], rtol=1e-4)
    assert arrays["errors"][0] == record.arrays["errors"][0]
    network, images, labels = attacked
    few = subsample_indices(100, 30, SMALL.seed)
    outputs = seen(network, images[few], labels[few])
    arrays = run_adversarial(AdversarialConfig(record.id, eps=(0.0,), m=30), context).arrays
    assert arrays["errors"][0] == outputs.error
    confidence = softmax(outputs.logits, axis=1).max(axis=1).mean()
    np.testing.assert_allclose(arrays["scores"][0, 1], 1 - confidence, rtol=1e-5)
    assert len(PAPER_EPS) == 15
