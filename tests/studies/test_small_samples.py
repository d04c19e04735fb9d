"""Every method on few samples: the scores, what they say of each method, and the command."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.studies.method_quality import STACK, SizeQuality, difference, predictions, size_quality, smallest_size
from benchmarks.studies.small_samples import SmallSamplesConfig, main, run_small_samples
from projnorm.core.errors import InputError
from projnorm.core.statistics import Interval
from tests.commands import assert_refused, run_cli, run_process


@pytest.fixture(scope="module")
def drawn(finished, tmp_path_factory):
    context, record = finished
    copied = replace(context, root=tmp_path_factory.mktemp("small") / "runs")
    shutil.copytree(context.root, copied.root)
    config = SmallSamplesConfig(record.id, (20, 60), 2, projnorm_size=20, projnorm_steps=2)
    return copied, config, run_small_samples(config, copied)


def test_scores_are_of_every_method_target_size_and_draw(drawn, finished):
    _, config, record = drawn
    arrays = record.arrays
    assert arrays["scores"].shape == (5, 2, 2, len(arrays["methods"]))
    assert arrays["sizes"].tolist() == [20, 60]
    np.testing.assert_array_equal(arrays["errors"], finished[1].arrays["errors"])
    projnorm = arrays["methods"].tolist().index("ProjNorm")
    assert np.isfinite(arrays["scores"][:, 0, :, projnorm]).all()
    assert np.isnan(arrays["scores"][:, 1, :, projnorm]).all()
    # All of sixty samples is all of them in every draw; twenty are others.
    whole, few = arrays["scores"][:, 1], arrays["scores"][:, 0]
    np.testing.assert_array_equal(whole[:, 0], whole[:, 1])
    assert not np.array_equal(few[:, 0], few[:, 1], equal_nan=True)
    assert config.draws == 2


def test_on_the_whole_target_scores_are_those_of_the_run(drawn, finished):
    arrays, run = drawn[2].arrays, finished[1].arrays
    for method, there in (("ATC", "ATC"), ("Entropy", "Entropy"), ("GDE", "AgreeScore")):
        mine = arrays["scores"][:, 1, 0, arrays["methods"].tolist().index(method)]
        np.testing.assert_allclose(mine, run["scores"][:, run["methods"].tolist().index(there)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": (61,)}, "`sizes` must be at most 60"),
        ({"projnorm_size": 7}, "`projnorm_size` must be one of"),
    ],
)
def test_what_the_run_cannot_give_is_refused(finished, options, message):
    context, record = finished
    with pytest.raises(InputError, match=message):
        run_small_samples(SmallSamplesConfig(record.id, **options), context)


def test_the_command_finds_the_run_shows_every_method_and_its_record_says_what_made_it(drawn):
    context, config, record = drawn
    out = ("--out", str(context.root.parent))
    sizes = ",".join(map(str, config.sizes))
    options = ("--sizes", sizes, "--draws", "2", "--projnorm-size", "20", "--projnorm-steps", "2")
    shown = run_cli(config.run[:9], *options, "--json", *out, program=main)
    assert shown.code == 0, shown.err
    document = json.loads(shown.out)
    assert (document["id"], document["created"]) == (record.id, record.created), "the record is found again"
    assert {"COT", "ProjNorm"} <= set(document["methods"])
    assert {Path(path).suffix for path in document["figures"]} == {".pdf", ".png", ".svg"}
    module = "python -m benchmarks.studies.small_samples"
    assert_refused(run_cli("runs", "verify", "deep-small", *out), f"was made by `{module}`")
    assert run_cli("--help", program=main).out.startswith(f"usage: {module} [-h]")


@pytest.mark.slow
def test_the_module_runs_and_its_numbers_do_not_depend_on_the_workers(finished, tmp_path):
    context, record = finished
    folders = [tmp_path / name for name in ("one", "two")]
    for workers, folder in enumerate(folders, start=1):
        shutil.copytree(context.root, folder / "runs")
        options = ("--sizes", "10,20", "--draws", "2", "--projnorm-size", "10", "--projnorm-steps", "2")
        more = ("--workers", str(workers), "--out", str(folder))
        result = run_process(record.id, *options, *more, module="benchmarks.studies.small_samples")
        assert result.code == 0, result.err
    one, two = (next(folder.glob("runs/deep-small-samples-*/record-*.npz")).read_bytes() for folder in folders)
    assert one == two


def made(noise: dict[str, float], *, families: int = 12, draws: int = 6) -> dict[str, np.ndarray]:
    """Arrays of a record whose methods miss the error by noise of a known size."""
    rng = np.random.default_rng(0)
    errors = rng.uniform(0.1, 0.7, 3 * families)
    scores = np.stack([errors[:, None] + s * rng.standard_normal((len(errors), draws)) for s in noise.values()], axis=2)
    turned = np.array([-1.0 if method == "MI" else 1.0 for method in noise])
    return {
        "errors": errors,
        "families": np.repeat([f"f{i}" for i in range(families)], 3),
        "sizes": np.array([100]),
        "methods": np.array(list(noise)),
        "scores": (scores * turned)[:, None],
    }


def test_the_default_beats_its_parts_where_their_noise_is_independent():
    arrays = made({"COT": 0.05, "COTT": 0.05, "MI": 0.05, "FeatureShift": 0.05, "ATC": 0.2})
    by_method = predictions(arrays, 100)
    quality = {method: size_quality(predicted, arrays) for method, predicted in by_method.items()}
    assert quality[STACK].mae.value < quality["COT"].mae.value < quality["ATC"].mae.value
    assert quality[STACK].mae.low <= quality[STACK].mae.value <= quality[STACK].mae.high
    assert quality["COT"].coverage.value == pytest.approx(0.9, abs=0.1)
    won = difference(by_method[STACK], by_method["ATC"], arrays)
    assert won.mae.high < 0.0 < won.r_squared.low
    same = difference(by_method["COT"], by_method["COT"], arrays)
    assert (same.mae.value, same.mae.low, same.mae.high) == (0.0, 0.0, 0.0)


def test_a_method_that_is_not_defined_everywhere_is_left_out():
    arrays = made({"COT": 0.05, "IM": 0.05})
    arrays["scores"][0, 0, 0, 1] = np.nan
    assert set(predictions(arrays, 100)) == {"COT"}


def test_the_fewest_samples_are_those_from_which_on_it_works():
    def at(size, r_squared):
        value = Interval(r_squared, 0.0, 1.0)
        return SizeQuality("x", size, value, value, value, 0.1)

    assert smallest_size([at(50, 0.95), at(100, 0.8), at(200, 0.91), at(500, 0.95)]) == 200
    assert smallest_size([at(50, 0.95), at(100, 0.8)]) == 0
