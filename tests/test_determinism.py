"""Same seed, same numbers with one worker or two: every command that computes, down to the bytes of its records.

A command without ``--workers`` is run twice. The commands on a finished run work on two copies of it, one made by each
number of workers.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer

from projnorm.cli.app import app, main
from simulations.bound_check import BoundConfig
from simulations.counterexample import CounterexampleConfig
from simulations.presets import TheoryRuns
from simulations.spectra_example import SpectraConfig
from simulations.tail_angle import TailAngleConfig
from simulations.toy import ToyConfig

SMALL_KERNEL = (
    "--n",
    "6",
    "--m",
    "5",
    "--families",
    "contrast",
    "--severities",
    "5",
    "--architecture",
    "small-cnn",
    "--size",
    "16",
)
SMALL_RUN = (
    *("--families", "contrast,gaussian_blur", "--severities", "5", "--n-train", "60", "--n-validation", "30"),
    *("--m", "30", "--epochs", "1", "--T", "2", "--projnorm-batch", "10", "--rotation-samples", "20", "--size", "16"),
)
SMALL_TEXT = ("--n-train", "40", "--n-validation", "20", "--m", "20", "--epochs", "1", "--T", "2")
SMALL_THEORY = TheoryRuns(
    toy=ToyConfig(d1=12, d2=6, n=6, m=6, sigmas=(0.0, 2.0), trials=3, interval_trials=2),
    siblings=(ToyConfig("spiked", 12, 6, 6, 6, sigmas=(1.0,), trials=3, interval_trials=1),),
    bound=BoundConfig(instances=16, large=0),
    counterexample=CounterexampleConfig(angles=5),
    tail_angle=TailAngleConfig(n=12, m=12, dim=40, k=4, angles=3, truths=2),
    spectra=SpectraConfig(n=12, dim=40, k=4, top=8),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A command, with options that keep it small.

    Attributes:
        options: Of the command.
        kinds: Of the records it writes; none if its output is compared.
        workers: Whether it has --workers.
        on_a_run: Whether it is about the finished run.
        out: Whether it has --out.
    """

    options: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    workers: bool = True
    on_a_run: bool = False
    out: bool = True


CASES = {
    "toy": Case(("--d1", "12", "--d2", "6", "--n", "6", "--m", "6", "--trials", "3", "--sigmas", "0,2"), ("toy",)),
    "bound": Case(("--instances", "510", "--large", "0"), ("bound",)),
    "figures": Case((), ("toy", "bound", "counterexample", "tail-angle", "spectra")),
    "report": Case((), ("toy", "bound", "counterexample", "tail-angle", "spectra")),
    "predict": Case(("--source", "source.npz", "--target", "target.npz", "--json"), workers=False, out=False),
    "ntk gram": Case(SMALL_KERNEL, ("ntk-gram",)),
    "ntk analyse": Case(SMALL_KERNEL, ("ntk-gram", "ntk")),
    "ntk predict": Case(SMALL_KERNEL, ("ntk-gram", "ntk")),
    "ntk subsample": Case((*SMALL_KERNEL, "--counts", "200", "--draws", "2"), ("ntk", "ntk-subsample")),
    "deep run": Case(("digits", *SMALL_RUN), ("deep",), on_a_run=True),
    "deep text": Case(("templates", *SMALL_TEXT), ("deep-text",)),
    "deep sweep": Case(("--T", "1", "--labels", "true"), ("deep-sweep", "deep-setting"), on_a_run=True),
    "deep adversarial": Case(("--eps", "0,2", "--m", "10", "--steps", "2"), ("deep-adversarial",), on_a_run=True),
    "deep label-shift": Case(
        ("--groups", "2", "--concentrations", "1", "--draws", "1"), ("deep-label-shift",), on_a_run=True
    ),
    "deep small-samples": Case(
        ("--m", "10,20", "--draws", "2", "--projnorm", "10", "--projnorm-steps", "2"),
        ("deep-small-samples",),
        on_a_run=True,
    ),
    "deep ntk": Case(("--n", "8", "--m", "6"), ("deep-ntk",), on_a_run=True),
    "deep ensemble": Case(("--json",), workers=False, on_a_run=True),
    "deep residuals": Case(("--json",), workers=False, on_a_run=True),
    "deep table": Case((), workers=False, on_a_run=True),
}
# They list, draw or print what others computed, or compute it again to compare.
COMPUTE_NOTHING = {
    "env",
    "runs",
    "runs show",
    "runs verify",
    "deep figures",
    "deep gallery",
    "deep presets",
    "deep trajectory",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    """Two output folders with the same run, made by one worker and by two."""
    folders = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for workers, folder in enumerate(folders, start=1):
        projnorm("deep", "run", *CASES["deep run"].options, "--workers", str(workers), "--out", str(folder))
    return folders


def projnorm(*arguments: str) -> str:
    """Run a command in this process, without its pictures; returns what it printed."""
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr("sys.argv", ["projnorm", *arguments])
        patch.setattr("figures.style.save", lambda _figure, folder, name: [folder / f"{name}.png"])
        patch.setattr("figures.theory.theory_page", lambda *_, **__: "")
        patch.setattr("projnorm.cli.report._save_figures", lambda *_: [])
        patch.setattr("simulations.presets.theory_runs", lambda **_: SMALL_THEORY)
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code, err.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_do_not_depend_on_the_workers(name, request, tmp_path, monkeypatch):
    case = CASES[name]
    _write_outputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    folders = request.getfixturevalue("finished") if case.on_a_run else (tmp_path / "one", tmp_path / "two")
    printed = [
        projnorm(
            *name.split(),
            *case.options,
            *(("--workers", str(workers)) if case.workers else ()),
            *(("--out", str(folder)) if case.out else ()),
        )
        for workers, folder in enumerate(folders, start=1)
    ]
    one, two = (dict(_arrays(folder, case.kinds)) for folder in folders)
    assert {kind for kind, *_ in one} == set(case.kinds)
    assert one == two
    if not case.kinds:
        assert printed[0].replace(str(folders[0]), "") == printed[1].replace(str(folders[1]), "")


def test_every_command_is_tested_or_computes_nothing():
    assert set(_commands(typer.main.get_command(app))) == set(CASES) | COMPUTE_NOTHING


def test_another_seed_gives_other_numbers(tmp_path):
    """So that equal bytes are not those of constants."""
    for seed, folder in ((0, "one"), (1, "two")):
        projnorm("toy", *CASES["toy"].options, "--workers", "1", "--seed", str(seed), "--out", str(tmp_path / folder))
    (one,), (two,) = (dict(_arrays(tmp_path / folder, ("toy",))).values() for folder in ("one", "two"))
    assert one != two


def _arrays(out: Path, kinds: tuple[str, ...]) -> Iterator[tuple[tuple[str, str], bytes]]:
    """The bytes of every record of these kinds, by kind and by name of the record."""
    for kind in kinds:
        for path in sorted((out / "runs").glob(f"{kind}-{'[0-9a-f]' * 10}/arrays-*.npz")):
            yield (kind, path.parent.name), path.read_bytes()


def _commands(command: object, *, behind: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that can be called, `runs` among them, which lists without a word behind it."""
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _commands(child, behind=(*behind, name))
    if not children or behind == ("runs",):
        yield " ".join(behind)


def _write_outputs(folder: Path) -> None:
    """Outputs of a model on a labelled and on an unlabelled set."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    logits = rng.normal(size=(60, 3)) + 2 * np.eye(3)[labels]
    np.savez(folder / "source.npz", logits=logits, labels=labels)
    np.savez(folder / "target.npz", logits=0.5 * logits[:40] + rng.normal(size=(40, 3)))
