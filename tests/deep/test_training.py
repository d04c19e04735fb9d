"""The training loop: which samples a step sees, that a training resumes to the same weights, and what it refuses."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from deep.training.loop import Checkpoint, augmented, batch_indices, require_precision, train
from projnorm.core.errors import InputError
from projnorm.core.store import Store
from projnorm.models.recipe import Recipe, batches_per_epoch

RNG = np.random.default_rng(0)
INPUTS = RNG.standard_normal((21, 3, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 3, 21)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, 3)
    )


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, b.state_dict()[key]) for key, x in a.state_dict().items())


@given(count=st.integers(2, 60), batch=st.integers(1, 70), seed=st.integers(0, 5), epoch=st.integers(0, 3))
def test_an_epoch_goes_through_every_sample_once_and_no_batch_is_of_one(count, batch, seed, epoch):
    per_epoch = batches_per_epoch(count, batch)
    batches = [batch_indices(count, batch, epoch * per_epoch + i, seed) for i in range(per_epoch)]
    assert sorted(np.concatenate(batches)) == list(range(count))
    assert all(len(b) > 1 for b in batches) or batch == 1
    assert all(len(b) <= batch + 1 for b in batches)


def test_batches_depend_on_the_seed_and_the_epoch_only():
    first = batch_indices(50, 10, 0, 3)
    np.testing.assert_array_equal(first, batch_indices(50, 10, 0, 3))
    assert not np.array_equal(first, batch_indices(50, 10, 0, 4))
    assert not np.array_equal(first, batch_indices(50, 10, 5, 3))


def test_only_the_layers_asked_for_are_trained():
    model = network()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trained = train(model, INPUTS, LABELS, Recipe(3, 0.1, 7, layers=("5",)), seed=0)
    for name, parameter in trained.named_parameters():
        assert torch.equal(parameter, before[name]) == (not name.startswith("5."))
        assert parameter.requires_grad
    # "1" is not the beginning of a name "10.weight".
    assert not Recipe(1, 0.1, 2, layers=("1",)).trains("10.weight")


def test_frozen_statistics_are_used_and_stay():
    model = network()
    with torch.no_grad():
        model[1].running_mean += 0.3
        model[1].running_var *= 2.0
    before = {name: value.clone() for name, value in model[1].named_buffers()}
    without_dropout = nn.Sequential(*(layer for layer in model if not isinstance(layer, nn.Dropout)))
    plain = copy.deepcopy(without_dropout).eval()
    trained = train(without_dropout, INPUTS, LABELS, Recipe(5, 0.1, 21, momentum=0.0, batch_norm="frozen"), seed=0)
    for name, value in trained[1].named_buffers():
        assert torch.equal(value, before[name])
    for step in range(5):
        rows = batch_indices(21, 21, step, 0)
        loss = nn.functional.cross_entropy(plain(torch.from_numpy(INPUTS[rows])), torch.from_numpy(LABELS[rows]))
        gradients = torch.autograd.grad(loss, list(plain.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
                parameter -= Recipe(5, 0.1, 21).lr_at(step, 5) * gradient
    for found, expected in zip(trained.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected)
    usual = train(network(), INPUTS, LABELS, Recipe(5, 0.1, 21), seed=0)
    assert not torch.equal(usual[1].running_mean, network()[1].running_mean)


SGD = (
    Recipe(steps=7, lr=0.05, batch=10),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=7),
    1e-12,
)
ADAMW = (
    Recipe(steps=7, lr=0.01, batch=10, optimiser="adamw", decay="linear"),
    lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0),
    lambda optimiser: torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=7),
    # A bias before batch norm has no gradient but rounding, 1e-17, which AdamW divides by its eps of 1e-8.
    1e-9,
)


@pytest.mark.parametrize(("recipe", "optimiser_of", "schedule_of", "atol"), [SGD, ADAMW], ids=["sgd", "adamw"])
def test_a_training_is_that_of_plain_torch(recipe, optimiser_of, schedule_of, atol):
    mine = network().double()
    mine[4].p = 0.0
    plain = copy.deepcopy(mine)
    train(mine, INPUTS.astype(float), LABELS, recipe, seed=1)
    optimiser = optimiser_of(plain.parameters())
    schedule = schedule_of(optimiser)
    for step in range(7):
        chosen = batch_indices(21, 10, step, 1)
        optimiser.zero_grad()
        x, y = torch.from_numpy(INPUTS[chosen]).double(), torch.from_numpy(LABELS[chosen])
        nn.functional.cross_entropy(plain(x), y).backward()
        optimiser.step()
        schedule.step()
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[key], value, rtol=1e-9, atol=atol)
    assert not mine.training


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize("stopped_after", [1, 5, 9])
def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path, monkeypatch, stopped_after, optimiser):
    recipe = Recipe(steps=10, lr=0.05, batch=10, optimiser=optimiser)
    whole = train(network(), INPUTS, LABELS, recipe, seed=1)
    monkeypatch.setattr("deep.training.loop._SAVE_SECONDS", 0.0)

    steps = []

    def watch(step, _model):
        steps.append(step)
        if len(steps) == stopped_after + 1:
            raise KeyboardInterrupt

    checkpoint = Checkpoint(Store(tmp_path), "x")
    with pytest.raises(KeyboardInterrupt):
        train(network(), INPUTS, LABELS, recipe, seed=1, watch=watch, checkpoint=checkpoint)
    resumed = train(network(7), INPUTS, LABELS, recipe, seed=1, watch=watch, checkpoint=checkpoint)
    assert steps == [*range(1, stopped_after + 2), *range(stopped_after + 1, 11)]
    assert same(whole, resumed)


def test_a_checkpoint_of_another_training_is_not_gone_on_from(tmp_path, monkeypatch):
    monkeypatch.setattr("deep.training.loop._SAVE_SECONDS", 0.0)
    checkpoint = Checkpoint(Store(tmp_path), "x")
    train(network(), INPUTS, LABELS, Recipe(steps=4, lr=0.05, batch=10), seed=1, checkpoint=checkpoint)
    other = Recipe(steps=4, lr=0.01, batch=10)
    alone = train(network(), INPUTS, LABELS, other, seed=1)
    assert same(alone, train(network(), INPUTS, LABELS, other, seed=1, checkpoint=checkpoint))


def test_training_leaves_the_callers_random_numbers_alone():
    model, before = network(), torch.get_rng_state()
    train(model, INPUTS, LABELS, Recipe(steps=2, lr=0.05, batch=10), seed=1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("samples", "labels", "recipe", "message"),
    [
        (1, 1, {}, "two samples or more, one label each; got 1 samples and 1 labels"),
        (21, 20, {}, "got 21 samples and 20 labels"),
        (21, 21, {"lr": 1e38}, r"weights are not finite after 3 steps; lower the learning rate from 1e\+38"),
        (21, 21, {"layers": ("fc",)}, "`layers` must be of 0, 1, 2, 3, 4, 5, or within them; got fc"),
        (21, 21, {"layers": ("5", "nope")}, "got nope"),
        (21, 21, {"steps": 0}, "one of `epochs` and `steps` must be positive.*got 0 and 0"),
        (21, 21, {"epochs": 3}, "one of `epochs` and `steps` must be positive.*got 3 and 3"),
    ],
)
def test_bad_trainings_are_refused(samples, labels, recipe, message):
    with pytest.raises(InputError, match=message):
        train(network(), INPUTS[:samples], LABELS[:labels], Recipe(**{"steps": 3, "batch": 10, **recipe}), seed=0)


@pytest.mark.parametrize("shape", [(8, 8, 3), (32, 17, 1)])
def test_augmented_images_are_moved_and_half_of_them_mirrored(shape):
    images = np.random.default_rng(0).integers(1, 256, (60, *shape)).astype(np.uint8)
    found = augmented(images, np.random.default_rng(1))
    assert (found.shape, found.dtype) == (images.shape, images.dtype)
    height, width = shape[0] // 8, shape[1] // 8
    padded = np.pad(images, ((0, 0), (height, height), (width, width), (0, 0)))
    ways = []
    for image, whole in zip(found, padded, strict=True):
        moved = {
            (down, right, mirrored): whole[down : down + shape[0], right : right + shape[1]][
                :, :: -1 if mirrored else 1
            ]
            for down in range(2 * height + 1)
            for right in range(2 * width + 1)
            for mirrored in (False, True)
        }
        ways.append([way for way, expected in moved.items() if np.array_equal(image, expected)])
    assert all(len(way) == 1 for way in ways)
    assert {way[0] for way, *_ in ways} == set(range(2 * height + 1))
    assert 15 < sum(way[2] for way, *_ in ways) < 45


def test_augmentation_is_drawn_from_the_seed_and_needs_images():
    images = np.random.default_rng(0).integers(0, 256, (21, 8, 8, 3)).astype(np.uint8)
    recipe = Recipe(steps=6, lr=0.05, batch=10, augmentation="standard")

    def trained(augmentation="standard"):
        chosen = replace(recipe, augmentation=augmentation)
        return train(network(), images, LABELS, chosen, seed=1, prepare=channels_first)

    assert same(trained(), trained())
    assert not same(trained(), trained("none"))
    with pytest.raises(
        InputError, match=r"`augmentation` standard needs images of shape \(n, height, width, channels\)"
    ):
        train(network(), INPUTS, LABELS, recipe, seed=1)


def channels_first(x):
    return x.permute(0, 3, 1, 2).float() / 255.0


def test_mixed_precision_rounds_and_is_refused_where_it_was_never_tried():
    def trained(precision):
        model = network().float()
        inputs = INPUTS.astype(np.float32)
        train(model, inputs, LABELS, Recipe(steps=9, lr=0.05, batch=10, precision=precision), seed=1)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    start = torch.cat([parameter.detach().flatten() for parameter in network().float().parameters()])
    exact, mixed = trained("float32"), trained("mixed")
    assert exact.dtype == mixed.dtype == torch.float32
    assert 0.0 < torch.linalg.norm(mixed - exact) < 0.05 * torch.linalg.norm(exact - start)
    with pytest.raises(InputError, match="`precision` mixed needs CUDA or a CPU; the device is mps"):
        require_precision(Recipe(steps=1, precision="mixed"), "mps")


def test_epochs_are_steps_that_go_through_all_samples():
    recipe = Recipe(epochs=2, lr=0.05, batch=10)
    assert recipe.count_steps(21) == 4
    by_steps = train(network(), INPUTS, LABELS, Recipe(4, 0.05, 10), seed=1)
    assert same(by_steps, train(network(), INPUTS, LABELS, recipe, seed=1))
