"""ProjNorm against Algorithm 1 written in the plainest way, and what it promises."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from deep.estimators.projnorm import ProjNorm, ProjNormMatched
from deep.training.loop import train
from deep.training.projnorm import parameters_of, squared_distances, train_reference
from projnorm.core.statistics import subsample_indices
from projnorm.models.forward import forward
from projnorm.models.recipe import Recipe
from projnorm.outputs.outputs import Outputs

RNG = np.random.default_rng(0)
TRAIN, TRAIN_LABELS = RNG.standard_normal((33, 3, 8, 8)), RNG.integers(0, 4, 33)
TARGET = 1.5 * RNG.standard_normal((33, 3, 8, 8)) + 0.3
RECIPE = Recipe(steps=9, lr=0.02, batch=16)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(24, 4)).double()


INITIAL, EVALUATED = network(0), network(1)


def algorithm_1() -> float:
    """The paper's procedure as it is written down, batch by batch."""

    def fine_tune(images, label):
        model = copy.deepcopy(INITIAL).train()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 9)
        for step in range(9):
            # 33 samples in batches of 16: the third would be a single one, and joins the second.
            order = np.random.default_rng((3, step // 2)).permutation(33)
            rows = order[:16] if step % 2 == 0 else order[16:]
            x = torch.from_numpy(images[rows])
            loss = nn.functional.cross_entropy(model(x), label(x, rows))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    labeller = copy.deepcopy(EVALUATED).eval()
    tilde = fine_tune(TARGET, lambda x, _: labeller(x).argmax(dim=1))
    reference = fine_tune(TRAIN, lambda _, rows: torch.from_numpy(TRAIN_LABELS[rows]))
    return float(torch.linalg.norm(reference - tilde))


def projnorm(**options) -> ProjNorm:
    reference = train_reference(INITIAL, TRAIN, TRAIN_LABELS, RECIPE, seed=3)
    return ProjNorm(INITIAL, reference, recipe=RECIPE, seed=3, **options)


def target(labels=None) -> Outputs:
    return replace(forward(EVALUATED, "5", TARGET), inputs=TARGET, labels=labels)


def test_it_is_algorithm_1_and_leaves_the_networks_as_they_are():
    before = [copy.deepcopy(model.state_dict()) for model in (INITIAL, EVALUATED)]
    assert projnorm().score(target()) == pytest.approx(algorithm_1(), rel=1e-5)
    for model, state in zip((INITIAL, EVALUATED), before, strict=True):
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_layers_add_up_and_the_trajectory_ends_at_the_value():
    found = projnorm(trajectory=(1, 4, 9)).measure(target())
    assert math.sqrt(sum(found.layers.values())) == pytest.approx(found.value, rel=1e-12)
    assert set(found.layers) == {name for name, _ in INITIAL.named_parameters()}
    assert found.trajectory[9] == found.value
    assert found.trajectory[1] != found.trajectory[4]


def test_fewer_samples_are_drawn_from_all_and_the_same_images_and_labels_give_zero():
    few = target().take(subsample_indices(33, 10, 3))
    assert projnorm(samples=10).score(target()) == projnorm().score(few) != projnorm().score(target())
    assert projnorm().score(Outputs(np.eye(4)[TRAIN_LABELS], inputs=TRAIN)) == 0.0


def test_true_labels_are_used_only_when_asked_for():
    labels = RNG.integers(0, 4, 33)
    assert projnorm().score(target(labels)) == projnorm().score(target())
    assert projnorm(labels="true").score(target(labels)) == projnorm().score(Outputs(np.eye(4)[labels], inputs=TARGET))
    with pytest.raises(ValueError, match="`labels` true needs the labels of the target"):
        projnorm(labels="true").score(target())


def test_buffers_do_not_count():
    model = copy.deepcopy(INITIAL)
    model[1].running_mean += 100.0
    assert sum(squared_distances(model, parameters_of(INITIAL)).values()) == 0.0
    with pytest.raises(ValueError, match="`reference` must have the parameters of the network"):
        squared_distances(model, {})


def matched(pool: Outputs, **options) -> ProjNormMatched:
    return ProjNormMatched(INITIAL, recipe=RECIPE, seed=3, **options).fit(pool)


def labelled(labels) -> Outputs:
    """Samples that the network gives these labels; their own are others."""
    rng = np.random.default_rng(len(labels))
    inputs = rng.standard_normal((len(labels), 3, 8, 8)) + np.asarray(labels)[:, None, None, None]
    return Outputs(np.eye(4)[labels], labels=(np.asarray(labels) + 1) % 4, inputs=inputs)


def test_a_matched_reference_has_the_targets_shares_of_the_networks_own_labels():
    pool, new = labelled(np.repeat([0, 1, 2], [60, 50, 9])), labelled(np.repeat([0, 2, 3], [20, 20, 10]))
    method, drawn = matched(pool), []

    def kept(_, inputs, labels, *args, **options):
        drawn.append((inputs, labels))
        return train(copy.deepcopy(INITIAL), inputs, labels, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deep.training.loop.train", kept)
        value = method.measure(new).value
    (inputs, labels), (seen, pseudo) = drawn
    # Step by step the same labels; class 3 is never predicted in distribution, and any sample stands in its place.
    np.testing.assert_array_equal(labels[:40], new.predicted[:40])
    assert len(np.unique(inputs[:20], axis=0)) == 20
    assert len(np.unique(inputs[20:40], axis=0)) == 9  # all there are, several times
    for image, label in zip(inputs, labels, strict=True):
        assert (pool.inputs[pool.predicted == label] == image).all(axis=(1, 2, 3)).any()
    np.testing.assert_array_equal(pseudo, new.predicted)
    expected = parameters_of(train(copy.deepcopy(INITIAL), inputs, labels, RECIPE, seed=3))
    model = train(copy.deepcopy(INITIAL), seen, pseudo, RECIPE, seed=3)
    assert value == pytest.approx(math.sqrt(sum(squared_distances(model, expected).values())), rel=1e-6)


def test_other_class_shares_alone_are_far_from_the_published_reference_and_near_a_matched_one():
    rng = np.random.default_rng(5)
    pool, new = labelled(rng.integers(0, 4, 200)), labelled(rng.integers(0, 2, 60))
    pool, new = replace(pool, labels=pool.predicted), replace(new, labels=new.predicted)
    published = ProjNorm(INITIAL, recipe=RECIPE, seed=3, samples=60).fit(pool)
    assert matched(pool).score(new) < 0.5 * published.score(new)


def test_one_training_serves_several_references():
    other = train_reference(INITIAL, TRAIN[:20], TRAIN_LABELS[:20], RECIPE, seed=4)
    method = projnorm(trajectory=(4, 9))
    found = method.measure_from(target(), {"one": method.reference, "other": other})
    alone = replace(method, reference=other).measure(target())
    assert found["one"].value == method.score(target())
    assert (found["other"].value, found["other"].trajectory) == (alone.value, alone.trajectory)
