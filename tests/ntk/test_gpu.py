"""On a GPU: `pytest -m gpu`. The same kernels as on the CPU, in full precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ntk import KernelConfig, features, gram
from projnorm.vision import resnet18
from tests.ntk.networks import images, plain_network

DEVICES = [name for name, module in (("cuda", torch.cuda), ("mps", torch.backends.mps)) if module.is_available()]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not DEVICES, reason="there is no GPU here")]


@pytest.mark.parametrize("device", DEVICES)
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


@pytest.mark.parametrize("device", DEVICES)
def test_features_are_those_of_the_cpu(device):
    model, x = plain_network().float(), images(9).float()
    values = [
        features(model, x, config=KernelConfig(kind="coordinates", count=200, device=where)).values
        for where in ("cpu", device)
    ]
    np.testing.assert_allclose(values[1], values[0], rtol=1e-3, atol=1e-5 * np.abs(values[0]).max())


@pytest.mark.parametrize("device", DEVICES)
def test_a_resumed_run_is_bit_for_bit_the_same(device, tmp_path):
    model, x = plain_network().float(), images(20).float()
    config = KernelConfig(device=device, panel=6)
    whole = gram(model, x, config=config).train
    gram(model, x, config=config, folder=tmp_path)
    sorted(tmp_path.glob("*/[0-9]*.json"))[2].unlink()
    np.testing.assert_array_equal(gram(model, x, config=config, folder=tmp_path).train, whole)
