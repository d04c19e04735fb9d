"""`projnorm runs verify`: a record computed again from its configuration, and compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from projnorm.cli.options import (
    LOCAL,
    OUT,
    WORKERS,
    BackendName,
    Json,
    Out,
    Scheduler,
    Workers,
    backend_of,
    runs_folder,
    to_json,
)
from projnorm.cli.runs import Name, record_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projnorm.verification import ArrayComparison, Difference

_MACHINE = "The machine, libraries and device are those of the record."


def run(
    name: Name,
    rtol: Annotated[float, typer.Option(help="Relative difference that still counts as rounding.")] = 1e-6,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps; that of the record.")] = None,
    workers: Workers = WORKERS,
    backend: BackendName = LOCAL,
    scheduler: Scheduler = None,
    out: Out = OUT,
    as_json: Json = False,
) -> None:
    """Compute a record again from its configuration, and compare every array.

    In a temporary folder; the record is not touched. Exit code 0 if they are identical or equal up to rounding, 1 if
    they differ, 2 if it cannot be done: the record is damaged, or data or weights are not there or have changed.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from projnorm.recompute import Bench, recompute
    from projnorm.verification import DIFFERENT, compare, differences, verdict

    if not 0.0 <= rtol < math.inf:
        raise ValueError(f"--rtol must be zero or more; got {rtol:g}.")
    where = backend_of(backend, workers, scheduler)
    record = record_named(out, name)
    # Workers of a cluster may have to see the folder, and may not see that for temporary files.
    with TemporaryDirectory(prefix="projnorm-verify-", dir=out if where.scheduler else None) as folder:
        bench = Bench(Path(folder), runs_folder(out), where, device, lambda line: typer.echo(line, err=True))
        made = recompute(record, bench)
    arrays, elsewhere = compare(record, made), differences(record, made)
    found = verdict(arrays, rtol=rtol)
    if as_json:
        typer.echo(to_json(_document(record.id, found, rtol, arrays, elsewhere)))
    else:
        typer.echo(f"{record.id}, finished {record.created} after {record.wall_seconds:.1f} s\n")
        typer.echo(_table(arrays))
        typer.echo(f"\n{_sentence(found, arrays, rtol)}")
        others = ", ".join(map(str, elsewhere))
        typer.echo(f"Other than in the record, so that the last bits may differ: {others}." if others else _MACHINE)
    if found == DIFFERENT:
        raise typer.Exit(1)


def _sentence(found: str, arrays: Sequence[ArrayComparison], rtol: float) -> str:
    from projnorm.verification import IDENTICAL, ROUNDING

    if found == IDENTICAL:
        return f"{found}: {len(arrays)} arrays, bit for bit"
    if found == ROUNDING:
        worst = max(array.relative for array in arrays)
        return f"{found} (largest relative difference {worst:.2g}, of {rtol:g} allowed)"
    apart = ", ".join(array.name for array in arrays if not array.agrees(rtol))
    return f"{found} by more than {rtol:g}: {apart}"


def _table(arrays: Sequence[ArrayComparison]) -> str:
    from figures.table import Table

    rows = [
        (
            array.name,
            _both(*(_shape(shape) for shape in array.shapes)),
            _both(*array.dtypes),
            "yes" if array.identical else f"{array.differing:,} differ",
            "" if array.identical else _number(array.absolute),
            "" if array.identical else _number(array.relative),
        )
        for array in arrays
    ]
    return Table(("array", "shape", "type", "equal bits", "absolute", "relative"), rows).text()


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape)) or "one"


def _both(old: str, new: str) -> str:
    return old if old == new else f"{old} -> {new}"


def _number(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "-"


def _document(
    name: str, found: str, rtol: float, arrays: Sequence[ArrayComparison], elsewhere: Sequence[Difference]
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "id": name,
        "verdict": found,
        "rtol": rtol,
        "arrays": [asdict(array) for array in arrays],
        "environment": [asdict(difference) for difference in elsewhere],
    }
