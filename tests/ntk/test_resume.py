"""Tiles on disk: interrupted, damaged, or of other inputs."""

from __future__ import annotations

import pickle
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ntk import KernelConfig, engine as engine_module, gram
from ntk.tiles import read_manifest
from projnorm.backends import Backend
from projnorm.errors import ChangedInputError
from projnorm.store import Store
from tests.ntk.networks import images, plain_network

CONFIG = KernelConfig(panel=4, batch=3, device="cpu", checks=2)


@pytest.fixture
def inputs():
    return plain_network().float(), images(10).float(), {"a": images(7, seed=1).float(), "b": images(5, seed=2).float()}


def blocks(kernels) -> list[np.ndarray]:
    return [kernels.train, *(b for name in kernels.targets for b in (kernels.ood_train(name), kernels.ood(name)))]


def tile_files(folder) -> list[Path]:
    return sorted(folder.glob("*/[0-9]*.npz"))


def interrupted_after(monkeypatch, tiles: int) -> None:
    """Fail while the tile after the first few is computed, as a killed process would."""
    right = engine_module.Engine.block
    count = iter(range(10**6))

    def block(*args):
        if next(count) == tiles:
            raise KeyboardInterrupt
        return right(*args)

    monkeypatch.setattr(engine_module.Engine, "block", block)


@pytest.mark.parametrize("tiles", [0, 1, 5, 11])
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(inputs, tmp_path, monkeypatch, tiles):
    model, train, targets = inputs
    undisturbed = gram(model, train, targets, config=CONFIG)
    with monkeypatch.context() as patch:
        interrupted_after(patch, tiles)
        with pytest.raises(KeyboardInterrupt):
            gram(model, train, targets, config=CONFIG, folder=tmp_path)
    resumed = gram(model, train, targets, config=CONFIG, folder=tmp_path)
    assert resumed.computed == len(resumed.plan.tiles) - tiles
    for found, expected in zip(blocks(resumed), blocks(undisturbed), strict=True):
        np.testing.assert_array_equal(found, expected)
    again = gram(model, train, targets, config=CONFIG, folder=tmp_path)
    assert again.computed == 0


def test_a_resumed_run_cuts_the_samples_as_before_whatever_is_asked(inputs, tmp_path):
    model, train, targets = inputs
    gram(model, train, targets, config=CONFIG, folder=tmp_path)
    other = KernelConfig(panel=100, batch=64, device="cpu", memory=9e9, checks=0)
    assert gram(model, train, targets, config=other, folder=tmp_path).computed == 0
    assert gram(model, train, targets, config=other, folder=tmp_path, fresh=True).plan.cut.panel == 10


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1] + b"0"), Path.unlink])
def test_a_damaged_tile_is_named_and_computed_again(inputs, tmp_path, damage, caplog):
    expected = blocks(gram(*inputs, config=CONFIG, folder=tmp_path))
    tile = tile_files(tmp_path)[3]
    damage(tile)
    again = gram(*inputs, config=CONFIG, folder=tmp_path)
    assert (again.computed, again.damaged) == (1, (tile.stem[:11],))
    assert tile.name in caplog.text
    for block, right in zip(blocks(again), expected, strict=True):
        np.testing.assert_array_equal(block, right)


def test_a_manifest_that_cannot_be_read_costs_no_tile(inputs, tmp_path, caplog):
    gram(*inputs, config=CONFIG, folder=tmp_path)
    whole = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_text("{")
    assert gram(*inputs, config=CONFIG, folder=tmp_path).computed == 0
    assert "manifest.json is damaged" in caplog.text
    assert (tmp_path / "manifest.json").read_bytes() == whole


def test_tiles_of_something_else_are_not_taken_for_these_where_the_manifest_is_lost(inputs, tmp_path):
    model, train, targets = inputs
    gram(model, train, targets, config=CONFIG, folder=tmp_path)
    before = set(tile_files(tmp_path))
    (tmp_path / "manifest.json").unlink()
    other = gram(model, train + 1e-3, targets, config=CONFIG, folder=tmp_path)
    assert other.computed == len(other.plan.tiles)
    assert before < set(tile_files(tmp_path))


def _other_weights(model, train, targets):
    with torch.no_grad():
        next(model.parameters()).add_(1e-3)
    return model, train, targets, CONFIG


CHANGES = {
    "network": _other_weights,
    "inputs of train": lambda model, train, targets: (model, train + 1e-3, targets, CONFIG),
    "inputs of b": lambda model, train, targets: (model, train, targets | {"b": targets["b"] * 2}, CONFIG),
    "sets": lambda model, train, targets: (model, train[:9], targets, CONFIG),
    "accumulate": lambda *inputs: (*inputs, replace(CONFIG, accumulate="float64")),
    "kind": lambda *inputs: (*inputs, replace(CONFIG, kind="projection", count=10)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_tiles_of_something_else_are_refused_and_left_alone(inputs, tmp_path, what):
    gram(*inputs, config=CONFIG, folder=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*z")}
    model, train, targets, config = CHANGES[what](*inputs)
    with pytest.raises(ChangedInputError, match=rf"different: .*{what}.*fresh=True"):
        gram(model, train, targets, config=config, folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*z")} == before
    assert gram(model, train, targets, config=config, folder=tmp_path, fresh=True).computed > 0


def test_the_drawn_coordinates_are_in_the_manifest(inputs, tmp_path):
    config = KernelConfig(kind="coordinates", count=20, seed=1, panel=4, device="cpu")
    gram(*inputs, config=config, folder=tmp_path)
    identity = read_manifest(tmp_path)
    assert len(identity["drawn"]) == len(identity["network"]) == len(identity["inputs of a"]) == 64
    assert identity["threads"] == torch.get_num_threads()


def test_a_tile_changed_while_it_is_in_use_is_named(inputs, tmp_path):
    kernels = gram(*inputs, config=CONFIG, folder=tmp_path)
    tile_files(tmp_path)[0].write_bytes(b"")
    with pytest.raises(ChangedInputError, match="changed while it was in use"):
        _ = kernels.train


def test_a_small_ceiling_gives_the_same_kernel_in_more_passes(inputs):
    model, train, targets = inputs
    plenty = gram(model, train, targets, config=KernelConfig(device="cpu", panel=3))
    assert plenty.plan.passes == plenty.plan.samples
    # Room for two panels and no more.
    need = plenty.plan.peak_bytes - (plenty.plan.room - 2) * 3 * plenty.plan.sample_bytes
    little = gram(model, train, targets, config=KernelConfig(device="cpu", panel=3, memory=need + 1))
    assert little.plan.room == 2
    assert little.plan.passes > little.plan.samples
    for found, expected in zip(blocks(little), blocks(plenty), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_resumed_run_uses_as_many_threads_as_before(inputs, tmp_path):
    before = torch.get_num_threads()
    gram(*inputs, config=CONFIG, folder=tmp_path)
    torch.set_num_threads(before + 1)
    try:
        again = gram(*inputs, config=CONFIG, folder=tmp_path)
        assert (again.computed, again.threads) == (0, before)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_starting_afresh_removes_tiles_and_nothing_else(inputs, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    old = tmp_path / ("0" * 12) / "00099-00000.json"
    old.parent.mkdir()
    old.write_bytes(b"an old tile")
    gram(*inputs, config=CONFIG, folder=tmp_path, fresh=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not old.exists()


def test_another_preparation_of_the_images_is_another_input(inputs, tmp_path):
    class Shift:
        def __init__(self, by: float) -> None:
            self.by = by

        def __repr__(self) -> str:
            return "Shift"

        def __call__(self, x):
            return x + self.by

    gram(*inputs, config=CONFIG, folder=tmp_path, prepare=Shift(0.0))
    with pytest.raises(ChangedInputError, match="different: prepare"):
        gram(*inputs, config=CONFIG, folder=tmp_path, prepare=Shift(1.0))


def test_a_finished_folder_is_only_read(inputs, tmp_path):
    gram(*inputs, config=CONFIG, folder=tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[jn]*")}
    gram(*inputs, config=CONFIG, folder=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[jn]*")} == before


def test_a_manifest_with_a_strange_cut_is_not_believed(inputs, tmp_path):
    gram(*inputs, config=CONFIG, folder=tmp_path)
    identity = dict(read_manifest(tmp_path))
    for cut in ({"panel": True, "batch": 1, "formed": 1}, {"panel": 0, "batch": 1, "formed": 0}, 7, {"panel": 2}):
        Store(tmp_path).put("manifest", facts=identity | {"cut": cut, "threads": -3})
        with pytest.raises(ChangedInputError, match="different: cut"):
            gram(*inputs, config=CONFIG, folder=tmp_path)


@pytest.mark.slow
def test_tiles_are_the_same_bits_in_one_process_and_in_two(inputs, tmp_path):
    alone = gram(*inputs, config=CONFIG, backend=Backend(1))
    for folder in (None, tmp_path):
        together = gram(*inputs, config=CONFIG, folder=folder, backend=Backend(2))
        assert together.computed == len(together.plan.tiles)
        for found, expected in zip(blocks(together), blocks(alone), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert gram(*inputs, config=CONFIG, folder=tmp_path, backend=Backend(1)).computed == 0


def test_a_task_puts_each_tile_into_its_file_when_it_is_done(inputs, tmp_path, monkeypatch):
    """A task has several tiles; those before the one that fails stay."""
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        patch.setattr(sys.modules["ntk.kernels"], "run_each", _in_this_process)
        with pytest.raises(KeyboardInterrupt):
            gram(*inputs, config=CONFIG, folder=tmp_path, backend=Backend(2))
    resumed = gram(*inputs, config=CONFIG, folder=tmp_path, backend=Backend(2))
    assert resumed.computed == len(resumed.plan.tiles) - 2


def test_a_task_carries_the_inputs_of_its_panels_and_no_more(monkeypatch):
    sent = []

    @contextmanager
    def weighed(function, items, **_):
        jobs = list(items)
        sent.extend([len(pickle.dumps(function)), *map(len, map(pickle.dumps, jobs))])
        yield ((number, function(job)) for number, job in enumerate(jobs))

    monkeypatch.setattr(sys.modules["ntk.kernels"], "run_each", weighed)
    train = images(400).float()
    gram(plain_network().float(), train, config=replace(CONFIG, panel=40, batch=40, checks=0), backend=Backend(2))
    assert max(sent[1:]) < 1.1 * train.nbytes
    assert sent[0] < 0.5 * train.nbytes


@contextmanager
def _in_this_process(function, items, **_):
    yield ((number, function(item)) for number, item in enumerate(items))
