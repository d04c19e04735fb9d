"""Options that several commands share, and what they do with them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from projnorm.files import physical_memory

if TYPE_CHECKING:
    from projnorm.runs import Backend

Out = Annotated[Path, typer.Option(help="Folder for records, figures and the report.")]
Workers = Annotated[int, typer.Option(help="Processes to use; the numbers do not depend on it.", min=1)]
MaybeWorkers = Annotated[
    int | None, typer.Option(help="Processes to use; as many as there are cores, and memory for them.", min=1)
]
Memory = Annotated[float, typer.Option(help="Ceiling of each process, in GB.")]
BackendName = Annotated[
    str, typer.Option("--backend", help="local for processes of this machine, or dask for a cluster.")
]
Scheduler = Annotated[
    str | None, typer.Option(help="Address of the Dask scheduler, such as tcp://127.0.0.1:8786.", metavar="ADDRESS")
]
Seed = Annotated[int, typer.Option(help="Seed of everything drawn.", min=0)]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable output only.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again what is already there.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and compute nothing.")]
Devices = Annotated[str, typer.Option(help="With --dry-run: hours on so many devices, such as 1,8,64.")]
Tflops = Annotated[float, typer.Option(help="With --dry-run: TFLOP/s that a device is taken to sustain.")]
Gbps = Annotated[float, typer.Option(help="With --dry-run: Gbit/s of the link that everything is taken to move over.")]

LOCAL = "local"
DASK = "dask"
DEVICES = "1,8,64"
TFLOPS = 10.0
GBPS = 10.0
OUT = Path("projnorm-out")
WORKERS = os.cpu_count() or 1


def workers_within(memory: float) -> int:
    """As many processes as there are cores, but no more than this machine has memory for, of so many GB each."""
    return max(1, min(WORKERS, int(physical_memory() / 1e9 // memory))) if memory > 0 else WORKERS


def backend_of(name: str, workers: int, scheduler: str | None) -> Backend:
    """Where tasks run, as asked for.

    Raises:
        ValueError: If there is no such backend, or it lacks an address, or has one too many.
    """
    from projnorm.runs import Backend

    if name not in (LOCAL, DASK):
        raise ValueError(f"--backend must be {LOCAL} or {DASK}; got {name!r}.")
    if (name == DASK) != bool(scheduler):
        raise ValueError(
            "--backend dask needs --scheduler, the address that `dask scheduler` prints, such as tcp://127.0.0.1:8786."
            if name == DASK
            else "--scheduler is for --backend dask; add it, or leave the address out."
        )
    return Backend(workers, scheduler or "")


def runs_folder(out: Path) -> Path:
    """Where the records of an output folder are."""
    return out / "runs"


def figures_folder(out: Path) -> Path:
    """Where its figures are."""
    return out / "figures"


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep the defaults of the configuration."""
    return {name: value for name, value in options.items() if value is not None}


def to_json(document: Any) -> str:
    """Strict JSON: what is not finite becomes null."""
    return json.dumps(_finite(document), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, list | tuple) else value


def words(text: str | None) -> tuple[str, ...] | None:
    """Words separated by commas; "none" for no word at all."""
    if text is None:
        return None
    return () if text == "none" else tuple(part.strip() for part in text.split(","))


def numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    """Numbers separated by commas; "none" for no number at all.

    Raises:
        ValueError: If one of them is not a number.
    """
    if text is None:
        return None
    if text == "none":
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} must be numbers separated by commas; got {text!r}.") from None


def integers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Whole numbers separated by commas.

    Raises:
        ValueError: If one of them is not a whole number.
    """
    found = numbers(text, option)
    if found is None:
        return None
    if not all(number.is_integer() for number in found):
        raise ValueError(f"{option} must be whole numbers separated by commas; got {text!r}.")
    return tuple(int(number) for number in found)


def device_counts(text: str) -> tuple[int, ...]:
    """Numbers of devices, each at least 1.

    Raises:
        ValueError: If one of them is not.
    """
    counts = integers(text, "--devices") or ()
    if not counts or min(counts) < 1:
        raise ValueError(f"--devices must be whole numbers from 1 separated by commas; got {text!r}.")
    return counts


def within(trajectory: tuple[int, ...], steps: int | None) -> tuple[int, ...]:
    """Of a preset's trajectory, the steps that are taken when `steps` are asked for."""
    return tuple(step for step in trajectory if steps is None or step <= steps)
