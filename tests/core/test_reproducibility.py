"""Numbers made again: by `projnorm runs verify`, and by every command that computes, with one worker or two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from projnorm.cli.app import SUMMARIES
from projnorm.core.config import Config, setting
from projnorm.core.environment import current_environment
from projnorm.core.experiments import EXPERIMENTS, Experiment, experiment, recompute, resolve
from projnorm.core.records import Record, RunContext, load_record, save_record
from projnorm.core.verification import (
    DIFFERENT,
    IDENTICAL,
    LAST_PLACES,
    ROUNDING,
    changed_inputs,
    compare,
    differences,
    verdict,
)
from simulations import ToyConfig, run_toy
from tests.cli.test_app import SMALL_BOUND, SMALL_TOY
from tests.commands import assert_refused, run_cli
from tests.figures.test_figures import CONFIGS, CONFIGS as THEORY
from tests.test_packaging import write_outputs

SMALL = ToyConfig(d1=12, d2=6, n=6, m=6, sigmas=(0.0, 2.0), trials=2, interval_trials=1)


def record_of(kind="toy", config=None, **arrays):
    given = {name: np.asarray(array) for name, array in arrays.items()}
    environment = current_environment()
    name = f"{kind}-0123456789ab"
    return Record(name, kind, config or {}, given, dict.fromkeys(given, "a number"), "2026", 0.0, environment)


def compared(old, new):
    (found,) = compare(record_of(x=old), record_of(x=new))
    return found


PLACE = LAST_PLACES * np.finfo(float).eps


@pytest.mark.parametrize(
    ("old", "new", "rtol", "expected"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], 0.0, IDENTICAL),
        ([0.0], [-0.0], 0.0, ROUNDING),
        # Last places of the largest entry are rounding in a small one.
        ([1.0, 0.0], [1.0, PLACE / 2], 1e-6, ROUNDING),
        ([1.0, 0.0], [1.0, PLACE * 2], 1e-6, DIFFERENT),
        # What is no rounding differs at any tolerance.
        ([1.0, 2.0], [1.0, np.nan], 1e6, DIFFERENT),
        ([np.inf], [-np.inf], 1e6, DIFFERENT),
        ([1.0, 2.0], [[1.0, 2.0]], 1e6, DIFFERENT),
        (np.array([1.0]), np.array([1.0], np.float32), 1e6, DIFFERENT),
        ([10**9], [10**9 + 1], 1e6, DIFFERENT),
        ([True], [False], 1e6, DIFFERENT),
        (["a", "b"], ["a", "c"], 1e6, DIFFERENT),
    ],
)
def test_arrays_are_identical_equal_up_to_rounding_or_different(old, new, rtol, expected):
    assert verdict([compared(old, new)], rtol=rtol) == expected


def test_a_difference_is_measured_absolutely_and_against_its_own_entry():
    found = compared([1000.0, 1.0], [1000.0, 1.001])
    assert (found.identical, found.differing) == (False, 1)
    assert found.absolute == pytest.approx(1e-3)
    assert found.relative == pytest.approx(1e-3 / 1.001)
    assert verdict([found], rtol=1e-6) == DIFFERENT
    assert verdict([found], rtol=1e-2) == ROUNDING


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
    old, new = (
        {"inputs": {"data_sha256": a, "weights_sha256": "b"}, "fingerprints": {"network": a, "inputs of fog": a}}
        for a in ("old", "new")
    )
    assert changed_inputs(old, old) == ()
    assert changed_inputs(old, new) == ("data", "inputs of fog")


def test_everything_that_the_registry_names_is_there():
    for one in EXPERIMENTS:
        for name in filter(None, (one.config, one.run, one.show, one.presets, one.analyse, one.replay, one.plan)):
            assert resolve(name) is not None, name


def test_records_of_the_theory_are_computed_again_bit_for_bit(tmp_path):
    root = tmp_path / "runs"
    context = RunContext(root)
    for kind, config in CONFIGS.values():
        record = experiment(kind).compute(config, context)
        again = recompute(load_record(root, record.id), RunContext(tmp_path / "again"), beside=root)
        assert again.id == record.id
        assert verdict(compare(record, again), rtol=0.0) == IDENTICAL


@pytest.mark.slow
def test_verify_exits_0_leaves_the_record_alone_and_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    out = tmp_path / "out"
    for command in (SMALL_TOY, SMALL_BOUND):
        assert run_cli(*command, "--out", str(out)).code == 0
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()}
    result = run_cli("runs", "verify", "toy", "--workers", "1", "--out", str(out))
    assert (result.code, result.err) == (0, "")
    assert "\nidentical: " in result.out
    result = run_cli("runs", "verify", "bound", "--json", "--workers", "1", "--out", str(out))
    assert json.loads(result.out)["verdict"] == IDENTICAL
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()} == before
    assert not list(scratch.glob("projnorm-verify-*"))


def test_verify_tells_rounding_from_a_difference(tmp_path):
    record = run_toy(SMALL, RunContext(tmp_path / "honest"))
    changed = {**record.arrays, "theta_norm": record.arrays["theta_norm"] * (1 + 1e-9)}
    save_record(replace(record, arrays=changed), tmp_path / "runs")
    close = run_cli("runs", "verify", record.id, "--out", str(tmp_path))
    assert close.code == 0, close.err
    assert "equal up to rounding (largest relative difference 1e-09, of 1e-06 allowed)" in close.out
    far = run_cli("runs", "verify", record.id, "--rtol", "1e-12", "--out", str(tmp_path))
    assert (far.code, far.err) == (1, "")
    assert "differs by more than 1e-12: theta_norm" in far.out


def test_what_cannot_be_verified_is_one_line_and_exit_code_2(tmp_path):
    root, out = tmp_path / "runs", ("--out", str(tmp_path))
    record = run_toy(SMALL, RunContext(root))
    save_record(record_of("abacus", x=0.0), root)
    save_record(record_of("toy", {"nonsense": 1}, x=0.0), root)
    for arguments, words in (
        (("nothing",), "begins with 'nothing'; there are abacus-"),
        ((record.id, "--rtol", "-1"), "--rtol must be at least 0; got -1"),
        (("abacus",), "no experiment of the kind 'abacus'; there are toy"),
        (("toy-0123456789ab",), "there is no setting `nonsense`"),
    ):
        assert_refused(run_cli("runs", "verify", *arguments, *out), words)
    save_record(replace(record, environment={**record.environment, "projnorm": "0.0.1"}), root)
    assert_refused(run_cli("runs", "verify", record.id, *out), "was made by projnorm 0.0.1; numbers of")
    (root / record.id / "record.json").write_text("{}")
    assert run_cli("runs", "verify", record.id, *out).code == 2


def test_the_run_that_a_record_is_about_is_computed_again_first(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class AboutConfig(Config):
        """A record about another run."""

        run: str = setting("", "Run.")

    def run_about(config, context):
        load_record(context.root, config.run)  # there only if it was computed again
        return replace(record_of("about", config.to_json(), x=0.0), kind="about")

    base = run_toy(SMALL, RunContext(tmp_path / "runs"))
    about = Experiment("about", "", "", "tests:AboutConfig", "tests:run_about", "")
    monkeypatch.setattr("projnorm.core.experiments.EXPERIMENTS", (*EXPERIMENTS, about))
    names = {"tests:AboutConfig": AboutConfig, "tests:run_about": run_about}
    monkeypatch.setattr("projnorm.core.experiments.resolve", lambda name: names.get(name) or resolve(name))
    record, said = record_of("about", {"run": base.id}, x=0.0), []
    again = RunContext(tmp_path / "again")
    assert recompute(record, again, beside=tmp_path / "runs", announce=said.append).config == {"run": base.id}
    assert said == [f"{base.id}, which the record is about, is computed again first"]


KERNEL = "--n 6 --m 5 --families contrast --severities 5 --architecture small-cnn --size 16"
RUN = (
    "digits --families contrast,gaussian_blur --severities 5 --n 60 --n-validation 30 --m 30 --finetune-epochs 1 "
    "--projnorm-steps 2 --projnorm-trajectory none --projnorm-batch 10 --rotation-samples 20 --size 16"
)
TEXT = "--n 40 --n-validation 20 --m 20 --finetune-epochs 1 --projnorm-steps 2 --projnorm-trajectory none"


# For each command, perhaps with a preset or an option, further options that keep it small, {run} for the name of the
# finished run, and the kinds of the records that it writes; what writes none has no --workers, and its output is
# compared.
CASES = {
    "toy": ("--d1 12 --d2 6 --n 6 --m 6 --trials 3 --sigmas 0,2", "toy"),
    "bound": ("--instances 510 --large 0", "bound"),
    "intervals": ("--n 8 --m 6 --dim 30 --decays 1 --draws 3", "intervals"),
    "figures": ("", "toy bound intervals counterexample tail-angle spectra"),
    "report": ("", "toy bound intervals counterexample tail-angle spectra"),
    "estimate": ("--source source.npz --target target.npz --json", ""),
    "label": ("--source source.npz --target target.npz --budget 5", ""),
    "fit": ("--source source.npz", ""),
    "ntk gram": (KERNEL, "ntk-gram"),
    "ntk predict": (KERNEL, "ntk-gram ntk"),
    "ntk subsample": (f"{KERNEL} --counts 200 --draws 2", "ntk ntk-subsample"),
    "deep run": (RUN, "deep"),
    "deep run templates": (TEXT, "deep-text"),
    "deep analyse sweep": ("{run} --steps 1 --labels true", "deep-sweep"),
    "deep analyse adversarial": ("{run} --eps 0,2 --m 10 --steps 2", "deep-adversarial"),
    "deep analyse label-shift": ("{run} --groups 2 --concentrations 1 --draws 1", "deep-label-shift"),
    "deep analyse ntk": ("{run} --n 8 --m 6", "deep-ntk"),
    "runs show --what ensemble": ("{run} --json", ""),
    "runs show --what residuals": ("{run} --json", ""),
    "runs show --what table": ("{run}", ""),
}
# They list, draw or print what others computed, or compute it again to compare.
COMPUTE_NOTHING = {
    "env", "completion", "runs", "runs rm", "runs verify", "deep gallery", "deep presets",
}  # fmt: skip


# It needs an estimator, and has no workers; tests/monitor/test_monitor.py compares what it keeps.
ELSEWHERE = {"monitor"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    """Two output folders with the same run, made by one worker and by two."""
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for workers, folder in enumerate(folders, start=1):
        projnorm(f"deep run {RUN} --workers {workers} --out {folder}")
    return folders


def projnorm(line: str) -> str:
    """Run a command in this process, without its pictures; returns what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("simulations.presets.theory_configs", lambda **_: THEORY)
        result = run_cli(*line.split())
    assert result.code == 0, result.err
    return result.out


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_do_not_depend_on_the_workers(name, request, tmp_path, monkeypatch):
    options, kinds = CASES[name]
    write_outputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    folders = request.getfixturevalue("finished") if "{run}" in options else (tmp_path / "one", tmp_path / "two")
    printed = []
    for workers, folder in enumerate(folders, start=1):
        run = next((path.name for path in folder.glob(f"runs/deep-{'[0-9a-f]' * 12}")), "")
        more = (f" --workers {workers}" if kinds else "") + ("" if name == "estimate" else f" --out {folder}")
        printed.append(projnorm(f"{name} {options.format(run=run)}{more}"))
    one, two = (dict(_arrays(folder, kinds.split())) for folder in folders)
    assert {kind for kind, *_ in one} == set(kinds.split())
    assert one == two
    if not kinds:
        assert printed[0].replace(str(folders[0]), "") == printed[1].replace(str(folders[1]), "")


def test_every_command_is_tested_or_computes_nothing():
    compared = {command for command in SUMMARIES for name in CASES if f"{name} ".startswith(f"{command} ")}
    assert set(SUMMARIES) == compared | COMPUTE_NOTHING | ELSEWHERE


def _arrays(out: Path, kinds: list[str]) -> Iterator[tuple[tuple[str, str], bytes]]:
    """The bytes of every record of these kinds, by kind and by name of the record."""
    for kind in kinds:
        for path in sorted((out / "runs").glob(f"{kind}-{'[0-9a-f]' * 12}/record-*.npz")):
            yield (kind, path.parent.name), path.read_bytes()
