"""Kernels of every kind of network, parameter by parameter, against one backward pass a sample."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ntk.features import contraction
from ntk.features.gradient_features import gradient_features
from ntk.features.self_check import SelfCheckError
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from ntk.trace import operations
from ntk.trace.traced_network import TracedNetwork
from projnorm.models.networks import resnet18
from tests.ntk.networks import Centred, images, plain_network
from tests.ntk.zoo import KINDS, Mean, Put, made, plain_gradients, samples

CPU = KernelConfig(device="cpu")
TOLERANCE = 1e-10
# What torch itself says of its layers and of batching by loops.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True", "ignore:There is a performance drop")


def assert_features(model: nn.Module, x: torch.Tensor, expected: dict[str, torch.Tensor], **options) -> None:
    found = gradient_features(model, x, config=replace(CPU, kind="exact", batch=3, **options))
    columns = np.split(found.values, np.cumsum([expected[name].shape[1] for name in found.names])[:-1], axis=1)
    assert sorted(found.names) == sorted(expected)
    for name, rows in zip(found.names, columns, strict=True):
        scale = max(float(expected[name].abs().max()), 1e-300)
        assert np.abs(rows - expected[name].numpy()).max() <= TOLERANCE * scale, name


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_kernels_are_those_of_autograd_for_every_parameter(kind):
    model, x = made(KINDS[kind]), samples(KINDS[kind], 7)
    expected = plain_gradients(model, x)
    assert_features(model, x, expected)
    whole = torch.cat(list(expected.values()), 1).numpy()
    scale = TOLERANCE * np.abs(whole @ whole.T).max()
    for route in ("best", "structured", "autograd"):
        kernels = gram(model, x[:4], x[4:], config=replace(CPU, route=route, batch=2, panel=3))
        np.testing.assert_allclose(kernels.train, whole[:4] @ whole[:4].T, rtol=0, atol=scale)
        np.testing.assert_allclose(kernels.ood_train(), whole[4:] @ whole[:4].T, rtol=0, atol=scale)
    left = gram(model, x, config=CPU).by_autograd
    assert all(any(part in name for part in KINDS[kind].left) for name in left), left
    assert bool(left) == bool(KINDS[kind].left)


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 999), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_random_weights_samples_and_batches_change_nothing(kind, seed, count, batch):
    model, x = made(KINDS[kind], seed), samples(KINDS[kind], count, seed)
    whole = torch.cat(list(plain_gradients(model, x).values()), 1).numpy()
    found = gram(model, x, config=replace(CPU, batch=batch, panel=2)).train
    np.testing.assert_allclose(
        found, whole @ whole.T, rtol=0, atol=TOLERANCE * max(np.abs(whole @ whole.T).max(), 1e-300)
    )


def three_outputs() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double().eval()


def test_several_outputs_give_the_mean_one_a_random_combination_or_the_full_kernel():
    model, x = three_outputs(), samples(KINDS["MLP"], 5)
    rows = [torch.cat(list(plain_gradients(model, x, output=k).values()), 1).numpy() for k in range(3)]
    one = {k: rows[k] @ rows[k].T for k in range(3)}
    for outputs, expected in (("mean", sum(one.values()) / 3), ("1", one[1])):
        np.testing.assert_allclose(gram(model, x, config=replace(CPU, outputs=outputs)).train, expected, atol=1e-12)
        values = gradient_features(model, x, config=replace(CPU, outputs=outputs, kind="coordinates")).values
        np.testing.assert_allclose(values @ values.T, expected, atol=1e-12)
    full = gram(model, x[:3], x[3:], config=replace(CPU, outputs="full", panel=4, batch=2))
    stacked = np.stack(rows, axis=1).reshape(15, -1)  # the outputs of a sample side by side
    np.testing.assert_allclose(full.train, stacked[:9] @ stacked[:9].T, atol=1e-12)
    np.testing.assert_allclose(full.ood_train(), stacked[9:] @ stacked[:9].T, atol=1e-12)
    drawn = [gram(model, x, config=replace(CPU, outputs="random", seed=seed)).train for seed in range(400)]
    scale = np.sqrt(np.outer(drawn[0].diagonal(), drawn[0].diagonal())).max()
    np.testing.assert_allclose(np.mean(drawn, axis=0), sum(one.values()) / 3, atol=0.25 * scale)
    np.testing.assert_array_equal(drawn[3], gram(model, x, config=replace(CPU, outputs="random", seed=3)).train)


def test_frozen_parameters_are_left_out_and_named_unless_they_are_asked_for():
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    whole = gram(model, x, config=CPU)
    model[0].weight.requires_grad_(False)
    without = gram(model, x, config=CPU)
    assert without.left_out == ("0.weight",)
    assert without.parameters == whole.parameters - 30
    assert "(1 tensor left out)" in str(without)
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, frozen=True)).train, whole.train, rtol=1e-12)
    assert not model[0].weight.requires_grad


class Keywords(nn.Module):
    """Takes what a tokenizer gives, and returns what `transformers` returns."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mean = nn.Embedding(7, 4), Mean(4, outputs=2)

    def forward(self, input_ids, attention_mask):
        return {"logits": self.mean(self.words(input_ids) * attention_mask[..., None])}


def test_mappings_loaders_bytes_and_single_targets_are_inputs():
    torch.manual_seed(0)
    model, x = Keywords().double().eval(), samples(KINDS["BERT"], 6)
    batch = {"input_ids": x, "attention_mask": (x > 1).long()}
    kernels = gram(model, batch, {name: t[:2] for name, t in batch.items()}, config=CPU)
    assert kernels.targets == ("target",)
    np.testing.assert_allclose(kernels.ood_train(), kernels.train[:2], rtol=1e-12)
    loader = DataLoader([{name: t[i] for name, t in batch.items()} for i in range(6)], batch_size=4)
    np.testing.assert_array_equal(gram(model, loader, config=CPU).train, kernels.train)
    network, pictures = plain_network().float(), (images(5).abs() * 100).to(torch.uint8)
    scaled = gram(network, pictures.float() / 255, config=CPU).train
    np.testing.assert_array_equal(gram(network, pictures, config=CPU).train, scaled)
    labelled = DataLoader(TensorDataset(pictures, torch.arange(5)), batch_size=2)
    np.testing.assert_array_equal(gram(network, labelled, config=CPU).train, scaled)


def test_inference_mode_and_half_precision_are_no_obstacle():
    model, x = plain_network(), images(5)
    with torch.inference_mode():
        inside = gram(model, x * 1.0, config=CPU).train
    exact = gram(model, x, config=CPU).train
    np.testing.assert_array_equal(inside, exact)
    half = gram(model.bfloat16(), x.bfloat16(), config=CPU).train
    assert np.abs(half - exact).max() < 0.1 * np.abs(exact).max()


BROKEN = {
    "a convolution": (operations.Convolution, KINDS["grouped"]),
    "a linear layer": (operations.Linear, KINDS["linear on tokens"]),
    "a norm": (operations.Normalisation, KINDS["LayerNorm"]),
    "an embedding": (operations.Embedding, KINDS["Embedding"]),
    "a bare parameter": (operations.Broadcast, KINDS["scale and shift in place"]),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_caught_layer_by_layer_and_replaced_by_autograd(monkeypatch, rule):
    operation, kind = BROKEN[rule]
    model, x = made(kind), samples(kind, 5)
    expected = gram(model, x, config=CPU).train
    right = operation.write

    def wrong(self, role, x, g, out):
        right(self, role, x, g, out)
        out.mul_(1.0 + 1e-3)

    monkeypatch.setattr(operation, "write", wrong)
    checked = gram(model, x, config=replace(CPU, route="direct"))
    assert checked.by_autograd
    np.testing.assert_allclose(checked.train, expected, rtol=1e-10, atol=1e-12)
    assert (
        np.abs(gram(model, x, config=replace(CPU, self_check=False, route="direct")).train / expected - 1).max() > 1e-4
    )


@pytest.mark.parametrize(
    "structured", [contraction.StructuredEmbedding, contraction.StructuredConv, contraction.StructuredLinear]
)
def test_a_broken_structured_rule_is_caught_too(monkeypatch, structured):
    model = made(KINDS["Embedding"]) if structured is contraction.StructuredEmbedding else plain_network()
    x = samples(KINDS["Embedding"], 5) if structured is contraction.StructuredEmbedding else images(5)
    right = structured.gram
    monkeypatch.setattr(structured, "gram", lambda *args: 1.01 * right(*args))
    assert gram(model, x, config=replace(CPU, route="structured")).by_autograd


@pytest.mark.parametrize("compute", [gram, gradient_features])
def test_samples_that_see_each_other_fail_the_self_check(compute):
    with pytest.raises(SelfCheckError, match="independent of each other"):
        compute(nn.Sequential(Centred(), nn.Linear(3, 1)).double(), images(6)[:, :, 0, 0], config=CPU)


def test_samples_that_see_each_other_in_large_batches_only_fail_the_comparison_of_batches():
    model = Put(lambda net, x: net.mean(x - x.mean(0) if len(x) > 3 else x), mean=Mean(6)).double()
    with pytest.raises(SelfCheckError, match="with the batch that they are in"):
        gram(model, samples(KINDS["linear on tokens"], 8), config=CPU)


def test_a_forward_pass_that_depends_on_the_samples_is_refused_with_the_remedy_that_works():
    model = Put(
        lambda net, x: net.mean(net.a(x) if len(x) < 4 else net.b(x)),
        a=nn.Linear(6, 4),
        b=nn.Linear(6, 4),
        mean=Mean(4),
    ).double()
    x = samples(KINDS["linear on tokens"], 8)
    with pytest.raises(ValueError, match='depends on the samples; pass route="autograd"'):
        gram(model, x, config=CPU)


def test_a_user_s_hook_is_part_of_the_network():
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    handle = model[0].register_forward_hook(lambda _module, _args, out: out**2)
    rows = torch.cat(list(plain_gradients(model, x, output=0).values()), 1).numpy()
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, outputs="0")).train, rows @ rows.T, rtol=1e-10)
    handle.remove()


def test_blocks_of_a_resnet_are_its_layers():
    network = TracedNetwork(resnet18(1).eval(), *(torch.zeros(count, 3, 32, 32) for count in (2, 3)))
    assert len(network.groups) == 20 + 20 + 1 + 0  # convolutions, batch norms, the last layer
    assert not network.reasons
    assert sum(group.size for group in network.groups) == 11_177_025


def test_a_network_that_was_compiled_is_taken_as_it_was():
    model, x = plain_network(), images(4)
    compiled = nn.Module()
    compiled._orig_mod = model  # what torch.compile returns holds it so
    np.testing.assert_array_equal(gram(compiled, x, config=CPU).train, gram(model, x, config=CPU).train)


def second_head(net, x):
    """Two outputs, the second from tokens that are flattened with the samples inside."""
    inside = torch.tanh(net.b(x.transpose(0, 1).reshape(-1, 6))).view(x.shape[1], len(x), 4).mean(0)
    return torch.cat([net.mean(net.a(x)), inside.sum(1, keepdim=True)], 1)


@pytest.mark.parametrize("outputs", ["mean", "full"])
def test_layers_that_only_a_later_output_depends_on_are_checked_too(outputs):
    torch.manual_seed(0)
    model = Put(second_head, a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4)).double()
    x = samples(KINDS["linear on tokens"], 7)
    rows = [torch.cat(list(plain_gradients(model, x, output=k).values()), 1).numpy() for k in range(2)]
    found = gradient_features(model, x, config=replace(CPU, kind="exact", outputs=outputs)).values
    whole = np.stack(rows, 1).reshape(14, -1) if outputs == "full" else np.concatenate(rows, 1) / np.sqrt(2)
    np.testing.assert_allclose(found @ found.T, whole @ whole.T, rtol=0, atol=1e-12)


def test_the_order_of_rows_is_not_guessed_where_the_samples_looked_at_have_no_gradient():
    def gated(net, x):
        inside = torch.tanh(net.b(x.transpose(0, 1).reshape(-1, 6))).view(x.shape[1], len(x), 4).mean(0)
        return net.mean(net.a(x)) + (x[:, 0, :1] > 50) * inside.sum(1, keepdim=True)

    torch.manual_seed(0)
    model = Put(gated, a=nn.Linear(6, 4), b=nn.Linear(6, 4), mean=Mean(4)).double()
    x = samples(KINDS["linear on tokens"], 7)
    x[3:, 0, 0] = 100.0  # `gradient_features` looks at the first three
    assert_features(model, x, plain_gradients(model, x))


def test_sequences_cut_to_the_longest_of_a_batch_are_refused_and_right_by_autograd():
    def cut(net, x):
        x = x[:, : int((x != 0).sum(1).max())]
        return (torch.tanh(net.a(net.words(x))).sum(-1) * (x != 0)).sum(1)

    torch.manual_seed(0)
    model = Put(cut, words=nn.Embedding(7, 40), a=nn.Linear(40, 40)).double()
    x = samples(KINDS["Embedding"], 8).clamp(min=1)
    x[4:, 1:] = 0  # a batch of one token each, which must not be repeated as if there were five
    with pytest.raises(ValueError, match="depends on the samples"):
        gram(model, x, config=replace(CPU, batch=4))
    whole = torch.cat(list(plain_gradients(model, x).values()), 1).numpy()
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, route="autograd")).train, whole @ whole.T, atol=1e-9)


def test_a_forward_pass_that_ends_early_is_refused():
    model = Put(lambda net, x: net.mean(x) if len(x) > 3 else net.mean(x) + net.a(x).sum((1, 2))[:, None],
                a=nn.Linear(6, 4), mean=Mean(6)).double()  # fmt: skip
    with pytest.raises(ValueError, match="depends on the samples"):
        gram(model, samples(KINDS["linear on tokens"], 8), config=CPU)


def written(net, x):
    tokens = torch.zeros(len(x), 6, 6, dtype=x.dtype)
    tokens[:, 1:] = x
    tokens[:, 0] = net.w
    return net.mean(tokens)


IN_PLACE = {
    "a parameter written into a tensor": written,
    "a derived value changed in place": lambda net, x: net.mean(x * (net.w * 1.0).exp_()),
}


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("self_check", [True, False])
def test_what_is_changed_in_place_is_left_to_autograd_without_the_check_too(kind, self_check):
    torch.manual_seed(0)
    model, x = Put(IN_PLACE[kind], w=torch.randn(6), mean=Mean(6)).double(), samples(KINDS["linear on tokens"], 5)
    assert_features(model, x, plain_gradients(model, x), self_check=self_check)
    assert set(gram(model, x, config=CPU).by_autograd) == {"w"}


def test_networks_that_cannot_take_one_sample_alone_are_no_obstacle_to_autograd():
    torch.manual_seed(0)
    model = Put(lambda net, x: torch.einsum("ni,ij->nj", x.squeeze(), net.w).tanh().sum(1), w=torch.randn(6, 4))
    model, x = model.double(), samples(KINDS["MLP"], 5)[:, None]
    assert_features(model, x, plain_gradients(model, x))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda out: out.detach(), "does not depend on the parameters"),
        (lambda out: out.argmax(1), "real numbers that have a gradient"),
        (lambda out: {"scores": out}, "it returns a dict"),
    ],
)
def test_outputs_without_a_gradient_are_refused(change, said):
    model = Put(lambda net, x: change(net.mean(x)), mean=Mean(6, 3)).double()
    with pytest.raises(ValueError, match=said):
        gram(model, samples(KINDS["linear on tokens"], 5), config=CPU)


def test_targets_of_another_type_and_unknown_names_are_refused():
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    with pytest.raises(ValueError, match=r"inputs of new must be of torch.float64 .* got torch.float32"):
        gram(model, x, {"new": x.float()}, config=CPU)
    with pytest.raises(ValueError, match="`target` must be one of new; got 'target'"):
        gram(model, x, {"new": x}, config=CPU).ood_train()


def test_networks_that_draw_random_numbers_in_training_mode_are_refused_by_name():
    def path(net, x):  # so rarely another one that a few samples do not show it
        return net.mean(x + net.a(x) * (torch.rand(len(x), 1, 1) > 1e-6))

    model, x = Put(path, a=nn.Linear(6, 6), mean=Mean(6)).double(), samples(KINDS["linear on tokens"], 4)
    with pytest.raises(ValueError, match=r"draws random numbers, and layer '' \(Put\) is in training mode"):
        gram(model.train(), x, config=CPU)
    gram(model.eval(), x, config=CPU)


@pytest.mark.parametrize("kind", ["spectral norm", "InstanceNorm with running statistics"])
def test_layers_that_change_buffers_in_training_mode_are_refused_before_they_do(kind):
    model, x = made(KINDS[kind]).train(), samples(KINDS[kind], 4)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with pytest.raises(ValueError, match="is in training mode"):
        gram(model, x, config=CPU)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_a_cache_that_the_first_pass_fills_is_no_obstacle():
    def cached(net, x):
        if not hasattr(net, "positions"):
            net.positions = torch.cos(torch.arange(5.0, dtype=x.dtype))[:, None]
        return net.mean(net.a(x * net.positions))

    model = Put(cached, a=nn.Linear(6, 4), mean=Mean(4)).double()
    assert not gram(model, samples(KINDS["linear on tokens"], 4), config=CPU).by_autograd


def test_a_network_that_changes_its_input_in_place_leaves_the_samples_as_they_are():
    torch.manual_seed(0)
    model = Put(lambda net, x: net.mean(net.a(x.mul_(0.5))), a=nn.Linear(6, 4), mean=Mean(4)).double()
    x = samples(KINDS["linear on tokens"], 5)
    before = x.clone()
    assert_features(model, x, plain_gradients(model, before.clone()))
    assert torch.equal(x, before)


def test_hooks_that_would_step_an_optimizer_are_refused_before_they_do():
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    weight = model[0].weight
    before = weight.detach().clone()
    weight.register_post_accumulate_grad_hook(lambda p: p.data.sub_(p.grad))
    with pytest.raises(ValueError, match=r"'0\.weight' has a hook"):
        gram(model, x, config=CPU)
    assert torch.equal(weight, before)


def test_a_network_that_maps_over_its_samples_itself_is_left_to_autograd():
    torch.manual_seed(0)
    model = Put(lambda net, x: torch.vmap(lambda one: torch.tanh(net.a(one)).mean())(x), a=nn.Linear(6, 4)).double()
    x = samples(KINDS["linear on tokens"], 4)
    assert_features(model, x, plain_gradients(model, x))


@pytest.mark.parametrize("values", [torch.arange(3), torch.ones(3, dtype=torch.complex128)])
def test_parameters_that_are_not_real_are_refused_and_nothing_is_left_frozen(values):
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    model.register_parameter("other", nn.Parameter(values, requires_grad=False))
    with pytest.raises(ValueError, match="parameter 'other' is of torch"):
        gram(model, x, config=replace(CPU, frozen=True))
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    gram(model, x, config=CPU)


def test_tiles_of_a_network_with_other_parameters_or_buffers_are_refused(tmp_path):
    model, x = three_outputs(), samples(KINDS["MLP"], 4)
    model.register_buffer("scale", torch.ones(1), persistent=False)
    gram(model, x, config=CPU, folder=tmp_path)
    model[0].bias.requires_grad_(False)
    with pytest.raises(ValueError, match="computed from something else"):
        gram(model, x, config=CPU, folder=tmp_path)
    model[0].bias.requires_grad_(True)
    assert gram(model, x, config=CPU, folder=tmp_path).computed == 0
    model.scale.mul_(2.0)
    with pytest.raises(ValueError, match="computed from something else"):
        gram(model, x, config=CPU, folder=tmp_path)


def test_bytes_take_the_precision_of_the_network():
    model, pictures = plain_network(), (images(4).abs() * 100).to(torch.uint8)
    np.testing.assert_allclose(
        gram(model, pictures, config=CPU).train, gram(model, pictures.double() / 255, config=CPU).train, rtol=1e-12
    )
