"""Tiles on disk: interrupted, damaged, or of other inputs."""

from __future__ import annotations

import pickle
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ntk.features import engine as engine_module
from ntk.kernel_config import KernelConfig
from ntk.tiles.gram import gram
from ntk.tiles.panels import PanelFiles
from ntk.tiles.tiles import read_manifest
from projnorm.core.backends import Backend
from projnorm.core.device import torch_threads
from projnorm.core.errors import ChangedInputError
from projnorm.core.store import Store
from tests.ntk.networks import images, plain_network

CONFIG = KernelConfig(panel=4, batch=3, device="cpu")


@pytest.fixture
def inputs():
    return plain_network().float(), images(10).float(), {"a": images(7, seed=1).float(), "b": images(5, seed=2).float()}


@pytest.fixture
def compute(inputs, tmp_path):
    """Computes the kernels of the inputs, with their tiles in the folder of the test."""
    return partial(gram, *inputs, config=CONFIG, folder=tmp_path)


def assert_same(one, other) -> None:
    np.testing.assert_array_equal(one.train, other.train)
    for name in other.targets:
        np.testing.assert_array_equal(one.ood_train(name), other.ood_train(name))
        np.testing.assert_array_equal(one.ood(name), other.ood(name))


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
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(compute, tmp_path, monkeypatch, tiles):
    with monkeypatch.context() as patch:
        interrupted_after(patch, tiles)
        with pytest.raises(KeyboardInterrupt):
            compute()
    resumed = compute()
    assert resumed.computed == len(resumed.plan.tiles) - tiles
    assert_same(resumed, compute(folder=None))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[jn]*")}
    assert compute().computed == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.[jn]*")} == before, "it is only read"


def test_a_resumed_run_cuts_the_samples_as_before_whatever_is_asked(compute):
    compute()
    other = KernelConfig(panel=100, batch=64, device="cpu", memory=9e9, self_check=False)
    assert compute(config=other).computed == 0
    assert compute(config=other, fresh=True).plan.batch_sizes.panel == 10


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-1] + b"0"), Path.unlink])
def test_a_damaged_tile_is_named_and_computed_again(compute, tmp_path, damage, caplog):
    compute()
    tile = tile_files(tmp_path)[3]
    damage(tile)
    again = compute()
    assert (again.computed, again.damaged) == (1, (tile.stem[:11],))
    assert tile.name in caplog.text
    assert_same(again, compute(folder=None))


def test_a_manifest_that_cannot_be_read_costs_no_tile(compute, tmp_path, caplog):
    compute()
    whole = (tmp_path / "manifest.json").read_bytes()
    (tmp_path / "manifest.json").write_text("{")
    assert compute().computed == 0
    assert "manifest.json is damaged" in caplog.text
    assert (tmp_path / "manifest.json").read_bytes() == whole


def test_tiles_of_something_else_are_not_taken_for_these_where_the_manifest_is_lost(compute, inputs, tmp_path):
    compute()
    before = set(tile_files(tmp_path))
    (tmp_path / "manifest.json").unlink()
    model, train, targets = inputs
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
def test_tiles_of_something_else_are_refused_and_left_alone(compute, inputs, tmp_path, what):
    compute()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*z")}
    model, train, targets, config = CHANGES[what](*inputs)
    with pytest.raises(ChangedInputError, match=rf"different: .*{what}.*fresh=True"):
        gram(model, train, targets, config=config, folder=tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*z")} == before
    assert gram(model, train, targets, config=config, folder=tmp_path, fresh=True).computed > 0


def test_the_drawn_coordinates_are_in_the_manifest(compute, tmp_path):
    compute(config=KernelConfig(kind="coordinates", count=20, seed=1, panel=4, device="cpu"))
    identity = read_manifest(tmp_path)
    assert len(identity["drawn"]) == len(identity["network"]) == len(identity["inputs of a"]) == 64
    assert identity["threads"] == torch.get_num_threads()


def test_a_tile_changed_while_it_is_in_use_is_named(compute, tmp_path):
    kernels = compute()
    tile_files(tmp_path)[0].write_bytes(b"")
    with pytest.raises(ChangedInputError, match="changed while it was in use"):
        _ = kernels.train


@pytest.mark.parametrize("disk", ["never", "always"])
def test_a_small_ceiling_gives_the_same_kernel_in_more_passes_or_from_disk(inputs, tmp_path, disk):
    config = KernelConfig(device="cpu", panel=3, disk=disk)
    plenty = gram(*inputs, config=config)
    assert plenty.plan.passes == plenty.plan.samples
    # Room for two panels and no more.
    need = plenty.plan.peak_bytes - (plenty.plan.panels_in_memory - 2) * 3 * plenty.plan.sample_bytes
    little = gram(*inputs, config=replace(config, memory=need + 1), folder=tmp_path)
    assert (little.plan.panels_in_memory, little.plan.overflow) == (2, "disk" if disk == "always" else "recomputed")
    assert (little.plan.passes == little.plan.samples) == (disk == "always")
    assert_same(little, plenty)
    assert not list(tmp_path.rglob("*.panel")), "deleted when used up"
    in_processes = gram(*inputs, config=replace(config, memory=need + 1), backend=Backend(workers=2))
    np.testing.assert_allclose(in_processes.ood("b"), plenty.ood("b"), rtol=1e-5)


def on_disk(inputs) -> KernelConfig:
    """A configuration with room for two panels, the others on disk."""
    config = KernelConfig(device="cpu", panel=3, disk="always")
    plan = gram(*inputs, config=config).plan
    return replace(config, memory=plan.peak_bytes - (plan.panels_in_memory - 2) * 3 * plan.sample_bytes + 1)


def test_every_sample_passes_the_network_once_and_the_disk_holds_one_target_at_a_time(inputs, tmp_path, monkeypatch):
    config, seen, held = on_disk(inputs), [], []
    right, put = engine_module.Engine.fill, PanelFiles.put

    def fill(self, panel, x, *, batch):
        seen.append(len(x))
        return right(self, panel, x, batch=batch)

    def kept(self, panel, filled):
        put(self, panel, filled)
        held.append(sum(path.stat().st_size for path in self.folder.glob("*.panel")))

    monkeypatch.setattr(engine_module.Engine, "fill", fill)
    monkeypatch.setattr(PanelFiles, "put", kept)
    kernels = gram(*inputs, config=replace(config, self_check=False), folder=tmp_path)
    assert sum(seen) == kernels.plan.samples == 22
    assert max(held) == kernels.plan.disk_bytes() == (10 + 7) * kernels.plan.sample_bytes


def test_panels_of_an_interrupted_run_are_used_and_damaged_ones_computed_again(inputs, tmp_path, monkeypatch):
    config = on_disk(inputs)
    with monkeypatch.context() as patch:
        interrupted_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            gram(*inputs, config=config, folder=tmp_path)
    panels = sorted(tmp_path.rglob("*.panel"))
    assert len(panels) == 4
    panels[0].write_bytes(panels[0].read_bytes()[:-1] + b"0")
    panels[1].write_bytes(panels[1].read_bytes()[:-1])
    assert_same(gram(*inputs, config=config, folder=tmp_path), gram(*inputs, config=replace(config, memory=4e9)))


def test_a_full_disk_loses_nothing(inputs, tmp_path, monkeypatch):
    config, right, count = on_disk(inputs), PanelFiles.put, iter(range(100))

    def full(self, panel, filled):
        if next(count) == 5:
            raise OSError(28, "No space left on device")
        right(self, panel, filled)

    with monkeypatch.context() as patch:
        patch.setattr(PanelFiles, "put", full)
        with pytest.raises(OSError, match="No space left"):
            gram(*inputs, config=config, folder=tmp_path)
    again = gram(*inputs, config=config, folder=tmp_path)
    assert 0 < again.computed < len(again.plan.tiles)
    assert_same(again, gram(*inputs, config=replace(config, memory=4e9)))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    assert gram(*inputs, config=config).plan.overflow == "recomputed", "there is no room"


def test_a_resumed_run_uses_as_many_threads_as_before(compute):
    before = torch.get_num_threads()
    compute()
    with torch_threads(before + 1):
        again = compute()
        assert (again.computed, again.threads) == (0, before)
        assert torch.get_num_threads() == before + 1


def test_starting_afresh_removes_tiles_and_nothing_else(compute, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    old = tmp_path / ("0" * 12) / "00099-00000.json"
    old.parent.mkdir()
    old.write_bytes(b"an old tile")
    compute(fresh=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not old.exists()


def test_another_preparation_of_the_images_is_another_input(compute):
    """Two preparations that are printed alike."""
    compute(prepare=nn.PReLU(init=0.1).requires_grad_(False))
    with pytest.raises(ChangedInputError, match="different: prepare"):
        compute(prepare=nn.PReLU(init=0.2).requires_grad_(False))


def test_a_manifest_with_a_strange_cut_is_not_believed(compute, tmp_path):
    compute()
    identity = dict(read_manifest(tmp_path))
    for sizes in ({"panel": True, "batch": 1, "formed": 1}, {"panel": 0, "batch": 1, "formed": 0}, 7, {"panel": 2}):
        Store(tmp_path).put("manifest", facts=identity | {"batch_sizes": sizes, "threads": -3})
        with pytest.raises(ChangedInputError, match="different: batch_sizes"):
            compute()


@pytest.mark.slow
def test_tiles_are_the_same_bits_in_one_process_and_in_two(compute, tmp_path):
    alone = compute(folder=None, backend=Backend(1))
    for folder in (None, tmp_path):
        together = compute(folder=folder, backend=Backend(2))
        assert together.computed == len(together.plan.tiles)
        assert_same(together, alone)
    assert compute(backend=Backend(1)).computed == 0


@pytest.fixture
def sent(monkeypatch) -> list[int]:
    """Tasks run in this process; returns the sizes of what would be sent, first of the function."""
    sizes = []

    @contextmanager
    def weighed(function, items, **_):
        jobs = list(items)
        sizes.extend([len(pickle.dumps(function)), *map(len, map(pickle.dumps, jobs))])
        yield ((number, function(job)) for number, job in enumerate(jobs))

    monkeypatch.setattr(sys.modules["ntk.tiles.tile_runs"], "run_each", weighed)
    return sizes


@pytest.mark.usefixtures("sent")
def test_a_task_puts_each_tile_into_its_file_when_it_is_done(compute, monkeypatch):
    """A task has several tiles; those before the one that fails stay."""
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            compute(backend=Backend(2))
    resumed = compute(backend=Backend(2))
    assert resumed.computed == len(resumed.plan.tiles) - 2


def test_a_task_carries_the_inputs_of_its_panels_and_no_more(sent):
    train = images(400).float()
    gram(
        plain_network().float(), train, config=replace(CONFIG, panel=40, batch=40, self_check=False), backend=Backend(2)
    )
    assert max(sent[1:]) < 1.1 * train.nbytes
    assert sent[0] < 0.5 * train.nbytes
