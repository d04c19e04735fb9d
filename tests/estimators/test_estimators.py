"""The predictors that do not train: values worked out by hand, edge cases, and what must not change them."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import deep
from deep.comparison.config import run_methods
from deep.estimators.agree_score import AgreeScore
from deep.estimators.rotation import Rotation
from projnorm.core.errors import InputError
from projnorm.estimate.estimate import estimate_error
from projnorm.estimators.atc import ATC, threshold_below
from projnorm.estimators.base import LEARNT, NEEDS, REGISTERED, Estimator, Resources, register
from projnorm.estimators.conf_score import ConfScore
from projnorm.estimators.registry import ESTIMATORS, build, estimator
from projnorm.models.forward import forward
from projnorm.outputs.outputs import Outputs

RNG = np.random.default_rng(0)


def outputs(logits, labels=None) -> Outputs:
    return Outputs(np.asarray(logits, np.float32), labels=labels)


def seen(model, images) -> Outputs:
    return replace(forward(model, "head", images, prepare=as_input), inputs=images)


ROWS = np.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]])


@pytest.mark.parametrize("by", ["entropy", "confidence"])
@pytest.mark.parametrize("wrong", [0, 1, 7, 20])
def test_atc_predicts_the_error_of_the_set_it_learnt_from(by, wrong):
    logits = RNG.standard_normal((20, 5))
    labels = logits.argmax(axis=1)
    labels[:wrong] = (labels[:wrong] + 1) % 5
    assert ATC(by=by).fit(Outputs(logits, labels=labels)).score(outputs(logits)) == wrong / 20


@given(scores=st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5]), min_size=1, max_size=12), count=st.integers(0, 12))
def test_a_threshold_comes_as_near_as_ties_allow(scores, count):
    scores = np.array(scores)
    count = min(count, len(scores))
    found = np.sum(scores < threshold_below(scores, count))
    possible = [np.sum(scores < t) for t in (-math.inf, *scores, math.inf)]
    assert abs(found - count) == min(abs(p - count) for p in possible)


class Corner(nn.Module):
    """Features: the mean of each quarter of the image; classes: the brightest quarter."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, affine=False)
        self.head = nn.Linear(4, 4, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, x):
        return self.head(nn.functional.adaptive_avg_pool2d(x.mean(dim=1, keepdim=True), 2).flatten(1))


def as_input(x):
    return x.movedim(3, 1).float() / 255.0


def corner_images(count, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 40, (count, 8, 8, 3)).astype(np.uint8)
    images[:, :4, :4] += 150
    return images


def test_agreement_counts_the_labels_that_differ():
    images = np.rot90(corner_images(12), 1, axes=(1, 2)).copy()
    first, second = Corner(), Corner()
    second.head.weight.data = torch.eye(4)[[1, 0, 2, 3]]
    assert set(seen(first, images).predicted) == {2}
    assert AgreeScore(first, "head", as_input).score(seen(first, images)) == 0.0
    mixed = np.concatenate([images[:3], corner_images(9)])
    assert AgreeScore(second, "head", as_input).score(seen(first, mixed)) == 9 / 12


def test_a_rotation_head_learns_to_tell_rotations_and_fails_where_there_is_nothing_to_see():
    model = Corner()
    rotation = Rotation(model, "head", as_input).fit(seen(model, corner_images(40)))
    new, blank = corner_images(30, seed=1), np.full((30, 8, 8, 3), 100, np.uint8)
    assert rotation.score(seen(model, new)) == 0.0
    assert rotation.score(seen(model, blank)) == 0.75


def test_a_forward_pass_leaves_the_network_in_its_mode_and_its_statistics_alone():
    model = Corner().train()
    before = model.norm.running_mean.clone()
    found = forward(model, "head", corner_images(5), prepare=as_input)
    assert (model.training, model.norm.training) == (True, True)
    assert torch.equal(model.norm.running_mean, before)
    assert found.logits.shape == found.features.shape == (5, 4)
    with pytest.raises(ValueError, match="outputs are not finite"):
        forward(model, "head", corner_images(5), prepare=lambda x: as_input(x) * math.inf)


def test_a_new_method_is_one_class_and_nothing_else():
    with patch.dict(REGISTERED):

        @register
        class Gap(Estimator):
            """By how much the mean confidence falls."""

            start: float = LEARNT

            name = "Gap"
            needs = frozenset({"labels"})

            def _fit(self, source):
                return replace(self, start=ConfScore().score(source))

            def _score(self, target):
                return ConfScore().score(target) - self.start

        assert "Gap" in run_methods()
        rng = np.random.default_rng(0)
        labels = rng.integers(3, size=80)
        logits = 3.0 * np.eye(3)[labels] + rng.standard_normal((80, 3))
        source = Outputs(logits, labels=labels)
        assert estimator("gap") is Gap
        assert build("GAP", Resources(), source).score(source) == 0.0
        sets = {f"s{i}": Outputs(logits + 0.3 * i * rng.standard_normal((80, 3)), labels=labels) for i in range(10)}
        found = estimate_error(None, source, Outputs(logits), methods=["gap"], calibration=sets)
        assert found.based_on == ("Gap",)
        assert "Gap" in {one.method for one in estimate_error(None, source, Outputs(logits)).methods}
        with pytest.raises(InputError, match="there is already an estimator called ATC"):
            register(type("Other", (Estimator,), {"name": "ATC"}))
    with pytest.raises(InputError, match="there is no method 'gap'; there are AC, "):
        estimator("gap")
    assert not hasattr(deep, "Gap")


LABELS = np.array([0, 1])


@pytest.mark.parametrize("name", ["AC", "COT", "Entropy"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (ROWS, r"must be outputs, as Outputs\.from_logits\(logits, labels=labels\) makes them; got ndarray"),
        (Outputs(ROWS.tolist(), labels=LABELS), r"Outputs\.from_logits.*; got logits as a list"),
        (Outputs(ROWS[0], labels=LABELS), r"`logits` must have shape \(samples, classes\) .*; got \(3,\)"),
        (Outputs(ROWS * math.nan, labels=LABELS), "`logits` must be finite; 2 rows are not"),
    ],
)
def test_methods_refuse_what_are_no_valid_outputs(name, given, message):
    with pytest.raises(InputError, match=message):
        estimator(name)().fit(given)
    fitted = estimator(name)().fit(Outputs(ROWS, labels=LABELS))
    with pytest.raises(InputError, match=message):
        fitted.score(given)


@pytest.mark.parametrize("name", ["AC", "COT", "Entropy"])
def test_methods_refuse_labels_and_classes_that_do_not_fit(name):
    with pytest.raises(InputError, match="the source: `labels` must be column numbers of the outputs, 0 to 2; got 3"):
        estimator(name)().fit(Outputs(ROWS, labels=LABELS + 2))
    fitted = estimator(name)().fit(Outputs(ROWS, labels=LABELS))
    assert math.isfinite(fitted.score(Outputs(ROWS, labels=LABELS + 2)))
    with pytest.raises(InputError, match="new: must have the 3 classes of the source; got 2"):
        fitted.score(Outputs(ROWS[:, :2], name="new"))


def test_methods_are_found_and_declared_without_torch():
    code = "import sys, projnorm.estimators as e; assert 'torch' not in sys.modules; print(len(e.ESTIMATORS))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ended.stdout) == len(ESTIMATORS)
    for one in ESTIMATORS.values():
        assert one.direction in ("up", "down")
        assert one.needs <= set(NEEDS)
        assert not (one.is_error and one.direction == "down")
