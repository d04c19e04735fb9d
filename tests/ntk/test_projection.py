"""Random projections: linear in the gradient, right on average, and not formed where that is dearer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ntk.features import feature_maps, projection
from ntk.features.engine import Engine
from ntk.features.gradient_features import gradient_features
from ntk.features.reference import reference_gram
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from ntk.trace.inputs import Samples
from projnorm.models.networks import resnet18
from tests.ntk.networks import images, plain_network
from tests.ntk.zoo import KINDS, made, plain_gradients, samples

CONFIG = KernelConfig(kind="projection", count=64, device="cpu")
pytestmark = pytest.mark.filterwarnings(
    "ignore:enable_nested_tensor is True", "ignore:There is a performance drop", "ignore:Using padding='same'"
)


@pytest.fixture
def narrow(monkeypatch):
    """Inputs of every layer that may be are projected, onto two directions."""
    monkeypatch.setattr(projection, "_FEWEST_DIRECTIONS", 2)
    monkeypatch.setattr(projection, "_SUMS_PER_POSITION", 10**9)
    monkeypatch.setattr(projection, "ELEMENTWISE", 10**9)


def parts(model: nn.Module, x: torch.Tensor) -> dict[str, str]:
    engine = Engine(model, Samples.from_inputs(x, "x"), CONFIG)
    return {
        layer.group.name: type(part).__name__ for layer, part in zip(engine._captured, engine.map._parts, strict=True)
    }


def assert_right_on_average(model: nn.Module, x: torch.Tensor, draws: int = 150) -> None:
    exact = reference_gram(model, x).numpy()
    found = np.array([gram(model, x, config=replace(CONFIG, seed=seed)).train for seed in range(draws)])
    deviation = found.std(axis=0, ddof=1) / np.sqrt(draws)
    assert (np.abs(found.mean(axis=0) - exact) <= 5 * deviation + 1e-12 * exact.max()).all()
    assert (deviation > 0).all()


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("kind", KINDS)
def test_projected_features_are_one_linear_function_of_the_gradient(kind):
    model = made(KINDS[kind])
    x = samples(KINDS[kind], sum(p.numel() for p in model.parameters() if p.requires_grad) + 20)
    gradients = torch.cat(list(plain_gradients(model, x).values()), 1).numpy()
    found = gradient_features(model, x, config=replace(CONFIG, count=40, batch=16)).values
    matrix = np.linalg.lstsq(gradients, found, rcond=1e-12)[0]
    assert np.linalg.matrix_rank(gradients) < len(x)  # so that not just any features fit
    np.testing.assert_allclose(gradients @ matrix, found, rtol=0, atol=1e-8 * np.abs(found).max())


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    "kind", ["reflected padding", "Conv1d, same", "Conv3d", "linear on tokens", "Embedding", "MLP"]
)
def test_a_projection_of_inputs_preserves_inner_products_on_average(kind):
    model, x = made(KINDS[kind]), samples(KINDS[kind], 4)
    assert {"_Narrowed", "_LookedUp"} & set(parts(model, x).values())
    assert_right_on_average(model, x)


def test_a_projection_of_formed_gradients_preserves_inner_products_on_average(monkeypatch):
    monkeypatch.setattr(projection, "_FEWEST_DIRECTIONS", 10**6)
    model, x = plain_network(), images(6)
    assert set(parts(model, x).values()) == {"_Formed"}
    assert_right_on_average(model, x)
    exact = reference_gram(model, x).numpy()
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    draws = [gram(model, x, config=replace(CONFIG, seed=seed)).train for seed in range(200)]
    assert (np.std(draws, axis=0) / scale).max() < 1.3 * np.sqrt(2 / CONFIG.count)


@pytest.mark.usefixtures("narrow")
def test_small_portions_change_nothing(monkeypatch):
    for kind in ("reflected padding", "linear on tokens", "Embedding"):
        model, x = made(KINDS[kind]), samples(KINDS[kind], 7)
        expected = gradient_features(model, x, config=CONFIG).values
        with monkeypatch.context() as small:
            for module in (projection, feature_maps):
                small.setattr(module, "FORMED_AT_ONCE", 1)
            found = gradient_features(model, x, config=CONFIG).values
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_wide_layers_are_not_formed_and_a_wide_projection_is_near_the_exact_kernel():
    torch.manual_seed(0)
    model, x = resnet18(1).eval(), images(8, size=32).float()
    ways = parts(model, x)
    assert ways["layer1.0.conv1"] == ways["layer4.1.conv2"] == "_Narrowed"
    assert ways["bn1"] == ways["fc"] == "_Formed"
    exact = gram(model, x, config=KernelConfig(device="cpu")).train
    found = gram(model, x, config=replace(CONFIG, count=20_000)).train
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    assert (np.abs(found - exact) / scale).max() < 0.25


@pytest.mark.parametrize("count", [5_000, 20_000])
@pytest.mark.parametrize(("widths", "n"), [((512, 10), 200), ((512, 512, 512, 1), 60)])
def test_layers_with_one_position_are_as_near_as_the_sums_allow(widths, n, count):
    torch.manual_seed(0)
    layers = [nn.Linear(*pair) for pair in itertools.pairwise(widths)]
    model = nn.Sequential(layers[0], *(one for layer in layers[1:] for one in (nn.ReLU(), layer))).eval()
    x = torch.randn(n, widths[0])
    exact, found = (
        gram(model, x, config=replace(config, outputs="0")).train
        for config in (KernelConfig(device="cpu"), replace(CONFIG, count=count))
    )
    assert np.linalg.matrix_rank(found) == np.linalg.matrix_rank(exact)
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    assert np.sqrt(np.mean(((found - exact) / scale) ** 2)) < 3 * np.sqrt(2 / count)


def test_more_sums_ask_for_more_directions():
    torch.manual_seed(0)
    model, x = resnet18(1).eval(), images(3, size=32).float()
    costs = [
        Engine(model, Samples.from_inputs(x, "x"), replace(CONFIG, count=count)).costs[0] for count in (5_000, 500_000)
    ]
    assert costs[0].forming < costs[1].forming
