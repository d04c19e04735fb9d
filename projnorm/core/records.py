"""Records of finished runs, and the one way to compute a record: found if it is there, else task by task and resumable.

A run is named after its kind, its configuration and the version of this package, so the same question finds the same
record. Its folder also holds ``config.toml``, with which the command line repeats it.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from projnorm import __version__
from projnorm.core.arrays import Arrays
from projnorm.core.atomic import write_atomically
from projnorm.core.backends import ONE_PROCESS, Backend
from projnorm.core.config import Config, read_toml
from projnorm.core.environment import current_environment
from projnorm.core.errors import ChangedInputError, InputError
from projnorm.core.lazy import load
from projnorm.core.store import Store, digest
from projnorm.core.tasks import concatenated, run_tasks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
RECORD, SETTINGS = "record", "config.toml"
_HASH = "[0-9a-f]" * 12
# What the file of a record holds besides its arrays.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "kind": str,
    "config": dict,
    "created": str,
    "wall_seconds": (int, float),
    "environment": dict,
    "facts": dict,
    "meanings": dict,
}


@dataclass(frozen=True, slots=True)
class RunContext:
    """Where and how experiments run; the numbers do not depend on it, except for rounding on another device.

    Attributes:
        root: Folder of the records.
        backend: Processes or cluster that tasks run on.
        device: "auto", or a device that torch knows.
        memory: Largest number of bytes that a process may use for tangent kernels.
        fresh: Whether to compute again what is already there.

    Examples:
        >>> import projnorm as pn
        >>> context = pn.RunContext("projnorm-out/runs", pn.Backend(workers=2))
        >>> context.root.name, context.backend.workers, context.device
        ('runs', 2, 'auto')
    """

    root: Path
    backend: Backend = ONE_PROCESS
    device: str = "auto"
    memory: float = 4e9
    fresh: bool = False

    def __post_init__(self) -> None:
        """Take a path as text too, and refuse a memory that is no number of bytes."""
        object.__setattr__(self, "root", Path(self.root))
        if not 0 < self.memory < math.inf:
            raise InputError(f"`memory` must be a positive number of bytes; got {self.memory:g}.")

    def store(self, name: str) -> Store:
        """The store in the folder called `name`, beside the records."""
        return Store(self.root.absolute() / name)


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One finished run.

    Attributes:
        id: Name of the run, which is that of its folder.
        kind: Name of the experiment, such as "toy" or "bound".
        config: The configuration, as plain JSON values.
        arrays: The results by name.
        meanings: For every array, what it holds and in which unit.
        created: Time at which the run finished, UTC.
        wall_seconds: Seconds that the run took; of a run that was resumed, the last part.
        environment: Machine and library versions.
        facts: What else was found, as plain JSON values: hashes of the inputs, routes taken, self-checks.
    """

    id: str
    kind: str
    config: Mapping[str, Any]
    arrays: Arrays
    meanings: Mapping[str, str]
    created: str
    wall_seconds: float
    environment: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, as plain JSON values."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}

    def plot(self, name: str = "") -> tuple[Axes, ...]:
        """Draw a figure of the record.

        Args:
            name: Name of the figure, as of the files that the command line writes; the first by default.

        Returns:
            The axes of the figure.
        """
        return tuple(self._chosen("figures", name)().axes)

    def to_frame(self, name: str = "") -> Any:
        """A table of the record, as a DataFrame of pandas.

        Args:
            name: Name of the table, as of the files that the command line writes; the first by default.
        """
        return self._chosen("tables", name).to_frame()

    def _chosen(self, what: str, name: str) -> Any:
        """One of the figures or tables of what the registry says shows such a record."""
        registry = load("projnorm.core.experiments")
        shown = getattr(registry.resolve(registry.experiment(self.kind).show)(self, None), what)
        if not shown or name not in ("", *shown):
            raise InputError(f"{self.kind} records have the {what} {', '.join(shown) or 'none'}; got {name!r}.")
        return shown[name or next(iter(shown))]


@dataclass(frozen=True, slots=True)
class RunListing:
    """A run as a listing shows it, with the bytes in its folder and the settings that tell it from runs of its kind.

    `created` is empty for an unfinished run; the record of a damaged one is there, but cannot be read.
    """

    id: str
    kind: str
    created: str
    wall_seconds: float
    size: int
    settings: Mapping[str, Any]
    damaged: bool

    @property
    def state(self) -> str:
        """The word "finished", "unfinished" or "damaged"."""
        return "damaged" if self.damaged else "finished" if self.created else "unfinished"


def record_id(kind: str, config: Config) -> str:
    """The name of a run; another version of the package is another run."""
    return f"{kind}-{digest({'projnorm': __version__, 'kind': kind, 'config': config.to_json()})}"


def find_record(root: Path, kind: str, config: Config) -> Record | None:
    """The record of this configuration under `root`; None if it was never finished, or is damaged, which is logged."""
    return _read(root, record_id(kind, config))


def load_record(root: Path, name: str) -> Record:
    """The record of a run."""
    if (record := _read(root, name)) is None:
        raise InputError(f"{root / name} is not finished, or its record is damaged.")
    return record


def save_record(record: Record, root: Path) -> None:
    """Write a record into its folder under `root`; if that fails, an earlier record of the same name is still whole."""
    Store(root).put(f"{record.id}/{RECORD}", record.arrays, record.to_dict())


def finish_record(
    kind: str,
    config: Config,
    context: RunContext,
    arrays: Arrays,
    meanings: Mapping[str, str],
    *,
    started: float,
    facts: Mapping[str, Any] | None = None,
) -> Record:
    """Make and save the record of a run that has just finished; `started` is `time.perf_counter()` when it began."""
    if missing := set(arrays) ^ set(meanings):
        raise AssertionError(f"`meanings` must describe every array; these differ: {', '.join(sorted(missing))}")
    created = datetime.now(UTC).isoformat(timespec="seconds")
    took, environment = time.perf_counter() - started, current_environment()
    name = record_id(kind, config)
    record = Record(
        id=name,
        kind=kind,
        config=config.to_json(),
        arrays=arrays,
        meanings=meanings,
        created=created,
        wall_seconds=took,
        environment=environment,
        facts=facts or {},
    )
    save_record(record, context.root)
    return record


def begin_run(kind: str, config: Config, context: RunContext) -> Path:
    """Make the folder of a run, with the file that repeats it."""
    folder = context.root.absolute() / record_id(kind, config)
    path = folder / SETTINGS
    if not path.exists():
        write_atomically(path, config.to_toml().encode())
    return folder


def recorded(
    kind: str,
    config: Config,
    context: RunContext | None,
    *,
    items: Sequence[T],
    work: Callable[[T], Arrays],
    meanings: Mapping[str, str],
    assemble: Callable[[Sequence[Arrays]], Arrays] = concatenated,
    facts: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Record:
    """The record of this configuration: read if it is there and whole, else computed task by task and saved.

    If a task fails, finished ones stay, and the next run resumes from them.

    Args:
        kind: Name of the experiment.
        config: Its configuration, which names the record.
        context: Where and how it runs; None to compute it in this process and leave no files.
        items: One argument of `work` for each task.
        work: Computes one task. It must depend on its argument alone.
        meanings: For every array, what it holds and in which unit.
        assemble: Makes the arrays of the record from the results of all tasks, in order; by default arrays of the same
            name follow each other.
        facts: What else the record should say.
        inputs: Hashes of what the numbers depend on besides the configuration.
    """
    if context is None:
        with TemporaryDirectory() as scratch:
            return recorded(
                kind,
                config,
                RunContext(Path(scratch)),
                items=items,
                work=work,
                meanings=meanings,
                assemble=assemble,
                facts=facts,
                inputs=inputs,
            )
    if (record := existing_record(kind, config, context, inputs)) is not None:
        return record
    with context.store("").lock(record_id(kind, config)):
        if (record := existing_record(kind, config, context, inputs)) is not None:
            return record
        folder = begin_run(kind, config, context)
        tasks = folder / f"tasks-{digest(dict(inputs or {}))}"
        if context.fresh:
            shutil.rmtree(tasks, ignore_errors=True)
        started = time.perf_counter()
        results = run_tasks(work, items, store=Store(tasks), backend=context.backend, description=kind)
        all_facts = {**(facts or {}), **({"inputs": dict(inputs)} if inputs else {})}
        record = finish_record(kind, config, context, assemble(results), meanings, started=started, facts=all_facts)
        for stale in folder.glob("tasks-*"):
            shutil.rmtree(stale, ignore_errors=True)
    return record


def existing_record(
    kind: str, config: Config, context: RunContext, inputs: Mapping[str, str] | None = None
) -> Record | None:
    """The record that is there, if it is whole and not to be computed again; one of other inputs is refused."""
    record = None if context.fresh else find_record(context.root, kind, config)
    if record is not None and inputs is not None and record.facts.get("inputs") != dict(inputs):
        raise ChangedInputError(
            f"{context.root / record.id} was computed from other inputs; compute it again with fresh=True, or use "
            "another folder."
        )
    return record


def list_runs(root: Path) -> list[RunListing]:
    """Every run under `root`, unfinished ones included, by name."""
    runs = [(path, Store(root).facts(f"{path.name}/{RECORD}") or {}) for path in _folders(root)]
    configs = {path.name: dict(flat(facts.get("config") or _settings(path))) for path, facts in runs}
    listings = []
    for path, facts in runs:
        kind = path.name.rpartition("-")[0]
        others = [config for name, config in configs.items() if name != path.name and name.rpartition("-")[0] == kind]
        own = configs[path.name]
        telling = {key: own[key] for key in own if any(other.get(key) != own[key] for other in others)}
        created, took = facts.get("created", ""), facts.get("wall_seconds", 0.0)
        damaged = not facts and (path / f"{RECORD}.json").exists()
        listings.append(RunListing(path.name, kind, created, took, folder_size(path), telling, damaged))
    return listings


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def match_run(root: Path, beginning: str) -> str:
    """The name of the only run under `root` whose name begins with `beginning`."""
    names = [path.name for path in _folders(root)]
    matches = [beginning] if beginning in names else [name for name in names if name.startswith(beginning)]
    if len(matches) != 1:
        if not names:
            raise InputError(f"there is no run in {root}.")
        if not matches:
            raise InputError(f"no run in {root} begins with {beginning!r}; there are {', '.join(names)}.")
        raise InputError(f"name one of the {len(matches)} runs in {root}: {', '.join(matches)}.")
    return matches[0]


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _folders(root: Path) -> list[Path]:
    return [path for path in sorted(root.glob(f"*-{_HASH}")) if path.is_dir()]


def _settings(folder: Path) -> dict[str, Any]:
    try:
        return read_toml(folder / SETTINGS)
    except (InputError, OSError):
        return {}


def _read(root: Path, name: str) -> Record | None:
    entry = Store(root).get(f"{name}/{RECORD}")
    if entry is None:
        return None
    facts = entry.facts
    if not all(isinstance(facts.get(key), kind) for key, kind in _FIELDS.items()) or facts["id"] != name:
        raise InputError(f"{root / name}: the record does not belong to this folder.")
    if set(facts["meanings"]) != set(entry.arrays):
        raise InputError(f"{root / name}: the record does not describe its arrays.")
    return Record(**{key: facts[key] for key in _FIELDS}, arrays=entry.arrays)
