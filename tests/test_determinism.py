"""Same seed, same numbers with one worker or two: every command that computes, down to the bytes of its records.

A command without ``--workers`` is run twice. The commands on a finished run work on two copies of it, one made by each
number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from projnorm.cli.app import SUMMARIES
from tests.commands import run_cli, without_pictures
from tests.test_figures import CONFIGS as THEORY

KERNEL = "--n 6 --m 5 --families contrast --severities 5 --architecture small-cnn --size 16"
RUN = (
    "digits --families contrast,gaussian_blur --severities 5 --n 60 --n-validation 30 --m 30 --finetune-epochs 1 "
    "--projnorm-steps 2 --projnorm-trajectory none --projnorm-batch 10 --rotation-samples 20 --size 16"
)
TEXT = "templates --n 40 --n-validation 20 --m 20 --finetune-epochs 1 --projnorm-steps 2 --projnorm-trajectory none"


@dataclass(frozen=True, slots=True)
class Case:
    """A command, with options that keep it small.

    Attributes:
        options: Options of the command; {run} stands for the name of the finished run.
        kinds: Kinds of the records it writes, with spaces between them; none if its output is compared.
        workers: Whether it has --workers.
    """

    options: str = ""
    kinds: str = ""
    workers: bool = True


CASES = {
    "toy": Case("--d1 12 --d2 6 --n 6 --m 6 --trials 3 --sigmas 0,2", "toy"),
    "bound": Case("--instances 510 --large 0", "bound"),
    "figures": Case("", "toy bound intervals counterexample tail-angle spectra"),
    "report": Case("", "toy bound intervals counterexample tail-angle spectra"),
    "predict": Case("--source source.npz --target target.npz --json", workers=False),
    "ntk gram": Case(KERNEL, "ntk-gram"),
    "ntk analyse": Case(KERNEL, "ntk-gram ntk"),
    "ntk predict": Case(KERNEL, "ntk-gram ntk"),
    "ntk subsample": Case(f"{KERNEL} --counts 200 --draws 2", "ntk ntk-subsample"),
    "deep run": Case(RUN, "deep"),
    "deep text": Case(TEXT, "deep-text"),
    "deep sweep": Case("{run} --steps 1 --labels true", "deep-sweep"),
    "deep adversarial": Case("{run} --eps 0,2 --m 10 --steps 2", "deep-adversarial"),
    "deep label-shift": Case("{run} --groups 2 --concentrations 1 --draws 1", "deep-label-shift"),
    "deep small-samples": Case(
        "{run} --sizes 10,20 --draws 2 --projnorm-size 10 --projnorm-steps 2", "deep-small-samples"
    ),
    "deep ntk": Case("{run} --n 8 --m 6", "deep-ntk"),
    "deep ensemble": Case("{run} --json", workers=False),
    "deep residuals": Case("{run} --json", workers=False),
    "deep table": Case("{run}", workers=False),
}
# They list, draw or print what others computed, or compute it again to compare.
COMPUTE_NOTHING = {
    "env", "completion", "replay", "runs", "runs show", "runs rm", "runs verify", "deep figures", "deep gallery",
    "deep presets", "deep trajectory",
}  # fmt: skip
ON_A_RUN = [name for name, case in CASES.items() if "{run}" in case.options]


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
        without_pictures(patch)
        patch.setattr("simulations.presets.theory_configs", lambda **_: THEORY)
        result = run_cli(*line.split())
    assert result.code == 0, result.err
    return result.out


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_numbers_do_not_depend_on_the_workers(name, request, tmp_path, monkeypatch):
    case = CASES[name]
    _write_outputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    folders = request.getfixturevalue("finished") if name in ON_A_RUN else (tmp_path / "one", tmp_path / "two")
    printed = []
    for workers, folder in enumerate(folders, start=1):
        run = next((path.name for path in folder.glob(f"runs/deep-{'[0-9a-f]' * 12}")), "")
        options = case.options.format(run=run) + (f" --workers {workers}" if case.workers else "")
        printed.append(projnorm(f"{name} {options}" + ("" if name == "predict" else f" --out {folder}")))
    one, two = (dict(_arrays(folder, case.kinds.split())) for folder in folders)
    assert {kind for kind, *_ in one} == set(case.kinds.split())
    assert one == two
    if not case.kinds:
        assert printed[0].replace(str(folders[0]), "") == printed[1].replace(str(folders[1]), "")


def test_every_command_is_tested_or_computes_nothing():
    assert set(SUMMARIES) == set(CASES) | COMPUTE_NOTHING


def _arrays(out: Path, kinds: list[str]) -> Iterator[tuple[tuple[str, str], bytes]]:
    """The bytes of every record of these kinds, by kind and by name of the record."""
    for kind in kinds:
        for path in sorted((out / "runs").glob(f"{kind}-{'[0-9a-f]' * 12}/record-*.npz")):
            yield (kind, path.parent.name), path.read_bytes()


def _write_outputs(folder: Path) -> None:
    """Outputs of a model on a labelled and on an unlabelled set."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    logits = rng.normal(size=(60, 3)) + 2 * np.eye(3)[labels]
    np.savez(folder / "source.npz", logits=logits, labels=labels)
    np.savez(folder / "target.npz", logits=0.5 * logits[:40] + rng.normal(size=(40, 3)))
