"""Readers of image sets, and what a network sees of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from projnorm.files import locate
from projnorm.vision import ImageNetInput, digits, load_splits, read_image_set

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
