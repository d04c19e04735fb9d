"""Networks named as in torchvision, weights from everywhere they may come from, and what networks see of image sets."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from projnorm.core.files import locate
from projnorm.data.corruptions.families import FAMILIES
from projnorm.data.datasets import digits, load_splits, read_image_set
from projnorm.data.image_settings import ARCHITECTURES, FAMILY_NAMES
from projnorm.data.images import ImageNetInput
from projnorm.models import weights
from projnorm.models.networks import HEADS, NETWORKS, resnet18, resnet50, vgg11
from projnorm.models.weights import load_network


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(1)
    return resnet18(3).state_dict()


@pytest.mark.parametrize(
    ("build", "parameters", "count", "names"),
    [  # what torchvision documents for its ImageNet models
        (resnet18, 11_689_512, 122, {"bn1.running_var", "layer2.0.downsample.1.bias", "layer4.1.conv2.weight"}),
        (resnet50, 25_557_032, 320, {"layer1.0.downsample.0.weight", "layer3.5.conv3.weight", "layer4.2.bn3.bias"}),
        (vgg11, 132_863_336, 22, {"features.0.weight", "features.18.bias", "classifier.6.weight"}),
    ],
)
def test_names_and_numbers_of_parameters_are_those_of_torchvision(build, parameters, count, names):
    with torch.device("meta"):
        model = build(1000)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert len(model.state_dict()) == count
    assert names <= set(model.state_dict())


def test_shapes_and_a_shortcut_that_is_added():
    with torch.no_grad():
        for build in (resnet18, resnet50):
            model = build(2).eval()
            assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 2)
        block = resnet18(1).eval().layer1[0]
        for parameter in block.parameters():
            parameter.zero_()
        x = torch.randn(1, 64, 4, 4)
        torch.testing.assert_close(block(x), torch.relu(x))


def test_random_weights_are_seeded_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (load_network("resnet18", "random", num_outputs=1, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.model.fc.weight, same.model.fc.weight)
    assert not torch.equal(one.model.fc.weight, other.model.fc.weight)
    assert one.is_random
    assert (one.weights, one.sha256) == ("random", "")
    assert not one.model.training
    assert one.head_norm == pytest.approx(float(one.model.fc.weight.detach().norm()))


@pytest.mark.parametrize("form", ["pth", "legacy", "safetensors", "nested", "parallel", "of old"])
def test_a_file_is_loaded_as_it_is_and_hashed(tmp_path, state, form):
    path = tmp_path / f"w.{'safetensors' if form == 'safetensors' else 'pth'}"
    document = {f"module.{k}": v for k, v in state.items()} if form == "parallel" else state
    if form == "of old":  # from before batches were counted
        document = {key: value for key, value in state.items() if "num_batches" not in key}
    if form == "safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, path)
    else:
        nested = {"state_dict": document, "epoch": 3} if form == "nested" else document
        torch.save(nested, path, _use_new_zipfile_serialization=form != "legacy")
    loaded = load_network("resnet18", path, num_outputs=3)
    for key, value in loaded.model.state_dict().items():
        assert torch.equal(value, state[key])
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (loaded.weights, loaded.is_random) == (path.name, False)


def test_the_head_is_dropped_and_drawn_with_the_seed(tmp_path, state):
    path = tmp_path / "w.pth"
    torch.save(state, path)
    one, other = (load_network("resnet18", path, num_outputs=1, seed=seed, drop_head=True) for seed in (0, 1))
    assert torch.equal(one.model.layer4[1].conv2.weight, state["layer4.1.conv2.weight"])
    assert not torch.equal(one.model.fc.weight, other.model.fc.weight)
    bound = 512**-0.5  # PyTorch's default for a linear layer
    assert 0.9 * bound < float(one.model.fc.weight.detach().abs().max()) <= bound


def test_weights_that_do_not_fit_are_refused_by_name(tmp_path, state):
    path = tmp_path / "w.pth"
    cases = {
        r"'fc.weight' has shape \(3, 512\), not \(1, 512\); pass num_outputs=3 or drop_head=True": (state, 1),
        "lacks conv1.weight": ({k: v for k, v in state.items() if k != "conv1.weight"}, 3),
        "has the unknown extra": (state | {"extra": torch.zeros(1)}, 3),
        "'bn1.bias' is not finite": (state | {"bn1.bias": torch.full((64,), torch.nan)}, 3),
        r"'bn1.bias' has shape \(3,\), not \(64,\)\.": (state | {"bn1.bias": torch.zeros(3)}, 3),
        "'bn1.running_var' is a variance": (state | {"bn1.running_var": -torch.ones(64)}, 3),
        "'bn1.bias' is not a plain tensor": (state | {"bn1.bias": torch.ones(64, dtype=torch.complex64)}, 3),
        "not a file of plain weights .it asks for 'torch": (state | {"bn1.weight": torch.ones(64).to_sparse()}, 3),
        "does not hold weights by name": ([1, 2], 3),
    }
    for message, (document, outputs) in cases.items():
        torch.save(document, path)
        with pytest.raises(ValueError, match=message):
            load_network("resnet18", path, num_outputs=outputs)
    for architecture, weights_of, message in (
        ("resnet18", tmp_path / "none.pth", "there are no weights at"),
        ("alexnet", "random", "`architecture` must be one of resnet18, resnet50, vgg11"),
        ("small-cnn", "imagenet", "no ImageNet weights of small-cnn"),
    ):
        with pytest.raises(ValueError, match=message):
            load_network(architecture, weights_of)


def test_a_download_is_checked_by_its_hash_and_kept(tmp_path, monkeypatch, state):
    torch.save(state, tmp_path / "file")
    digest = hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()[:8]
    (tmp_path / "file").rename(tmp_path / f"resnet18-{digest}.pth")
    monkeypatch.setattr(weights, "_HOST", tmp_path.as_uri())
    monkeypatch.setitem(weights._OFFICIAL, "resnet18", f"resnet18-{digest}.pth")
    cache = tmp_path / "cache"
    first = load_network("resnet18", "imagenet", num_outputs=3, cache=cache)
    assert first.weights.startswith("resnet18-")
    monkeypatch.setattr(weights, "_HOST", (tmp_path / "gone").as_uri())
    assert load_network("resnet18", "imagenet", num_outputs=3, cache=cache).sha256 == first.sha256
    # A damaged copy is not used.
    copy = next(cache.iterdir())
    copy.write_bytes(copy.read_bytes()[:-1])
    with pytest.raises(ValueError, match="cannot download"):
        load_network("resnet18", "imagenet", num_outputs=3, cache=cache)


def test_the_names_are_those_of_what_there_is_and_the_official_ones_end_in_their_hash():
    assert (tuple(NETWORKS), tuple(FAMILIES)) == (ARCHITECTURES, FAMILY_NAMES)
    assert set(NETWORKS) == set(HEADS)
    assert set(weights._OFFICIAL) == set(NETWORKS) - {"small-cnn"}
    for name in weights._OFFICIAL.values():
        assert len(name.rpartition("-")[2].removesuffix(".pth")) == 8


RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, size=(12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.int64) % 3


def test_digits_are_embedded_and_never_shared_between_the_halves():
    splits = digits()
    assert (len(splits.train), len(splits.test)) == (899, 898)
    assert splits.train.images.shape[1:] == (32, 32, 3)
    assert set(splits.train.labels) == set(range(10))
    rows = {image.tobytes() for image in splits.train.images}
    shared = sum(image.tobytes() in rows for image in splits.test.images)
    assert shared <= 1  # one drawing occurs twice in the data itself
    small = splits.train.images[:, ::4, ::4, 0]
    np.testing.assert_array_equal(small.repeat(4, 1).repeat(4, 2), splits.train.images[..., 1])
    assert splits.train.images.max() == 255


def test_npz_files_with_and_without_a_split(tmp_path):
    train = {"train_images": IMAGES[:8], "train_labels": LABELS[:8].astype(np.uint8)}
    np.savez(tmp_path / "both.npz", **train, test_images=IMAGES[8:], test_labels=LABELS[8:, None])
    splits = load_splits(tmp_path / "both.npz")
    np.testing.assert_array_equal(splits.train.images, IMAGES[:8])
    np.testing.assert_array_equal(splits.test.labels, LABELS[8:])
    np.savez(tmp_path / "one.npz", images=IMAGES, labels=LABELS)
    halves = load_splits(tmp_path / "one.npz")
    together = np.concatenate([halves.train.images, halves.test.images])
    assert {i.tobytes() for i in together} == {i.tobytes() for i in IMAGES}
    np.testing.assert_array_equal(read_image_set(tmp_path / "one.npz").images, IMAGES)


def test_names_are_sought_under_the_data_folder(tmp_path, monkeypatch):
    (tmp_path / "x.npz").touch()
    monkeypatch.setenv("PROJNORM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    assert locate("x.npz") == tmp_path / "x.npz"
    assert str(locate("y.npz")) == "y.npz"
    monkeypatch.delenv("PROJNORM_DATA")
    assert str(locate("x.npz")) == "x.npz"


def test_a_network_sees_centred_and_resized_images():
    x = ImageNetInput(32)(torch.from_numpy(IMAGES))
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(x.numpy().transpose(0, 2, 3, 1), (IMAGES / 255.0 - mean) / std, atol=1e-5)
    constant = torch.full((1, 32, 32, 3), 77, dtype=torch.uint8)
    large = ImageNetInput(48)(constant)
    assert large.shape == (1, 3, 48, 48)
    torch.testing.assert_close(large[:, :, :1, :1].expand_as(large), large)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.array([{}], dtype=object), "labels": LABELS}, "not a whole NPZ file of plain arrays"),
        ({"pictures": IMAGES}, "has no array 'images'; it has pictures"),
        ({"images": IMAGES / 255.0, "labels": LABELS}, "images must be uint8 of shape"),
        ({"images": IMAGES, "labels": LABELS[:5]}, "labels must be 12 integers"),
        ({"images": IMAGES, "labels": LABELS - 1}, "labels must be classes from 0 to 65,535; they run from -1 to 1"),
    ],
)
def test_arrays_that_are_no_images_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(ValueError, match=rf"bad\.npz: .*{message}"):
        load_splits(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("name", "message"), [("none.npz", "there is no data at"), (".", "no binary version of CIFAR-10")]
)
def test_data_that_is_not_there_is_refused(tmp_path, name, message):
    with pytest.raises(ValueError, match=message):
        load_splits(tmp_path / name)
