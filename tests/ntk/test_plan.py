"""The plan: what it counts, and that it stays under the ceiling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.flop_counter import FlopCounterMode

from ntk.experiments.config import GramConfig, NtkImages, NtkNetwork
from ntk.experiments.experiment import KernelExperiment
from ntk.experiments.plan import plan_kernels
from ntk.features import engine
from ntk.features.engine import Engine
from ntk.features.feature_maps import LayerCost
from ntk.features.sizes import Sizes
from ntk.kernel_config import KernelConfig, KernelKind
from ntk.tiles.gram import gram, plan_tiles
from ntk.tiles.plan import BatchSizes, chunks, loads, make_plan
from ntk.tiles.sets import as_sets
from ntk.trace.inputs import Samples
from projnorm.core.errors import InputError
from projnorm.core.records import RunContext
from projnorm.models.networks import resnet18
from tests.ntk.networks import images, plain_network

SIZES = Sizes(sample=10_000_000, formed=1_000_000, capture=1_000_000, fixed=50_000_000)
LAYERS = (LayerCost("a", 7, "direct", 7, 7), LayerCost("b", 9, "structured", 4, 3))


@given(st.integers(1, 40), st.lists(st.integers(1, 40), max_size=2), st.integers(1, 50), st.floats(1.6e9, 20e9))
def test_tiles_cover_every_block_once_and_fit(n, targets, panel, memory):
    sets = {"train": n} | {f"t{i}": m for i, m in enumerate(targets)}
    plan = make_plan(sets, LAYERS, SIZES, panel=panel, batch=32, memory=memory)
    assert plan.peak_bytes <= memory
    assert plan.batch_sizes.panel <= panel
    covered = {}
    for i, j in plan.tiles:
        row, column = plan.panels[i], plan.panels[j]
        key = (row.set, column.set)
        mirrored = row.set == column.set and i != j
        covered[key] = covered.get(key, 0) + row.samples * column.samples * (2 if mirrored else 1)
        assert column.set in (row.set, "train")
    expected = {("train", "train"): n * n}
    for name, m in list(sets.items())[1:]:
        expected |= {(name, name): m * m, (name, "train"): m * n}
    assert covered == expected
    assert len(set(plan.tiles)) == len(plan.tiles)
    assert plan.samples <= plan.passes
    assert plan.tile_bytes == 8 * sum(plan.panels[i].samples * plan.panels[j].samples for i, j in plan.tiles)


@given(st.integers(1, 60), st.integers(1, 50))
def test_with_room_for_everything_no_sample_passes_twice(n, panel):
    plan = make_plan({"train": n, "t": n}, LAYERS, SIZES, panel=panel, batch=32, memory=1e12)
    assert plan.passes == plan.samples == 2 * n
    assert plan.panels_in_memory == len(plan.panels)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(2, 6))
def test_the_panel_dropped_is_the_one_needed_last(tiles, room):
    held: set[int] = set()
    filled = []
    for position, tile in enumerate(tiles):
        for panel in dict.fromkeys(tile):
            if panel not in held:
                if len(held) == room:  # the one needed again last, or never, is looked for among all tiles to come
                    coming = [number for tile in tiles[position:] for number in tile]
                    held.remove(max(sorted(held), key=lambda n: coming.index(n) if n in coming else math.inf))
                held.add(panel)
                filled.append(panel)
        assert set(tile) <= held
    assert list(loads(tiles, room)) == filled


DEEP = (LayerCost("a", 7, "direct", 7, 7, forward=70, forming=70), LayerCost("b", 9, "structured", 4, 3, forward=36))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 9), st.integers(1, 12), st.floats(1.6e9, 4e9))
def test_tasks_hold_every_tile_once_in_order_and_balance(n, m, panel, workers, memory):
    plan = make_plan({"train": n, "t": m}, DEEP, SIZES, panel=panel, batch=8, memory=memory)
    cut = chunks(plan, workers)
    assert tuple(tile for task in cut for tile in task) == plan.tiles
    assert all(cut)
    costs = [plan.tile_multiply_adds(tile) for tile in plan.tiles]
    share, largest = sum(costs) / workers, max(costs)
    if workers > 1:
        assert len(cut) <= 8 * workers + 1
        for task in cut:
            assert sum(map(plan.tile_multiply_adds, task)) <= share / 2 + largest
        busy = [0] * workers  # tasks are handed out in order, each to the worker that is free first
        for task in cut:
            busy[busy.index(min(busy))] += sum(map(plan.tile_multiply_adds, task))
        assert max(busy) <= 1.5 * share + largest
    else:
        assert cut == (plan.tiles,)
    assert plan.passes <= passes(plan, workers)


def passes(plan, workers):
    """Number of samples that pass the network where each task begins with no panel filled."""
    return sum(plan.samples_in(loads(task, plan.panels_in_memory)) for task in chunks(plan, workers))


def test_where_there_are_tiles_enough_filling_again_costs_a_few_percent():
    layers = (LayerCost("a", 1000, "direct", 1000, 1000, forward=20_000, forming=20_000),)
    plan = make_plan({"train": 4_000}, layers, SIZES, panel=40, batch=8, memory=8e9)
    products = sum(map(plan.tile_multiply_adds, plan.tiles))
    once, several = (products + passes(plan, workers) * plan.fill_multiply_adds for workers in (1, 4))
    assert 8 <= len(chunks(plan, 4)) <= 33
    assert once < several < 1.04 * once


def test_tiles_held_until_they_are_sent_stay_below_an_eighth_of_the_ceiling():
    plan = make_plan({"train": 30_000}, LAYERS, Sizes(10, 0, 10, 10), panel=1_000, batch=8, memory=1.6e9)
    for task in chunks(plan, 2):
        assert sum(map(plan.bytes_of, task)) <= 1.6e9 / 8 + 8e6


def test_a_worker_plan_by_hand():
    """Two panels of 2 samples: tiles of 2*1, 4 and 2*1 pairs of 11; a sample is filled with 2*(70+36) + 70."""
    plan = make_plan({"train": 4}, DEEP, SIZES, panel=2, batch=8, memory=4e9)
    assert plan.fill_multiply_adds == 282
    assert [plan.tile_multiply_adds(tile) for tile in plan.tiles] == [22, 44, 22]
    assert (len(chunks(plan, 1)), passes(plan, 1)) == (1, 4)
    assert (len(chunks(plan, 3)), passes(plan, 3)) == (3, 2 + 4 + 2)


def test_gradients_that_are_not_kept_are_formed_for_every_tile():
    """Of 6 rows by 6 columns, 4 at once: rows once, columns for both halves; on the diagonal the second half's once."""
    layers = (LayerCost("a", 5, "direct", 5, 3, formed=5, forward=50, forming=50),)
    plan = make_plan({"train": 12}, layers, SIZES, panel=6, batch=8, memory=4e9, batch_sizes=BatchSizes(6, 8, 4))
    assert plan.fill_multiply_adds == 100
    diagonal, between = 18 * 5 + (6 + 2) * 50, 36 * 5 + (6 + 12) * 50
    assert [plan.tile_multiply_adds(tile) for tile in plan.tiles] == [diagonal, between, diagonal]
    with pytest.raises(InputError, match="`workers` must be at least 1; got 0"):
        chunks(plan, 0)


@pytest.mark.parametrize(
    "options", [{}, {"layers": ("fc",)}, *({"kind": kind, "count": 100} for kind in ("coordinates", "projection"))]
)
def test_forward_passes_are_counted_as_torch_counts_them(options):
    model, x = resnet18(1).eval(), torch.zeros(1, 3, 64, 64)
    with FlopCounterMode(display=False) as counter:
        model(x)
    engine = Engine(model, Samples.from_inputs(x, "x"), KernelConfig(device="cpu", **options))
    assert 2 * sum(layer.forward for layer in engine.costs) == counter.get_total_flops()
    if "kind" not in options:
        assert sum(layer.parameters for layer in engine.costs) == engine.parameters


SOME_LAYERS = NtkNetwork(heads=2, layers=("layer4", "fc"))


@pytest.mark.parametrize("change", [{}, {"network": SOME_LAYERS}, {"kernel": KernelKind("coordinates", 500)}])
def test_the_plan_of_a_dry_run_is_that_of_the_run(tmp_path, change):
    few = tmp_path / "few.npz"
    np.savez(few, images=np.zeros((5, 32, 32, 3), np.uint8), labels=np.arange(5) % 2)
    images = NtkImages(n=9, m=7, families=("contrast",), severities=(1, 5), targets=(str(few),))
    config, context = GramConfig(images, **change), RunContext(tmp_path, device="cpu", memory=1.2e9)
    plan = KernelExperiment.from_config(config).task(context).plan
    planned = plan_kernels(config, context)
    assert list(plan.sets.values()) == [9, 7, 7, 7, 5]
    assert planned.values["sets"] == dict(plan.sets)
    for name in ("pairs", "multiply_adds", "fill_multiply_adds", "passes", "sample_bytes", "peak_bytes"):
        assert planned.values[name] == getattr(plan, name)
    assert [row["multiply-adds a pair"] for row in planned.parts[:-1]] == [layer.multiply_adds for layer in plan.layers]


def test_a_plan_needs_neither_that_number_of_images_nor_the_weights(tmp_path):
    config = GramConfig(NtkImages(n=50_000, m=10_000), NtkNetwork(weights="nowhere.pth"))
    rows = dict(plan_kernels(config, RunContext(tmp_path, memory=16e9)).rows)
    assert rows["samples"] == "260,000"
    assert not list(tmp_path.iterdir())


def test_batch_sizes_that_are_given_are_kept_or_refused():
    few = BatchSizes(panel=8, batch=4, formed=2)
    plan = make_plan({"train": 20}, LAYERS, SIZES, panel=100, batch=9, memory=2e9, batch_sizes=few)
    assert plan.batch_sizes == few
    wide = BatchSizes(panel=100, batch=4, formed=2)
    with pytest.raises(InputError, match=r"too small; 3\.01 GB is needed"):
        make_plan({"train": 200}, LAYERS, SIZES, panel=100, batch=9, memory=1.5e9, batch_sizes=wide)


def test_the_routes_of_resnet18_at_32_px():
    model, x = resnet18(1).eval(), torch.zeros(3, 3, 32, 32)
    sets = as_sets(x, None)
    plan = plan_tiles(Engine(model, Samples.from_inputs(x, "x"), KernelConfig(device="cpu")), sets)
    structured = {layer.name.split(".")[0] for layer in plan.layers if layer.route == "structured"}
    assert structured == {"layer3", "layer4"}
    assert sum(layer.parameters for layer in plan.layers) == 11_177_025
    per_pair = sum(layer.multiply_adds for layer in plan.layers)
    assert per_pair < 850_000  # what the textbook rule for the structured route costs
    everything = plan_tiles(
        Engine(model, Samples.from_inputs(x, "x"), KernelConfig(device="cpu", route="direct")), sets
    )
    assert sum(layer.multiply_adds for layer in everything.layers) == 11_177_025
    # What is kept per sample is never more than the gradients, nor than inputs and output gradients.
    assert plan.sample_bytes < 0.5e6


def test_large_images_are_all_direct_and_keep_less_than_their_gradients():
    model, x = resnet18(1).eval(), torch.zeros(1, 3, 224, 224)
    engine = Engine(model, Samples.from_inputs(x, "x"), KernelConfig(device="cpu"))
    convolutions = [layer for layer in engine.costs if "conv" in layer.name]
    assert {layer.route for layer in convolutions} == {"direct"}
    assert engine.sizes.sample < 4 * 11_177_025 / 5


def test_batches_are_small_where_tensors_are_large_and_the_kernel_is_the_same(monkeypatch):
    model, x = plain_network(), images(9)
    expected = gram(model, x, config=KernelConfig(device="cpu")).train
    largest = max(t.nbytes // 3 for one in Engine(model, Samples.from_inputs(x, "x"))._captured for t in one.tensors)
    for reused, batch in ((1, 1), (4 * largest, 4), (10**12, 64)):
        monkeypatch.setattr(engine, "_LARGEST_REUSED", reused)
        kernels = gram(model, x, config=KernelConfig(device="cpu"))
        assert kernels.plan.batch_sizes.batch == min(batch, 9)
        np.testing.assert_allclose(kernels.train, expected, rtol=1e-10)
