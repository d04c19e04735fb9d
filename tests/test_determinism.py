"""Same seed, same numbers with one worker or two: every command that computes, down to the bytes of its records.

A command without ``--workers`` is run twice. The commands on a finished run work on two copies of it, one made by each
number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from projnorm.cli.app import SUMMARIES
from tests.commands import run_cli
from tests.test_figures import CONFIGS as THEORY
from tests.test_packaging import write_outputs

KERNEL = "--n 6 --m 5 --families contrast --severities 5 --architecture small-cnn --size 16"
RUN = (
    "digits --families contrast,gaussian_blur --severities 5 --n 60 --n-validation 30 --m 30 --finetune-epochs 1 "
    "--projnorm-steps 2 --projnorm-trajectory none --projnorm-batch 10 --rotation-samples 20 --size 16"
)
TEXT = "templates --n 40 --n-validation 20 --m 20 --finetune-epochs 1 --projnorm-steps 2 --projnorm-trajectory none"


# For each command options that keep it small, {run} for the name of the finished run, and the kinds of the records that
# it writes; what writes none has no --workers, and its output is compared.
CASES = {
    "toy": ("--d1 12 --d2 6 --n 6 --m 6 --trials 3 --sigmas 0,2", "toy"),
    "bound": ("--instances 510 --large 0", "bound"),
    "figures": ("", "toy bound counterexample tail-angle spectra"),
    "report": ("", "toy bound counterexample tail-angle spectra"),
    "predict": ("--source source.npz --target target.npz --json", ""),
    "ntk gram": (KERNEL, "ntk-gram"),
    "ntk analyse": (KERNEL, "ntk-gram ntk"),
    "ntk predict": (KERNEL, "ntk-gram ntk"),
    "ntk subsample": (f"{KERNEL} --counts 200 --draws 2", "ntk ntk-subsample"),
    "deep run": (RUN, "deep"),
    "deep text": (TEXT, "deep-text"),
    "deep sweep": ("{run} --steps 1 --labels true", "deep-sweep"),
    "deep adversarial": ("{run} --eps 0,2 --m 10 --steps 2", "deep-adversarial"),
    "deep label-shift": ("{run} --groups 2 --concentrations 1 --draws 1", "deep-label-shift"),
    "deep small-samples": ("{run} --sizes 10,20 --draws 2 --projnorm-size 10 --projnorm-steps 2", "deep-small-samples"),
    "deep ntk": ("{run} --n 8 --m 6", "deep-ntk"),
    "deep ensemble": ("{run} --json", ""),
    "deep residuals": ("{run} --json", ""),
    "deep table": ("{run}", ""),
}
# They list, draw or print what others computed, or compute it again to compare.
COMPUTE_NOTHING = {
    "env", "completion", "replay", "runs", "runs show", "runs rm", "runs verify", "deep figures", "deep gallery",
    "deep presets", "deep trajectory",
}  # fmt: skip


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
        more = (f" --workers {workers}" if kinds else "") + ("" if name == "predict" else f" --out {folder}")
        printed.append(projnorm(f"{name} {options.format(run=run)}{more}"))
    one, two = (dict(_arrays(folder, kinds.split())) for folder in folders)
    assert {kind for kind, *_ in one} == set(kinds.split())
    assert one == two
    if not kinds:
        assert printed[0].replace(str(folders[0]), "") == printed[1].replace(str(folders[1]), "")


def test_every_command_is_tested_or_computes_nothing():
    assert set(SUMMARIES) == set(CASES) | COMPUTE_NOTHING


def _arrays(out: Path, kinds: list[str]) -> Iterator[tuple[tuple[str, str], bytes]]:
    """The bytes of every record of these kinds, by kind and by name of the record."""
    for kind in kinds:
        for path in sorted((out / "runs").glob(f"{kind}-{'[0-9a-f]' * 12}/record-*.npz")):
            yield (kind, path.parent.name), path.read_bytes()
