"""What the engine refuses, each with the name of the layer and in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ntk.features import contraction
from ntk.features.gradient_features import gradient_features
from ntk.features.self_check import SelfCheckError
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from ntk.trace import operations
from ntk.trace.requirements import UnsupportedNetworkError
from projnorm.core.device import choose_device, full_precision
from projnorm.core.errors import InputError
from tests.ntk.networks import Flat, images, plain_network

CPU = KernelConfig(device="cpu")


class Of(nn.Module):
    """A network of a 1 x 1 convolution and a linear layer, put together by a function of both and the input."""

    def __init__(self, combined: Callable[[nn.Module, nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.fc, self._combined = nn.Conv2d(3, 3, 1), nn.Linear(3, 1), combined

    def forward(self, x):
        return self._combined(self.conv, self.fc, x)


def changing_its_input(conv, fc, x):
    y = x * 1.0
    out = conv(y)
    y.mul_(2.0)
    return fc((out + y).mean((2, 3)))


def head(*layers: nn.Module, last: nn.Module | None = None) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), Flat(), last or nn.Linear(3, 1)).eval()


def after_conv(layer: nn.Module, *, train: bool = False) -> nn.Module:
    model = head(nn.Conv2d(3, 3, 1), layer)
    layer.train(train)
    return model


REFUSED = [
    (after_conv(nn.BatchNorm2d(3), train=True), "'1' .BatchNorm2d. is in training mode"),
    (after_conv(nn.Dropout(0.5), train=True), "'1' .Dropout. is in training mode"),
    (Of(changing_its_input), "input of a call of 'conv2d' is changed in place"),
    (after_conv(nn.BatchNorm2d(3, track_running_stats=False)), "'1' .BatchNorm2d. keeps no running"),
    (after_conv(nn.BatchNorm2d(3, affine=False, track_running_stats=False)), "'1' .BatchNorm2d. keeps no running"),
    (head(last=nn.Identity()), "no parameters"),
]


@pytest.mark.parametrize(("model", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_network_whose_samples_have_no_gradients_of_their_own_is_refused_by_name(model, message):
    for compute in (gram, gradient_features):
        with pytest.raises(UnsupportedNetworkError, match=message):
            compute(model.double(), images(3), config=replace(CPU, kind="exact"))


def test_dropout_in_eval_mode_is_fine():
    assert gram(head(nn.Dropout()).double(), images(3), config=CPU).train.shape == (3, 3)


MODEL, X = plain_network(), images(4)
NO_MODULE = r"^`models` must be a torch\.nn\.Module; got a (str|int|NoneType)\.$"


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: gram(MODEL, X, {"far": images(3, size=9)}, config=CPU), r"inputs of far must be of shape \(3, 8, 8\)"),
        (lambda: gram(MODEL, X[:0], config=CPU), "inputs of train must hold one sample per row"),
        (lambda: gram(MODEL, X, {"a": X * float("nan")}, config=CPU), "inputs of a must be finite"),
        (lambda: gram(MODEL, X, {"train": X}, config=CPU), "must not be called 'train'"),
        (lambda: gram([], X, config=CPU), "at least one network"),
        (
            lambda: gradient_features(MODEL, X, config=KernelConfig("coordinates", 99_999)),
            "`count` must be between 1 and the",
        ),
        (lambda: KernelConfig(kind="exact", count=10), r"^`count` is for the kinds coordinates and projection\.$"),
        (
            lambda: gram(MODEL, "images.npz", config=CPU),
            r"^inputs of train must be numbers, one sample per row; got a str",
        ),
        (lambda: gram(MODEL, X, {"a": {"x": X}}, config=CPU), r"inputs of a must be of shape \(3, 8, 8\) .*; got x \("),
        (lambda: gram(MODEL, {"x": X, "y": X[:2]}, config=CPU), "as many rows each; got x 4, y 2"),
        (lambda: gram(MODEL, DataLoader([], batch_size=2), config=CPU), "the loader has no batch"),
        (lambda: gram(head().double().requires_grad_(False), X, config=CPU), "all parameters are frozen.*frozen=True"),
        (lambda: gram(MODEL, X, config=replace(CPU, outputs="7")), "`outputs` must be below 1, the number of"),
        (lambda: KernelConfig(outputs="all"), "`outputs` must be mean, random, full, or the number of one output"),
        (
            lambda: gram(Of(lambda *all_of: list(all_of)), X, config=CPU),
            "must return a tensor, or something with `logits`",
        ),
        (
            lambda: gram(Of(lambda _, fc, x: fc(x.mean((0, 2, 3)))).double(), X, config=CPU),
            "one row of outputs per sample",
        ),
        (lambda: gram("a network", X, config=CPU), NO_MODULE),
        (lambda: gram(3, X, config=CPU), NO_MODULE),
        (lambda: gram([MODEL, None], X, config=CPU), NO_MODULE),
        (lambda: gradient_features(lambda x: x, X), r"^`model` must be a torch\.nn\.Module; got a function\.$"),
        (lambda: gram(MODEL, X, config=replace(CPU, memory=1e8)), r"`memory` of 0\.1 GB is too small"),
        (lambda: gram([MODEL, head().double()], X, config=CPU), "`models` must all have the same layers"),
    ],
)
def test_inputs_that_cannot_be_are_refused(compute, message):
    with pytest.raises(InputError, match=message):
        compute()


@pytest.mark.parametrize("compute", [gram, gradient_features])
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
    found = gradient_features(model, x, out=str(tmp_path / "features.npy"))
    np.testing.assert_array_equal(found.values, gradient_features(model, x, config=KernelConfig(kind="exact")).values)
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
    held = gradient_features(model, x, config=config)
    streamed = gradient_features(model, x, config=config, out=tmp_path / "features.npy")
    np.testing.assert_array_equal(streamed.values, held.values)
    assert isinstance(streamed.values, np.memmap)
    assert streamed.fingerprint == held.fingerprint != ""
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]


def test_features_that_fail_leave_no_file_and_keep_the_old_one(tmp_path):
    calls = []

    def failing(conv, fc, x):
        calls.append(1)
        if len(calls) > 2:
            raise MemoryError
        return fc(conv(x).mean((2, 3)))

    out = tmp_path / "features.npy"
    out.write_bytes(b"earlier")
    with pytest.raises(MemoryError):
        gradient_features(
            Of(failing), images(9).float(), config=KernelConfig("coordinates", 2, batch=3, device="cpu"), out=out
        )
    assert out.read_bytes() == b"earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["features.npy"]


def test_batch_norm_outside_the_layers_chosen_is_looked_at_too():
    model = after_conv(nn.BatchNorm2d(3, track_running_stats=False))
    with pytest.raises(UnsupportedNetworkError, match=r"'1' \(BatchNorm2d\) keeps no running"):
        gradient_features(model, images(3).float(), config=KernelConfig(kind="exact", layers=("4",), device="cpu"))


def test_a_zero_kernel_is_a_kernel_and_one_that_overflows_is_refused():
    model, x = plain_network(), images(4)
    with torch.no_grad():
        model[9].weight.zero_()
        kernels = gram(model, x, config=replace(CPU, layers=("0",)))
        model[0].weight.mul_(1e25)
        model[9].weight.fill_(1.0)
    np.testing.assert_array_equal(kernels.train, np.zeros((4, 4)))
    assert kernels.check_error == 0.0
    with pytest.raises(SelfCheckError, match="is not finite"):
        gram(model.float(), x.float(), config=replace(CPU, self_check=False))


def test_usual_ways_of_writing_a_network_work():
    model, x = Of(lambda conv, fc, x: fc(input=conv(x).mean((2, 3))).squeeze()).double().eval(), images(5)
    with torch.no_grad():
        kernels = gram(model, x, config=replace(CPU, batch=2, layers=("fc",)))
    seen = model.conv(x).mean((2, 3)).detach()
    np.testing.assert_allclose(kernels.train, seen @ seen.T + 1.0, rtol=1e-12)


def test_wide_patches_are_unfolded_a_few_at_a_time(monkeypatch):
    model = nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), Flat(), nn.Linear(256, 1)).double().eval()
    x = images(9)
    whole = gram(model, x, config=replace(CPU, route="direct")).train
    seen = []
    right = operations.patches
    monkeypatch.setattr(operations, "PATCH_ENTRIES_AT_ONCE", 2 * 75 * 64)
    monkeypatch.setattr(operations, "patches", lambda window, x: seen.append(len(x)) or right(window, x))
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, route="direct")).train, whole, rtol=1e-12)
    assert max(seen) == 2
    monkeypatch.setattr(contraction, "_PAIRS_AT_ONCE", 3 * 64**2)
    np.testing.assert_allclose(gram(model, x, config=replace(CPU, route="structured")).train, whole, rtol=1e-10)
