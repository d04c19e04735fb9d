"""Readers of image sets, what a network sees of them, and corruptions against their definitions."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.ndimage import gaussian_filter

from projnorm.vision import FAMILIES, SEVERITIES, ImageNetInput, ImageSet, corrupt, digits, load_splits, read_image_set
from projnorm.vision.corruptions import _BLUR, _BRIGHTNESS, _CONTRAST, _NOISE
from projnorm.vision.counter_random import normals, uniforms
from projnorm.vision.files import locate
from tests.damage import damaged_copies

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
    np.savez(
        tmp_path / "both.npz",
        train_images=IMAGES[:8],
        train_labels=LABELS[:8].astype(np.uint8),
        test_images=IMAGES[8:],
        test_labels=LABELS[8:, None],
    )
    splits = load_splits(tmp_path / "both.npz")
    np.testing.assert_array_equal(splits.train.images, IMAGES[:8])
    np.testing.assert_array_equal(splits.test.labels, LABELS[8:])
    np.savez(tmp_path / "one.npz", images=IMAGES, labels=LABELS)
    halves = load_splits(tmp_path / "one.npz")
    together = np.concatenate([halves.train.images, halves.test.images])
    assert {i.tobytes() for i in together} == {i.tobytes() for i in IMAGES}
    np.testing.assert_array_equal(read_image_set(tmp_path / "one.npz").images, IMAGES)


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_the_binary_version_of_cifar(tmp_path, label_bytes):
    def write(name, images, labels):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        coarse = np.full((len(images), label_bytes - 1), 99, np.uint8)
        (tmp_path / name).write_bytes(np.hstack([coarse, labels[:, None].astype(np.uint8), planes]).tobytes())

    if label_bytes == 1:
        write("data_batch_1.bin", IMAGES[:4], LABELS[:4])
        write("data_batch_2.bin", IMAGES[4:8], LABELS[4:8])
        write("test_batch.bin", IMAGES[8:], LABELS[8:])
    else:
        write("train.bin", IMAGES[:8], LABELS[:8])
        write("test.bin", IMAGES[8:], LABELS[8:])
    splits = load_splits(tmp_path)
    np.testing.assert_array_equal(splits.train.images, IMAGES[:8])
    np.testing.assert_array_equal(splits.train.labels, LABELS[:8])
    np.testing.assert_array_equal(splits.test.images, IMAGES[8:])
    file = next(tmp_path.glob("*test*.bin" if label_bytes == 1 else "test.bin"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"test.*bin: 12,29. bytes are not a whole number of records"):
        load_splits(tmp_path)


def test_data_that_is_not_there_or_not_whole_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no data at"):
        load_splits(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="no binary version of CIFAR-10"):
        load_splits(tmp_path)
    path = tmp_path / "bad.npz"
    for content in (b"", b"text", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.npz: not a whole NPZ file of plain arrays"):
            load_splits(path)
    np.savez(path, images=np.array([{}], dtype=object), labels=LABELS)
    with pytest.raises(ValueError, match="not a whole NPZ file of plain arrays"):
        load_splits(path)
    np.savez(path, pictures=IMAGES)
    with pytest.raises(ValueError, match="has no array 'images'; it has pictures"):
        load_splits(path)
    np.savez(path, images=IMAGES / 255.0, labels=LABELS)
    with pytest.raises(ValueError, match="images must be uint8 of shape"):
        load_splits(path)
    np.savez(path, images=IMAGES, labels=LABELS[:5])
    with pytest.raises(ValueError, match="labels must be 12 integers"):
        load_splits(path)
    np.savez(path, images=IMAGES, labels=LABELS - 1)
    with pytest.raises(ValueError, match="labels must be classes from 0 to 65,535; they run from -1 to 1"):
        load_splits(path)
    np.save(tmp_path / "array.npz.npy", IMAGES)
    (tmp_path / "array.npz.npy").rename(path)
    with pytest.raises(ValueError, match="not a whole NPZ file of plain arrays"):
        load_splits(path)


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


def reference(image: np.ndarray, family: str, level: int, noise: np.ndarray) -> np.ndarray:
    """One image at a time, from the definition of the family."""
    x = image / 255.0
    if family == "gaussian_noise":
        x = x + noise * _NOISE[level]
    elif family == "gaussian_blur":
        x = np.stack([gaussian_filter(x[..., c], _BLUR[level], mode="nearest") for c in range(3)], axis=-1)
    elif family == "contrast":
        means = np.array([x[..., c].mean() for c in range(3)])
        x = (x - means) * _CONTRAST[level] + means
    else:
        import colorsys

        out = np.empty_like(x)
        for position in np.ndindex(x.shape[:2]):
            h, s, v = colorsys.rgb_to_hsv(*x[position])
            out[position] = colorsys.hsv_to_rgb(h, s, min(1.0, v + _BRIGHTNESS[level]))
        x = out
    return np.clip(x, 0, 1) * 255


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("severity", [1, 5])
def test_a_corruption_is_its_definition_image_by_image(family, severity):
    found = corrupt(IMAGES[:3], family, severity, seed=4)
    assert found.dtype == np.uint8
    stream = (4 * len(FAMILIES) + list(FAMILIES).index(family)) * len(SEVERITIES) + severity
    noise = normals(stream, np.arange(3), IMAGES.shape[1:])
    for image, out, drawn in zip(IMAGES, found, noise, strict=False):
        assert np.abs(out - reference(image, family, severity - 1, drawn)).max() <= 1.0 + 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_a_subset_is_corrupted_as_the_whole(family):
    whole = corrupt(IMAGES, family, 3, seed=1)
    some = np.array([7, 2, 11])
    np.testing.assert_array_equal(corrupt(IMAGES[some], family, 3, seed=1, indices=some), whole[some])


@pytest.mark.parametrize("family", FAMILIES)
def test_images_move_further_with_severity(family):
    images = digits().test.images[:50].astype(float)
    moved = [np.abs(corrupt(images.astype(np.uint8), family, s, seed=0) - images).mean() for s in SEVERITIES]
    assert moved == sorted(moved)


def test_noise_of_different_severities_seeds_and_images_is_independent():
    grey = np.full((2, 32, 32, 3), 128, np.uint8)
    draws = [corrupt(grey, "gaussian_noise", s, seed=seed).astype(float) for s, seed in ((4, 0), (5, 0), (5, 1))]
    flat = np.array([image.ravel() for draw in draws for image in draw])
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 5 / np.sqrt(flat.shape[1])


def test_counter_based_numbers_are_uniform_and_normal():
    u = uniforms(3, np.arange(50), (2000,)).ravel()
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert 0 < u.min() < u.max() < 1
    z = normals(3, np.arange(50), (2000,)).ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.02


def test_bad_corruptions_are_refused():
    with pytest.raises(ValueError, match="`family` must be one of gaussian_noise"):
        corrupt(IMAGES, "fog of war", 1, seed=0)
    with pytest.raises(ValueError, match="`severity` must be 1 to 5; got 6"):
        corrupt(IMAGES, "contrast", 6, seed=0)
    with pytest.raises(ValueError, match="one number per image, 12"):
        corrupt(IMAGES, "contrast", 1, seed=0, indices=np.arange(3))


def test_black_pixels_become_grey_when_brightened():
    black = np.zeros((1, 2, 2, 3), np.uint8)
    assert corrupt(black, "brightness", 5, seed=0).tolist() == [[[[76] * 3] * 2] * 2]


def test_an_image_set_takes_rows():
    chosen = ImageSet("x", IMAGES, LABELS).take(np.array([3, 1]))
    assert len(chosen) == 2
    np.testing.assert_array_equal(chosen.labels, LABELS[[3, 1]])


def test_a_damaged_npz_is_one_error_or_whole(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, images=IMAGES[:2, :4, :4], labels=LABELS[:2])
    for data in damaged_copies(path.read_bytes(), 400):
        path.write_bytes(data)
        with suppress(ValueError):
            read_image_set(path)
