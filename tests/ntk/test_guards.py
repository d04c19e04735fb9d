"""What the engine refuses, each with the name of the layer and in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from ntk import KernelConfig, SelfCheckError, UnsupportedNetworkError, contraction, features, gram
from ntk.capture import parameter_layers
from projnorm.device import choose_device, full_precision
from projnorm.errors import InputError
from tests.ntk.networks import Flat, Functional, Mixing, images, plain_network

CPU = KernelConfig(device="cpu")


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.fc = nn.Linear(3, 1)

    def forward(self, x):
        return self.fc(self.conv(self.conv(x)).mean((2, 3)))


class InPlace(Twice):
    def forward(self, x):
        y = x * 1.0
        out = self.conv(y)
        y.mul_(2.0)
        return self.fc((out + y).mean((2, 3)))


class Unused(Twice):
    def forward(self, x):
        self.conv(x)
        return self.fc(x.mean((2, 3)))


class Tokens(nn.Module):
    """A linear layer that sees several rows a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 1, bias=False)

    def forward(self, x):
        return self.fc(x[:, 0]).sum(1)


class Constant(nn.Module):
    """A layer that sees the same row for every sample."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.register_buffer("row", torch.ones(1, 3))

    def forward(self, x):
        return self.fc(self.row) * x.mean((1, 2, 3))[:, None]


class Hidden(Twice):
    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from super().named_parameters(prefix, recurse, remove_duplicate)
        if recurse:
            yield "extra", nn.Parameter(torch.zeros(7))


class Extra(nn.Linear):
    pass


def head(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), Flat(), nn.LazyLinear(1))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.Linear(3, 1))
    model[2].weight = model[0].weight
    return model


REFUSED = {
    "batch norm in training mode": (
        lambda: head(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2).train()),
        "'1' .BatchNorm2d. is in training mode",
    ),
    "dropout in training mode": (
        lambda: head(nn.Conv2d(3, 2, 1), nn.Dropout(0.5).train()),
        "'1' .Dropout. is in training mode",
    ),
    "a layer called twice": (Twice, "'conv' is called more than once"),
    "an input changed in place": (InPlace, "input of layer 'conv' .Conv2d. is changed in place"),
    "a layer the output does not depend on": (Unused, "does not depend on layer 'conv'"),
    "a weight used without its layer": (Functional, "'conv' is not called"),
    "groups": (lambda: head(nn.Conv2d(3, 3, 1, groups=3)), "'0' .Conv2d. has groups=3"),
    "padding with reflections": (
        lambda: head(nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect")),
        "'0' .Conv2d. pads with 'reflect'",
    ),
    "batch norm without statistics": (
        lambda: head(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, track_running_stats=False)),
        "'1' .BatchNorm2d. keeps no running",
    ),
    "batch norm without statistics or parameters": (
        lambda: head(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, affine=False, track_running_stats=False)),
        "'1' .BatchNorm2d. keeps no running",
    ),
    "several rows a sample": (Tokens, "'fc' .Linear. sees an input of shape"),
    "one row for all samples": (Constant, "'fc' .Linear. sees 1 rows in a batch of 3|one number per sample"),
    "a layer without a rule": (
        lambda: head(nn.Conv2d(3, 2, 1), nn.GroupNorm(1, 2)),
        "'1' .GroupNorm. has parameters and no exact rule",
    ),
    "a subclass of a layer": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), Flat(), Extra(3, 1)),
        "'2' .Extra. has parameters and no exact",
    ),
    "a parameter nobody covers": (Hidden, "the rules cover 16 of 23 parameters"),
    "two outputs": (
        lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), Flat(), nn.Linear(3, 2)),
        "one number per sample; got .1, 2.",
    ),
    "no parameters": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), Flat()), "no parameters"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_without_an_exact_rule_is_refused_by_name(case):
    build, message = REFUSED[case]
    model = build()
    training = {
        name for name, module in model.named_modules() if "training mode" in case and module.training and name == "1"
    }
    with torch.no_grad():
        if any(isinstance(m, nn.modules.lazy.LazyModuleMixin) for m in model.modules()):
            model.eval()(images(2).float())
    model = model.double().eval()
    for name in training:
        model.get_submodule(name).train()
    for compute in (gram, features):
        with pytest.raises(UnsupportedNetworkError, match=message):
            compute(model, images(3), config=replace(CPU, kind="exact"))


def test_tied_weights_are_refused():
    with pytest.raises(UnsupportedNetworkError, match="'0' and '2' share a parameter"):
        parameter_layers(tied())


def test_dropout_in_eval_mode_is_fine():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), Flat(), nn.Dropout(), nn.Linear(3, 1)).double().eval()
    assert gram(model, images(3), config=CPU).train.shape == (3, 3)


def test_inputs_that_cannot_be_are_refused():
    model, x = plain_network(), images(4)
    with pytest.raises(InputError, match=r"inputs of far must be of shape \(3, 8, 8\)"):
        gram(model, x, {"far": images(3, size=9)}, config=CPU)
    with pytest.raises(InputError, match="inputs of train must hold one sample per row"):
        gram(model, x[:0], config=CPU)
    with pytest.raises(InputError, match="inputs of a must be finite"):
        gram(model, x, {"a": x * float("nan")}, config=CPU)
    with pytest.raises(InputError, match="must not be called 'train'"):
        gram(model, x, {"train": x}, config=CPU)
    with pytest.raises(InputError, match="at least one network"):
        gram([], x, config=CPU)
    with pytest.raises(InputError, match="`count` must be between 1 and the"):
        features(model, x, config=KernelConfig(kind="coordinates", count=99_999, device="cpu"))
    with pytest.raises(InputError, match=r"^`count` is for the kinds coordinates and projection\.$"):
        KernelConfig(kind="exact", count=10)
    with pytest.raises(InputError, match=r"^`targets` must be a mapping from names to inputs; got a Tensor\.$"):
        gram(model, x, x, config=CPU)
    for wrong in ("a network", 3, [model, None]):
        with pytest.raises(InputError, match=r"^`models` must be a torch\.nn\.Module; got a (str|int|NoneType)\.$"):
            gram(wrong, x, config=CPU)
    with pytest.raises(InputError, match=r"^`model` must be a torch\.nn\.Module; got a function\.$"):
        features(lambda x: x, x)
    with pytest.raises(InputError, match=r"`memory` of 0\.1 GB is too small"):
        gram(model, x, config=KernelConfig(memory=1e8, device="cpu"))


@pytest.mark.parametrize("compute", [gram, features])
def test_inputs_that_do_not_suit_the_network_are_refused_in_its_own_words(compute):
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval()
    for x, words in (
        (torch.randn(3, 4).double(), r"given float64 samples of shape \(4,\), it says: .*dtype.*\.$"),
        (torch.randn(3, 7), r"given float32 samples of shape \(7,\), it says: .*shapes cannot be multiplied.*\.$"),
    ):
        with pytest.raises(InputError, match=f"^inputs must suit the network; {words}"):
            compute(model, x)


def test_features_of_a_small_network_are_all_of_its_coordinates_by_default(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1)).eval(), torch.randn(3, 4)
    found = features(model, x, out=str(tmp_path / "features.npy"))
    np.testing.assert_array_equal(found.values, features(model, x, config=KernelConfig(kind="exact")).values)
    assert (found.parameters, found.config.count) == (31, 31)
    assert repr(found).startswith("<Features: 3 samples, 31 features (coordinates) of 31 parameters, check error ")


def test_kernels_are_printed_in_a_line_and_give_plain_facts(tmp_path):
    model, x = plain_network(), images(4)
    kernels = gram(model, x, {"near": x[:3], "far": 2 * x[:2]}, config=CPU, folder=str(tmp_path / "tiles"))
    assert str(kernels).startswith(
        f"4 training samples, 2 targets (near 3, far 2), {kernels.parameters:,} parameters, "
    )
    assert repr(kernels) == f"<Kernels: {kernels}>"
    assert "\n" not in repr(kernels)
    facts = json.loads(json.dumps(kernels.to_dict()))
    assert (facts["train"], facts["targets"], facts["device"]) == (4, {"near": 3, "far": 2}, "cpu")
    assert "1 target (near 3), " in str(gram(model, x, {"near": x[:3]}, config=CPU))
    assert "0 targets, " in str(gram(model, x, config=CPU))


def test_a_device_that_is_not_here_is_refused():
    for name in ("abacus", "meta", "xla"):
        with pytest.raises(InputError, match="`device` must be auto or one of cpu, cuda, mps"):
            choose_device(name)
    with pytest.raises(InputError, match="`device` 'cuda:77' is not available"):
        choose_device("cuda:77")
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cuda", "mps", "cpu")


def test_reduced_precision_is_off_inside_and_as_before_outside():
    torch.set_float32_matmul_precision("high")
    try:
        with full_precision():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cuda.matmul.allow_tf32
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_features_are_streamed_to_a_file_that_appears_whole(tmp_path):
    model, x = plain_network(), images(9)
    config = KernelConfig(kind="coordinates", count=100, batch=4, device="cpu")
    held = features(model, x, config=config)
    streamed = features(model, x, config=config, out=tmp_path / "features.npy")
    np.testing.assert_array_equal(streamed.values, held.values)
    assert isinstance(streamed.values, np.memmap)
    assert streamed.fingerprint == held.fingerprint != ""
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]


def test_features_that_fail_leave_no_file_and_keep_the_old_one(tmp_path):
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 1)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls > 2:
                raise MemoryError
            return self.fc(x)

    out = tmp_path / "features.npy"
    out.write_bytes(b"earlier")
    with pytest.raises(MemoryError):
        features(
            Failing().eval(),
            torch.randn(9, 3),
            config=KernelConfig(kind="coordinates", count=2, batch=3, device="cpu"),
            out=out,
        )
    assert out.read_bytes() == b"earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]


def test_batch_norm_outside_the_layers_chosen_is_looked_at_too():
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, track_running_stats=False), Flat(), nn.Linear(128, 1))
    with pytest.raises(UnsupportedNetworkError, match=r"'1' \(BatchNorm2d\) keeps no running"):
        features(model.eval(), images(3).float(), config=KernelConfig(kind="exact", layers=("3",), device="cpu"))


def test_features_of_samples_that_see_each_other_are_refused():
    with pytest.raises(SelfCheckError, match="independent of each other"):
        features(Mixing().double(), images(6)[:, :, 0, 0], config=KernelConfig(kind="exact", device="cpu"))


def test_a_kernel_that_overflows_is_refused():
    model = plain_network().float()
    with torch.no_grad():
        model[0].weight.mul_(1e25)
    with pytest.raises(SelfCheckError, match="is not finite"):
        gram(model, images(5).float(), config=replace(CPU, checks=0))


def test_a_zero_kernel_is_a_kernel():
    model = plain_network()
    with torch.no_grad():
        model[9].weight.zero_()
    kernels = gram(model, images(4), config=replace(CPU, layers=("0",)))
    np.testing.assert_array_equal(kernels.train, np.zeros((4, 4)))
    assert kernels.check_error == 0.0


def test_half_precision_is_refused():
    with pytest.raises(UnsupportedNetworkError, match="float32 or float64"):
        gram(plain_network().bfloat16(), images(3).bfloat16(), config=CPU)


def test_networks_of_different_layers_have_no_mean():
    small = nn.Sequential(Flat(), nn.Linear(192, 1)).double().eval()
    with pytest.raises(InputError, match="`models` must all have the same layers"):
        gram([plain_network(), small], images(3), config=CPU)


def test_usual_ways_of_writing_a_network_work():
    class Squeezed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(192, 1)

        def forward(self, x):
            return self.fc(input=x.flatten(1)).squeeze()

    model, x = Squeezed().double().eval(), images(5)
    with torch.no_grad():
        kernels = gram(model, x, config=replace(CPU, batch=2))
    expected = x.flatten(1) @ x.flatten(1).T + 1.0
    np.testing.assert_allclose(kernels.train, expected.numpy(), rtol=1e-12)


def test_wide_patches_are_unfolded_a_few_at_a_time(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), Flat(), nn.Linear(256, 1)).double().eval()
    x = images(9)
    whole = gram(model, x, config=replace(CPU, route="direct")).train
    seen = []
    right = contraction.patches
    monkeypatch.setattr(contraction, "_PATCH_ENTRIES_AT_ONCE", 2 * 75 * 64)
    monkeypatch.setattr(contraction, "patches", lambda module, x: seen.append(len(x)) or right(module, x))
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, route="direct")).train, whole, rtol=1e-12)
    assert max(seen) == 2
    monkeypatch.setattr(contraction, "_PAIRS_AT_ONCE", 3 * 64**2)
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, route="structured")).train, whole, rtol=1e-10)


def test_a_broken_rule_is_caught_by_the_check_of_features(monkeypatch):
    right = contraction.patches
    monkeypatch.setattr(contraction, "patches", lambda *a: 1.01 * right(*a))
    with pytest.raises(SelfCheckError, match="plain autograd"):
        features(plain_network(), images(5), config=KernelConfig(kind="exact", device="cpu"))
