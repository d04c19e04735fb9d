"""Attacks and label shift: inside the ball, rising with its size, and predicted by the run's lines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from deep.ledger import Ledger, write_rows
from scipy import stats

from deep.attacks import pgd
from deep.config import DeepConfig
from deep.experiments.adversarial import PAPER_EPS, AdversarialConfig, run_adversarial
from deep.experiments.comparison import open_run, run_comparison
from deep.experiments.label_shift import LabelShiftConfig, difficulty_groups, dirichlet_mixture, run_label_shift
from deep.experiments.stress import predictions
from deep.forward import forward
from deep.samples import few_indices
from deep.stages import Workplace, network_of
from deep.training import Hardware
from figures import stress
from figures.networks import network_sections
from projnorm.backends import Backend
from projnorm.vision import ImageNetInput
from tests.deep.test_cli import QUICK

SMALL = DeepConfig(
    families=("gaussian_noise", "contrast"),
    severities=(1, 5),
    n_train=600,
    n_validation=60,
    m=100,
    architecture="small-cnn",
    epochs=8,
    lr=0.05,
    batch=50,
    steps=5,
    projnorm_lr=0.05,
    projnorm_batch=25,
    rotation_samples=60,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("stressed")
    return root, run_comparison(SMALL, root=root)


@pytest.fixture
def attacked(run):
    root, record = run
    work = Workplace(SMALL, root / record.id, Hardware())
    images = work.data.targets[0].samples
    return network_of(work), images.images, images.labels


def test_attacks_raise_the_error_and_stay_inside_the_ball(attacked):
    network, images, labels = attacked
    prepare = ImageNetInput(32)
    errors = []
    for eps in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0):
        found = pgd(network, images, labels, eps=eps, prepare=prepare)
        assert np.abs(found - images).max() <= eps
        assert 0 <= found.min() <= found.max() <= 255
        errors.append(forward(network, "fc", found, prepare=prepare).error(labels))
    assert errors[0] == forward(network, "fc", images, prepare=prepare).error(labels) < 0.5
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
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first = pgd(network, images, labels, eps=4.0, steps=2, start=1, prepare=ImageNetInput(32))
    assert network.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    network.eval()
    np.testing.assert_array_equal(
        first, pgd(network, images, labels, eps=4.0, steps=2, start=1, prepare=ImageNetInput(32))
    )
    assert np.any(first != pgd(network, images, labels, eps=4.0, steps=2, start=2, prepare=ImageNetInput(32)))
    assert np.abs(first - images).max() <= 4.0 + 1e-4
    for bad in ({"eps": -1.0}, {"eps": float("nan")}, {"eps": 1.0, "steps": 0}):
        with pytest.raises(ValueError, match="`eps` must not be negative"):
            pgd(network, images, labels, **bad)


def test_errors_under_attack_are_predicted_by_the_runs_lines(run):
    root, record = run
    config = AdversarialConfig(record.id, eps=(0.0, 2.0, 8.0), m=40, steps=5)
    found = run_adversarial(config, root=root)
    a = found.arrays
    assert a["sets"].tolist() == ["eps = 0", "eps = 2", "eps = 8"]
    assert a["sizes"].tolist() == [40, 40, 40]
    assert np.all(a["farthest"] <= [0.0, 2.0, 8.0])
    scores = record.arrays["scores"]
    for column, method in enumerate(predictions(found)):
        fit = stats.linregress(scores[:, column], record.arrays["errors"])
        np.testing.assert_allclose(method.predicted, fit.intercept + fit.slope * a["scores"][:, column], rtol=1e-9)
        assert method.mse == pytest.approx(np.mean((method.predicted - a["errors"]) ** 2))
    table = stress.build(found)
    assert table.rows[-1][0] == "MSE"
    assert len(stress.draw(found).axes) == 6
    assert run_adversarial(config, root=root, backend=Backend(2)).created == found.created
    again = run_adversarial(config, root=root, backend=Backend(2), fresh=True)
    np.testing.assert_array_equal(again.arrays["scores"], a["scores"])
    with pytest.raises(ValueError, match="`m` must be at most 100"):
        run_adversarial(replace(config, m=101), root=root)


def test_the_clean_images_score_as_in_the_run(run):
    root, record = run
    found = run_adversarial(AdversarialConfig(record.id, eps=(0.0,)), root=root)
    np.testing.assert_allclose(found.arrays["scores"][0], record.arrays["scores"][0], rtol=1e-4)
    assert found.arrays["errors"][0] == record.arrays["errors"][0]
    assert len(PAPER_EPS) == 15


def test_columns_follow_the_methods_in_any_order(tmp_path):
    config = replace(SMALL, methods=("ProjNorm", "ATC"), projnorm_samples=50, epochs=2)
    record = run_comparison(config, root=tmp_path)
    found = run_adversarial(AdversarialConfig(record.id, eps=(0.0, 4.0), steps=2), root=tmp_path).arrays
    assert found["methods"].tolist() == ["ProjNorm", "ATC"]
    names = record.arrays["methods"].tolist()
    for column, method in enumerate(found["methods"]):
        inside = record.arrays["scores"][:, names.index(method)]
        np.testing.assert_allclose(found["scores"][0, column], inside[0], rtol=1e-4)
        np.testing.assert_array_equal(found["run_scores"][:, column], inside)


def test_fewer_images_are_drawn_from_all(run):
    root, record = run
    work = Workplace(SMALL, root / record.id, Hardware())
    few = work.data.targets[0].samples.take(few_indices(100, 30, SMALL.seed))
    found = run_adversarial(AdversarialConfig(record.id, eps=(0.0,), m=30), root=root).arrays
    outputs = forward(network_of(work), "fc", few.images, prepare=work.prepare)
    assert found["errors"][0] == outputs.error(few.labels)
    np.testing.assert_allclose(found["scores"][0, 1], 1 - outputs_confidence(outputs.logits), rtol=1e-5)


def outputs_confidence(logits):
    return torch.softmax(torch.from_numpy(logits), dim=1).amax(dim=1).mean().item()


def test_a_lost_network_is_trained_again_by_the_same_run(tmp_path):
    config = replace(SMALL, methods=("Entropy",), epochs=2)
    record = run_comparison(config, root=tmp_path)
    next((tmp_path / "trained").glob("network-*.safetensors")).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="is not finished; the command that began it goes on with it"):
        run_adversarial(AdversarialConfig(record.id, eps=(1.0,), steps=1), root=tmp_path)
    again = run_comparison(config, root=tmp_path)
    np.testing.assert_array_equal(again.arrays["scores"], record.arrays["scores"])
    assert run_adversarial(AdversarialConfig(record.id, eps=(1.0,), steps=1), root=tmp_path).arrays["errors"][0] >= 0


def test_a_constant_score_predicts_nothing_and_one_target_is_too_few(tmp_path):
    config = replace(SMALL, methods=("Entropy", "ATC"), epochs=2)
    record = run_comparison(config, root=tmp_path)
    ledger = Ledger(tmp_path / record.id / "ledger.jsonl")
    write_rows(ledger.path, [replace(row, score=0.5) if row.method == "ATC" else row for row in ledger.rows])
    found = run_adversarial(AdversarialConfig(record.id, eps=(0.0, 1.0), steps=1), root=tmp_path)
    assert np.isnan(found.arrays["predicted"][:, 1]).all()
    assert np.isfinite(found.arrays["predicted"][:, 0]).all()
    assert len(stress.draw(found).axes) == 2
    alone = run_comparison(replace(config, families=()), root=tmp_path)
    with pytest.raises(ValueError, match="has one target; a line from score to error needs two"):
        run_adversarial(AdversarialConfig(alone.id), root=tmp_path)


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
    with pytest.raises(ValueError, match="`groups` must be at most 5, the number of classes; got 6"):
        difficulty_groups(labels, errors, 6, 5, np.random.default_rng(0))


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
    root, record = run
    config = LabelShiftConfig(record.id, groups=5, concentrations=(1.0,), draws=2, m=50)
    found = run_label_shift(config, root=root)
    a = found.arrays
    assert a["sets"].tolist()[4:] == ["group 5 of 5", "Dirichlet 1, draw 1", "Dirichlet 1, draw 2"]
    assert a["errors"][0] > a["errors"][4]
    assert a["scores"].shape == (7, 6)
    assert np.isnan(a["farthest"]).all()
    assert "farthest" in json.loads(json.dumps(stress.values(found)))
    none = run_label_shift(replace(config, groups=0), root=root)
    assert len(none.arrays["sets"]) == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdversarialConfig("x", eps=()), "`eps` must be different numbers"),
        (lambda: AdversarialConfig("x", eps=(1.0, 1.0)), "`eps` must be different numbers"),
        (lambda: AdversarialConfig("x", eps=(1.0, 1.0000001)), "`eps` must be different numbers"),
        (lambda: AdversarialConfig("x", eps=(float("inf"),)), "`eps` must be different numbers from 0 to 255"),
        (lambda: AdversarialConfig("x", eps=(float("nan"),)), "`eps` must be different numbers from 0 to 255"),
        (lambda: LabelShiftConfig("x", concentrations=(2.0, 2.0)), "must be different positive numbers"),
        (lambda: LabelShiftConfig("x", concentrations=(float("inf"),)), "must be different positive numbers"),
        (lambda: LabelShiftConfig("x", groups=0, concentrations=()), "must ask for something"),
        (lambda: AdversarialConfig("x", m=1), "`m` must be 0 or at least 2"),
        (lambda: LabelShiftConfig("x", groups=1), "`groups` must be 0 for none, or at least 2"),
        (lambda: LabelShiftConfig("x", concentrations=(0.0,)), "`concentrations` must be different positive numbers"),
        (lambda: LabelShiftConfig("x", draws=0), "`draws` must be at least 1"),
    ],
)
def test_what_is_no_stress_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_an_unfinished_run_is_not_stressed(tmp_path):
    record = run_comparison(replace(SMALL, methods=("Entropy",), epochs=1), root=tmp_path)
    ledger = open_run(tmp_path / record.id)[1].path
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="is not finished"):
        run_adversarial(AdversarialConfig(record.id), root=tmp_path)


def test_stress_on_the_command_line(projnorm, tmp_path):
    assert projnorm("deep", "run", "digits", *QUICK, "--workers", "1")[0] == 0
    code, out, err = projnorm("deep", "adversarial", "--eps", "0,4", "--m", "20", "--steps", "2", "--workers", "1")
    assert (code, err) == (0, "")
    assert "\neps = 4 " in out
    assert "\nMSE " in out
    code, out, _ = projnorm("deep", "adversarial", "--eps", "0,4", "--m", "20", "--steps", "2", "--json")
    document = json.loads(out)
    assert document["farthest"][1] <= 4.0
    assert set(document["mse"]) == {"Rotation", "ConfScore", "Entropy", "AgreeScore", "ATC", "ProjNorm"}
    code, out, err = projnorm("deep", "label-shift", "--draws", "1", "--m", "30", "--workers", "1")
    assert (code, err) == (0, "")
    assert "group 5 of 5" in out
    runs = tmp_path / "projnorm-out" / "runs"
    assert len(list(runs.glob("deep-label-shift-*/label_shift.png"))) == 1
    for bad, words in (
        (("adversarial", "--eps", "big"), "--eps"),
        (("adversarial", "--m", "400"), "`m` must be at most 40"),
        (("label-shift", "--groups", "11"), "`groups` must be at most 10"),
    ):
        code, out, err = projnorm("deep", *bad)
        assert (code, out) == (2, ""), bad
        assert words in err
        assert err.count("\n") == 1
    folder = next(runs.glob("deep-" + 10 * "[0-9a-f]"))
    titles = [section.title for section in network_sections(runs)]
    assert titles == [
        "Predicting the error of small-cnn on digits",
        "Error against severity",
        "ProjNorm along its training",
        "What the methods get wrong together",
        "Methods together",
        "Errors under attack",
        "Errors under label shift",
    ]
    arrays = next(folder.glob("arrays-*.npz"))
    arrays.write_bytes(arrays.read_bytes()[:50])
    assert "cannot be shown" in network_sections(runs)[0].text
