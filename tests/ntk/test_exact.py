"""The engine against `torch.func`, on networks drawn at random, by every route and in every cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from ntk.features import contraction, feature_maps
from ntk.features.gradient_features import gradient_features
from ntk.features.reference import reference_gradients, reference_gram
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from ntk.trace.traced_network import TracedNetwork
from projnorm.models.networks import resnet18
from tests.ntk.networks import images, networks, plain_network

TOLERANCE = 1e-10
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
GPUS = [name for name, module in (("cuda", torch.cuda), ("mps", torch.backends.mps)) if module.is_available()]


def on_gpu(test):
    """`pytest -m gpu`: the same as on the CPU, in full precision."""
    skipped = pytest.mark.skipif(not GPUS, reason="there is no GPU here")
    return pytest.mark.gpu(skipped(pytest.mark.parametrize("device", GPUS)(test)))


def assert_equal(found: np.ndarray, expected: torch.Tensor) -> None:
    scale = max(float(expected.abs().max()), 1e-300)
    assert np.abs(found - expected.numpy()).max() <= TOLERANCE * scale


@given(networks(), st.sampled_from(["best", "direct", "structured"]), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=100)
def test_the_kernel_is_that_of_torch_func(drawn, route, panel, batch):
    model, x = drawn
    other = torch.flip(x, (3,)) + 0.5
    config = KernelConfig(route=route, panel=panel, batch=batch, device="cpu")
    kernels = gram(model, x, {"other": other}, config=config)
    assert_equal(kernels.train, reference_gram(model, x))
    assert_equal(kernels.ood_train("other"), reference_gram(model, other, x))
    assert_equal(kernels.ood("other"), reference_gram(model, other))
    assert kernels.check_error < TOLERANCE
    assert kernels.parameters == sum(p.numel() for p in model.parameters())


@given(networks(), st.integers(0, 9), st.data())
@settings(max_examples=40)
def test_sampled_features_are_coordinates_of_the_gradient(drawn, seed, data):
    model, x = drawn
    gradients = reference_gradients(model, x).numpy()
    count = data.draw(st.integers(1, gradients.shape[1]))
    found = gradient_features(
        model, x, config=KernelConfig(kind="coordinates", count=count, seed=seed, device="cpu", batch=2)
    )
    indices = np.sort(np.random.default_rng(seed).choice(gradients.shape[1], size=count, replace=False, shuffle=False))
    np.testing.assert_allclose(found.values, gradients[:, indices], rtol=1e-10, atol=1e-10 * np.abs(gradients).max())


def test_every_parameter_is_a_feature_when_all_are_asked_for_and_chunks_do_not_change_the_reference():
    model, x = plain_network(), images(5)
    found = gradient_features(model, x, config=KernelConfig(kind="exact", device="cpu"))
    expected = reference_gradients(model, x).numpy()
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert found.fingerprint == ""
    torch.testing.assert_close(reference_gram(model, x, chunk_size=2), reference_gram(model, x), rtol=1e-12, atol=1e-12)


def test_layers_selects_the_parameters_inside_a_module():
    model, x = plain_network(), images(4)
    names = [name for name, _ in model.named_parameters()]
    sizes = [p.numel() for p in model.parameters()]
    gradients = reference_gradients(model, x).split(sizes, dim=1)
    chosen = torch.cat([g for name, g in zip(names, gradients, strict=True) if name.split(".")[0] in ("4", "9")], 1)
    config = KernelConfig(layers=("4", "9"), device="cpu")
    assert_equal(gram(model, x, config=config).train, chosen @ chosen.T)
    np.testing.assert_allclose(gradient_features(model, x, config=config).values, chosen.numpy(), atol=1e-12)
    with pytest.raises(ValueError, match="`layers` names 'head'"):
        gram(model, x, config=KernelConfig(layers=("head",), device="cpu"))


def test_sampled_and_projected_kernels_are_those_of_their_features():
    model, x = plain_network(), images(7)
    for kind in ("coordinates", "projection"):
        config = KernelConfig(kind=kind, count=50, seed=3, panel=3, device="cpu")
        values = gradient_features(model, x, config=config).values
        np.testing.assert_allclose(gram(model, x, config=config).train, values @ values.T, rtol=1e-10, atol=1e-10)


def test_several_networks_give_the_mean_of_their_kernels():
    models, x = [plain_network(seed) for seed in range(3)], images(5)
    expected = torch.stack([reference_gram(model, x) for model in models]).mean(0)
    assert_equal(gram(models, x, config=KernelConfig(device="cpu", panel=2)).train, expected)


def test_double_products_are_exact_where_gradients_are():
    x = images(20).float()
    flat = x.flatten(1).double()
    exact = (flat @ flat.T + 1.0).numpy()  # the gradient of a linear layer is its input
    model = nn.Sequential(nn.Flatten(), nn.Linear(flat.shape[1], 1)).eval()
    found = {a: gram(model, x, config=KernelConfig(accumulate=a, device="cpu")).train for a in ("float32", "float64")}
    errors = {a: np.abs(kernel / exact - 1.0).max() for a, kernel in found.items()}
    assert errors["float64"] < 1e-12 < errors["float32"]


def test_single_precision_stays_within_rounding():
    model, x = plain_network(), images(40)
    exact = reference_gram(model, x).numpy()
    scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    for accumulate in ("float32", "float64"):
        found = gram(model.float(), x.float(), config=KernelConfig(accumulate=accumulate, device="cpu")).train
        assert (np.abs(found - exact) / scale).max() < 1e-5
        assert found.dtype == np.float64
    assert np.linalg.eigvalsh(found)[0] > -1e-12 * scale.max()


def test_the_network_is_left_as_it_was():
    model, x = plain_network(), images(4)
    for i, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(i % 2 == 0)
    flags = [p.requires_grad for p in model.parameters()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gram(model, x, config=KernelConfig(device="cpu"))
    assert [p.requires_grad for p in model.parameters()] == flags
    assert not any(module._forward_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_a_symmetric_product_in_strips_has_the_whole_upper_triangle(rows):
    x = torch.randn(rows, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.triu(contraction.upper_product(x)), torch.triu(x @ x.T))


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_gradients_formed_a_few_samples_at_a_time_give_the_same_kernel(at_once):
    network = TracedNetwork(plain_network(), images(2), images(3))
    a, b = (network.capture(x, lambda outputs: outputs[:, 0]) for x in (images(7), images(5, seed=1)))
    position = [group.name for group in network.groups].index("4")
    rule = contraction.rule_for(a[position], route="direct")
    assert isinstance(rule, contraction.DirectFormed)
    kept = []
    for captured in (a[position], b[position]):
        kept.append(tuple(torch.empty(captured.samples, *shape, dtype=torch.float64) for shape in rule.shapes))
        rule.write(captured, kept[-1])
    rows = [gradient_rows(captured) for captured in (a[position], b[position])]
    workspace = contraction.Workspace(at_once)
    torch.testing.assert_close(rule.gram(kept[0], kept[1], workspace), rows[0] @ rows[1].T)
    torch.testing.assert_close(torch.triu(rule.gram(kept[0], None, workspace)), torch.triu(rows[0] @ rows[0].T))


def gradient_rows(captured) -> torch.Tensor:
    rows = torch.empty(captured.samples, captured.group.size, dtype=torch.float64)
    captured.write_rows(rows)
    return rows


def test_coordinates_picked_or_formed_in_small_portions_are_the_same(monkeypatch):
    model, x = plain_network(), images(6)
    config = KernelConfig(kind="coordinates", count=200, device="cpu")
    expected = gradient_features(model, x, config=config).values
    monkeypatch.setattr(feature_maps, "_PICKED_AT_ONCE", 3)
    monkeypatch.setattr(feature_maps, "FORMED_AT_ONCE", 2000)
    for route in ("best", "direct"):
        found = gradient_features(model, x, config=replace(config, route=route)).values
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@on_gpu
@pytest.mark.parametrize("accumulate", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["exact", "coordinates", "projection"])
def test_the_kernel_is_that_of_the_cpu(device, accumulate, kind):
    torch.manual_seed(0)
    model, x = resnet18(1).eval(), images(40, size=32).float()
    blocks = {}
    for where in ("cpu", device):
        config = KernelConfig(kind=kind, count=50_000, accumulate=accumulate, device=where, panel=16)
        kernels = gram(model, x[:24], {"t": x[24:]}, config=config)
        blocks[where] = np.block(
            [[kernels.train, kernels.ood_train("t").T], [kernels.ood_train("t"), kernels.ood("t")]]
        )
        assert kernels.check_error < 1e-4
    scale = np.sqrt(np.outer(blocks["cpu"].diagonal(), blocks["cpu"].diagonal()))
    # TF32 would be off by 1e-3.
    assert (np.abs(blocks[device] - blocks["cpu"]) / scale).max() < 2e-5
    assert next(model.parameters()).device.type == "cpu"


@on_gpu
def test_features_are_those_of_the_cpu(device):
    model, x = plain_network().float(), images(9).float()
    values = [
        gradient_features(model, x, config=KernelConfig(kind="coordinates", count=200, device=where)).values
        for where in ("cpu", device)
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-3, atol=1e-5 * np.abs(values[0]).max())


@on_gpu
def test_a_resumed_run_is_bit_for_bit_the_same(device, tmp_path):
    model, x = plain_network().float(), images(20).float()
    config = KernelConfig(device=device, panel=6)
    whole = gram(model, x, config=config).train
    gram(model, x, config=config, folder=tmp_path)
    sorted(tmp_path.glob("*/[0-9]*.json"))[2].unlink()
    np.testing.assert_array_equal(gram(model, x, config=config, folder=tmp_path).train, whole)
