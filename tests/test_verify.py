"""`projnorm runs verify`: a record made again and compared, and what cannot be."""

from __future__ import annotations

import ast
import json
import math
import shutil
from dataclasses import asdict, replace

import numpy as np
import pytest

from ntk.subsample import SubsampleConfig
from projnorm.recompute import KINDS, Bench, recompute
from projnorm.runs import load, new_record, record_id, save
from projnorm.runs.configuration import configuration
from projnorm.verification import (
    DIFFERENT,
    IDENTICAL,
    LAST_PLACES,
    ROUNDING,
    changed_inputs,
    compare,
    differences,
    verdict,
)
from simulations import (
    CounterexampleConfig,
    SpectraConfig,
    TailAngleConfig,
    ToyConfig,
    run_counterexample,
    run_spectra_example,
    run_tail_angle,
    run_toy,
)
from tests.test_cli import SMALL_BOUND, SMALL_TOY, assert_one_line_error, projnorm
from tests.test_layering import MODULES

SMALL = ToyConfig(d1=12, d2=6, n=6, m=6, sigmas=(0.0, 2.0), trials=2, interval_trials=1)
# Calls whose kind is an argument of the function around them.
PASSED_ON = {
    ("projnorm.runs.tasks", "kind"),
    ("deep.experiments.stress", "kind"),
    ("deep.experiments.comparison", "kind"),
}


def record_of(**arrays):
    given = {name: np.asarray(array) for name, array in arrays.items()}
    return new_record("toy", {}, given, dict.fromkeys(given, "a number"), 0.0)


def compared(old, new):
    (found,) = compare(record_of(x=old), record_of(x=new))
    return found


def test_equal_arrays_are_identical_nan_included():
    found = compared([1.0, np.nan, np.inf], [1.0, np.nan, np.inf])
    assert found.identical
    assert (found.differing, found.absolute, found.relative) == (0, 0.0, 0.0)
    assert verdict([found], rtol=0.0) == IDENTICAL


def test_a_difference_is_measured_absolutely_and_against_its_own_entry():
    found = compared([1000.0, 1.0], [1000.0, 1.001])
    assert not found.identical
    assert found.differing == 1
    assert found.absolute == pytest.approx(1e-3)
    assert found.relative == pytest.approx(1e-3 / 1.001)
    assert verdict([found], rtol=1e-6) == DIFFERENT
    assert verdict([found], rtol=1e-2) == ROUNDING


@pytest.mark.parametrize(("places", "expected"), [(LAST_PLACES / 2, ROUNDING), (LAST_PLACES * 2, DIFFERENT)])
def test_last_places_of_the_largest_entry_are_rounding_in_a_small_one(places, expected):
    found = compared([1.0, 0.0], [1.0, places * np.finfo(float).eps])
    assert found.absolute > 0.0
    assert verdict([found], rtol=1e-6) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1.0, 2.0], [1.0, np.nan]),
        ([np.inf], [-np.inf]),
        ([1.0, 2.0], [[1.0, 2.0]]),
        (np.array([1.0]), np.array([1.0], np.float32)),
        ([10**9], [10**9 + 1]),
        ([True], [False]),
        (["a", "b"], ["a", "c"]),
    ],
    ids=["nan", "sign of inf", "shape", "type", "whole numbers", "truth", "text"],
)
def test_what_is_no_rounding_differs_at_any_tolerance(old, new):
    found = compared(old, new)
    assert found.relative == math.inf
    assert verdict([found], rtol=1e6) == DIFFERENT


def test_signs_of_zero_are_rounding():
    assert verdict([compared([0.0], [-0.0])], rtol=0.0) == ROUNDING


def test_an_array_that_only_one_record_has_differs():
    for pair in ((record_of(x=1.0), record_of(x=1.0, y=2.0)), (record_of(x=1.0, y=2.0), record_of(x=1.0))):
        found = compare(*pair)
        assert [array.name for array in found] == ["x", "y"]
        assert None in found[1].shapes
        assert verdict(found, rtol=1.0) == DIFFERENT


def test_versions_that_differ_are_named_and_those_of_one_record_only_are_not():
    old = record_of(x=1.0)
    libraries = {"numpy": "1.0", "abacus": "3"}
    old = replace(old, environment={**old.environment, "libraries": libraries}, facts={"inputs": {"device": "cuda"}})
    new = replace(record_of(x=1.0), facts={"inputs": {"device": "cpu"}})
    assert [str(found) for found in differences(old, new)] == [
        f"numpy 1.0 (here {np.__version__})",
        "device cuda (here cpu)",
    ]


def test_changed_inputs_are_named_and_networks_trained_here_are_none():
    old = {
        "inputs": {"data_sha256": "a", "weights_sha256": "b"},
        "fingerprints": {"network": "c", "inputs of fog": "d"},
    }
    new = {
        "inputs": {"data_sha256": "A", "weights_sha256": "b"},
        "fingerprints": {"network": "C", "inputs of fog": "D"},
    }
    assert changed_inputs(old, old) == ()
    assert changed_inputs(old, new) == ("data", "inputs of fog")


@pytest.mark.parametrize("config", [SMALL, SubsampleConfig(counts=(3, 5))], ids=lambda config: type(config).__name__)
def test_a_configuration_comes_back_from_json(config):
    assert configuration(type(config), json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"nonsense": 1}, "a ToyConfig has no nonsense"),
        ({"n": "many"}, "`n` must be of type int; got a str"),
        ({"d1": 1.5}, "`d1` must be of type int; got a float"),
        ({"n": True}, "`n` must be of type int; got a bool"),
        ({"seed": 10**400}, "`seed` is too large a number"),
        ({"sigmas": 3}, "`sigmas` must be a list; got a int"),
        ({"n": 0}, "`n` must be at least 1"),
    ],
)
def test_what_is_no_configuration_is_refused(document, words):
    with pytest.raises(ValueError, match=words):
        configuration(ToyConfig, document)


def _kinds_in(module: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Kinds that a module writes or names, and calls that take the kind from elsewhere."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    named: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            (target,) = node.targets
            several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
            for name, value in pairs:
                if isinstance(name, ast.Name) and name.id.endswith("_KIND") and isinstance(value, ast.Constant):
                    named[name.id] = value.value
    found, elsewhere = set(named.values()), set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        if node.func.id in ("recorded", "new_record", "stress_record"):
            kind = node.args[0]
            if isinstance(kind, ast.Constant):
                found.add(kind.value)
            elif not (isinstance(kind, ast.Name) and kind.id in named):
                elsewhere.add((module, ast.unparse(kind)))
    return found, elsewhere


def test_every_kind_that_is_written_somewhere_can_be_verified():
    found = [_kinds_in(module) for module in MODULES]
    assert set().union(*(kinds for kinds, _ in found)) == set(KINDS)
    assert set().union(*(elsewhere for _, elsewhere in found)) == PASSED_ON


def test_records_of_the_theory_are_made_again_bit_for_bit(tmp_path):
    root = tmp_path / "runs"
    records = [
        run_toy(SMALL, root=root),
        run_counterexample(CounterexampleConfig(angles=5), root=root),
        run_tail_angle(TailAngleConfig(n=12, m=12, dim=40, k=4, angles=3, truths=2), root=root),
        run_spectra_example(SpectraConfig(n=12, dim=40, k=4, top=8), root=root),
    ]
    for record in records:
        made = recompute(load(root / record.id), Bench(tmp_path / "again", root))
        assert made.id == record.id
        assert verdict(compare(record, made), rtol=0.0) == IDENTICAL


def test_verify_exits_0_leaves_the_record_alone_and_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    out = tmp_path / "out"
    for command in (SMALL_TOY, SMALL_BOUND):
        assert projnorm(*command, "--out", str(out)).returncode == 0
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()}
    result = projnorm("runs", "verify", "toy", "--out", str(out))
    assert (result.returncode, result.stderr) == (0, "")
    assert "\nidentical: " in result.stdout
    result = projnorm("runs", "verify", "bound", "--json", "--workers", "1", "--out", str(out))
    assert json.loads(result.stdout)["verdict"] == IDENTICAL
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()} == before
    assert not list(scratch.glob("projnorm-verify-*"))


def test_verify_tells_rounding_from_a_difference(tmp_path):
    record = run_toy(SMALL, root=tmp_path / "honest")
    changed = {**record.arrays, "theta_norm": record.arrays["theta_norm"] * (1 + 1e-9)}
    save(replace(record, arrays=changed), tmp_path / "runs")
    close = projnorm("runs", "verify", record.id, "--out", str(tmp_path))
    assert close.returncode == 0, close.stderr
    assert "equal up to rounding (largest relative difference 1e-09, of 1e-06 allowed)" in close.stdout
    far = projnorm("runs", "verify", record.id, "--rtol", "1e-12", "--out", str(tmp_path))
    assert (far.returncode, far.stderr) == (1, "")
    assert "differs by more than 1e-12: theta_norm" in far.stdout


def test_what_cannot_be_verified_is_one_line_and_exit_code_2(tmp_path):
    root = tmp_path / "runs"
    record = run_toy(SMALL, root=root)
    verify = ("runs", "verify", record.id, "--out", str(tmp_path))
    assert_one_line_error(projnorm("runs", "verify", "nothing", "--out", str(tmp_path)), "'nothing' matches none")
    assert_one_line_error(projnorm(*verify, "--rtol", "-1"), "--rtol must be zero or more; got -1")
    arrays = next((root / record.id).glob("*.npz"))
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-9])
    assert_one_line_error(projnorm(*verify), "is damaged")
    shutil.rmtree(root)

    abacus = new_record("abacus", {}, {"x": np.zeros(1)}, {"x": "a number"}, 0.0)
    save(abacus, root)
    result = projnorm("runs", "verify", "abacus", "--out", str(tmp_path))
    assert_one_line_error(result, "is of the kind 'abacus'; this version knows toy, bound")

    odd = new_record("toy", {"nonsense": 1}, {"x": np.zeros(1)}, {"x": "a number"}, 0.0)
    save(odd, root)
    assert_one_line_error(projnorm("runs", "verify", "toy", "--out", str(tmp_path)), "a ToyConfig has no nonsense")


def test_a_record_of_another_version_is_refused(tmp_path):
    record = run_toy(SMALL, root=tmp_path)
    old = replace(record, environment={**record.environment, "projnorm": "0.0.1"})
    with pytest.raises(ValueError, match=r"was made by projnorm 0\.0\.1; this is"):
        recompute(old, Bench(tmp_path / "again", tmp_path))


def test_a_record_about_a_run_of_another_configuration_is_refused(tmp_path):
    config = {"run": "deep-0123456789", "eps": [1.0], "m": 0, "steps": 1, "network_sha256": "a", "run_config": {}}
    assert record_id("deep", {}) != config["run"]
    record = new_record("deep-adversarial", config, {"x": np.zeros(1)}, {"x": "a number"}, 0.0)
    with pytest.raises(ValueError, match="not the configuration of deep-0123456789"):
        recompute(record, Bench(tmp_path / "again", tmp_path))
