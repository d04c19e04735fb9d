"""`projnorm runs`: earlier runs listed, removed, or computed again and compared."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from projnorm.cli.experiment import run_context
from projnorm.cli.options import DeviceOption, OutOption, RunOptions
from projnorm.cli.output import announce, say, say_json
from projnorm.core.config import Config, setting
from projnorm.core.errors import InputError
from projnorm.core.records import folder_size, list_runs, load_record, match_run
from projnorm.core.store import Store

if TYPE_CHECKING:
    from projnorm.core.verification import ArrayComparison

_NAME = "Name of a run, or its beginning."
# Folders beside the runs that hold what these share.
SHARED = ("corruptions", "outputs", "projnorm", "trained")
_MACHINE = "The machine, libraries and device are those of the record."


@dataclass(frozen=True)
class NameOption(Config):
    """Which run."""

    name: str = setting(help=_NAME, positional=True)


@dataclass(frozen=True)
class NamesOption(Config):
    """Which runs."""

    names: tuple[str, ...] = setting((), _NAME, positional=True, repeat=True)
    unfinished: bool = setting(False, "All runs that were never finished.")
    shared: bool = setting(False, "Networks, outputs and images that runs share; they are computed again when needed.")


@dataclass(frozen=True)
class VerifyOptions(NameOption):
    """Which run, and what counts as equal."""

    rtol: float = setting(1e-6, "Relative difference that still counts as rounding.", least=0.0)


def list_all(out: OutOption) -> None:
    """List earlier runs, unfinished ones included, with their sizes and the settings that tell them apart."""
    from figures.table import Table

    runs = list_runs(out.root)
    shared = {path.name: folder_size(path) for path in _shared(out.root)}
    if out.json:
        say_json({"runs": [{**asdict(run), "state": run.state} for run in runs], "shared_bytes": shared})
        return
    if not runs:
        say(f"No runs in {out.root}.")
    else:
        rows = [
            (
                run.id,
                run.created.replace("T", " ").removesuffix("+00:00") or run.state,
                f"{run.wall_seconds:.1f} s" if run.created else "",
                f"{run.size / 1e6:.1f} MB",
                " ".join(f"{k}={','.join(map(str, v)) if isinstance(v, list) else v}" for k, v in run.settings.items()),
            )
            for run in runs
        ]
        say(Table(("run", "finished (UTC)", "took", "size", "settings that differ"), rows).text())
    if shared:
        total = sum(shared.values()) / 1e6
        say(
            f"\nNetworks, outputs and images that runs share: {total:.1f} MB; `projnorm runs rm --shared` removes them."
        )


def remove(options: NamesOption, out: OutOption) -> None:
    """Remove runs, finished or not, from the output folder."""
    names = {match_run(out.root, name) for name in options.names}
    if options.unfinished:
        names |= {run.id for run in list_runs(out.root) if not run.created}
    if not (options.names or options.unfinished or options.shared):
        raise InputError("name the runs to remove, or pass `unfinished` or `shared`.")
    sizes = {}
    for folder in [*(out.root / name for name in sorted(names)), *(_shared(out.root) if options.shared else ())]:
        with Store(out.root.absolute()).lock(folder.name):  # nobody is computing it
            sizes[folder.name] = folder_size(folder)
            shutil.rmtree(folder)
    if out.json:
        say_json({"removed_bytes": sizes})
    for name, size in sizes.items() if not out.json else ():
        say(f"removed {name} ({size / 1e6:.1f} MB)")


def verify(options: VerifyOptions, device: DeviceOption, out: OutOption, run: RunOptions) -> int:
    """Compute a run again from its configuration, and compare every array.

    In a temporary folder; the record is not touched. Exit code 0 if the arrays are identical or equal up to rounding,
    1 if they differ, 2 if it cannot be done: the record is damaged, or data or weights are missing or have changed.
    """
    from projnorm.core.experiments import recompute
    from projnorm.core.verification import DIFFERENT, compare, differences, verdict

    record = load_record(out.root, match_run(out.root, options.name))
    # Workers of a cluster may have to see the folder, and may not see the one for temporary files.
    with TemporaryDirectory(prefix="projnorm-verify-", dir=out.out if run.scheduler else None) as folder:
        context = replace(run_context(out, run, device), root=Path(folder), fresh=False)
        again = recompute(record, context, beside=out.root, announce=announce)
    arrays, elsewhere = compare(record, again), differences(record, again)
    answer = verdict(arrays, rtol=options.rtol)
    if out.json:
        say_json(
            {
                "id": record.id,
                "verdict": answer,
                "rtol": options.rtol,
                "arrays": [asdict(array) for array in arrays],
                "environment": [asdict(difference) for difference in elsewhere],
            }
        )
    else:
        say(f"{record.id}, finished {record.created} after {record.wall_seconds:.1f} s\n\n{_table(arrays)}\n")
        say(_sentence(answer, arrays, options.rtol))
        others = ", ".join(map(str, elsewhere))
        say(f"Different from the record, so that the last bits may differ: {others}." if others else _MACHINE)
    return 1 if answer == DIFFERENT else 0


def _sentence(answer: str, arrays: tuple[ArrayComparison, ...], rtol: float) -> str:
    from projnorm.core.verification import IDENTICAL, ROUNDING

    if answer == IDENTICAL:
        return f"{answer}: {len(arrays)} arrays, bit for bit"
    if answer == ROUNDING:
        worst = max(array.relative for array in arrays)
        return f"{answer} (largest relative difference {worst:.2g}, of {rtol:g} allowed)"
    apart = ", ".join(array.name for array in arrays if not array.agrees(rtol))
    return f"{answer} by more than {rtol:g}: {apart}"


def _table(arrays: tuple[ArrayComparison, ...]) -> str:
    from figures.table import Table

    rows = [
        (
            array.name,
            " -> ".join(dict.fromkeys(map(_shape, array.shapes))),
            " -> ".join(dict.fromkeys(array.dtypes)),
            "yes" if array.identical else f"{array.differing:,} differ",
            "" if array.identical else f"{array.absolute:.2g}",
            "" if array.identical else f"{array.relative:.2g}",
        )
        for array in arrays
    ]
    return Table(("array", "shape", "type", "equal bits", "absolute", "relative"), rows).text()


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape)) or "one"


def _shared(root: Path) -> list[Path]:
    """Folders beside the runs, which hold what they share."""
    return [root / name for name in SHARED if (root / name).is_dir()]
