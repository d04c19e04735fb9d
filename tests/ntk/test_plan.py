"""The plan: what it counts, and that it stays under the ceiling."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntk import KernelConfig
from ntk.engine import Engine
from ntk.gram import as_sets, plan_kernels
from ntk.kinds import LayerCost
from ntk.plan import Cut, Sizes, loads, make_plan, to_drop
from projnorm.vision import resnet18

SIZES = Sizes(sample=10_000_000, formed=1_000_000, capture=1_000_000, fixed=50_000_000)
LAYERS = (LayerCost("a", 7, "direct", 7, 7), LayerCost("b", 9, "structured", 4, 3))


@given(st.integers(1, 40), st.lists(st.integers(1, 40), max_size=2), st.integers(1, 50), st.floats(1.6e9, 20e9))
def test_tiles_cover_every_block_once_and_fit(n, targets, panel, memory):
    sets = {"train": n} | {f"t{i}": m for i, m in enumerate(targets)}
    plan = make_plan(sets, LAYERS, SIZES, panel=panel, batch=32, memory=memory)
    assert plan.peak_bytes <= memory
    assert plan.cut.panel <= panel
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
    assert plan.room == len(plan.panels)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.integers(2, 6))
def test_the_panel_dropped_is_the_one_needed_last(tiles, room):
    kept: set[int] = set()
    filled = list(loads(tiles, room))
    for panel in filled:
        assert 0 <= panel <= 5
    assert len(filled) >= len({panel for tile in tiles for panel in tile})
    for tile in tiles:
        kept |= set(tile)
    if kept:
        dropped = to_drop(kept, tiles)
        first_use = {p: next((i for i, t in enumerate(tiles) if p in t), math.inf) for p in kept}
        assert first_use[dropped] == max(first_use.values())


def test_a_cut_that_is_given_is_kept_or_refused():
    cut = Cut(panel=8, batch=4, formed=2)
    assert make_plan({"train": 20}, LAYERS, SIZES, panel=100, batch=9, memory=2e9, cut=cut).cut == cut
    wide = Cut(panel=100, batch=4, formed=2)
    with pytest.raises(ValueError, match=r"too small; 3\.01 GB is needed"):
        make_plan({"train": 200}, LAYERS, SIZES, panel=100, batch=9, memory=1.5e9, cut=wide)


def test_the_routes_of_resnet18_at_32_px():
    model, x = resnet18(1).eval(), torch.zeros(3, 3, 32, 32)
    sets = as_sets(x, None)
    plan = plan_kernels(Engine(model, x, KernelConfig(device="cpu")), sets)
    structured = {layer.name.split(".")[0] for layer in plan.layers if layer.route == "structured"}
    assert structured == {"layer3", "layer4"}
    assert sum(layer.parameters for layer in plan.layers) == 11_177_025
    per_pair = sum(layer.multiply_adds for layer in plan.layers)
    assert per_pair < 850_000  # what the textbook rule for the structured route costs
    everything = plan_kernels(Engine(model, x, KernelConfig(device="cpu", route="direct")), sets)
    assert sum(layer.multiply_adds for layer in everything.layers) == 11_177_025
    # What is kept per sample is never more than the gradients, nor than inputs and output gradients.
    assert plan.sample_bytes < 0.5e6


def test_large_images_are_all_direct_and_keep_less_than_their_gradients():
    model, x = resnet18(1).eval(), torch.zeros(1, 3, 224, 224)
    engine = Engine(model, x, KernelConfig(device="cpu"))
    convolutions = [layer for layer in engine.costs if "conv" in layer.name]
    assert {layer.route for layer in convolutions} == {"direct"}
    assert engine.sample_bytes < 4 * 11_177_025 / 5
