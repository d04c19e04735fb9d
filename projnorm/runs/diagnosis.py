"""What a bug report needs to say of a machine and an installation, without anything that names a person or a place."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import scipy.linalg  # noqa: F401 (brings the BLAS of scipy, which is another than numpy's)
from threadpoolctl import threadpool_info

from projnorm.environment import CORE, EXTRAS, Environment, current_environment, version_of
from projnorm.files import DATA_VARIABLE

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class Blas:
    """A library of linear algebra, or of threads, that is loaded.

    Attributes:
        name: Such as openblas.
        version: As far as it tells.
        architecture: Of the processor, that its code was chosen for.
        threads: That it would use.
    """

    name: str
    version: str | None
    architecture: str | None
    threads: int


@dataclass(frozen=True, slots=True)
class Files:
    """What there is to write to.

    Attributes:
        output: "writable", "not writable" or "not a folder": the output folder, or where it would be made.
        output_free: Bytes free there.
        temporary_free: Bytes free in the folder for temporary files; None where there is none.
    """

    output: str
    output_free: int
    temporary_free: int | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A machine and an installation.

    Attributes:
        environment: What every record says too.
        implementation: Of Python.
        distribution: Name and version of the operating system, and of its C library.
        memory: Bytes of the machine; None where the system does not tell.
        memory_free: Bytes that are free of it.
        memory_limit: Bytes that a container allows, if it does.
        core: Versions of the libraries that everything needs; None for one that is missing.
        extras: Those of each extra.
        blas: What is loaded.
        thread_variables: Environment variables that set numbers of threads, where they are set.
        files: What there is to write to.
        data_variable: Whether PROJNORM_DATA is set.
        encodings: Of the locale, of file names and of the output.
    """

    environment: Environment
    implementation: str
    distribution: str
    memory: int | None
    memory_free: int | None
    memory_limit: int | None
    core: dict[str, str | None]
    extras: dict[str, dict[str, str | None]]
    blas: tuple[Blas, ...]
    thread_variables: dict[str, str]
    files: Files
    data_variable: bool
    encodings: dict[str, str]


def diagnose(out: Path) -> Diagnosis:
    """Look at this process, and at where the output folder `out` is or would be."""
    memory, free = _memory()
    return Diagnosis(
        environment=current_environment(),
        implementation=platform.python_implementation(),
        distribution=_distribution(),
        memory=memory,
        memory_free=free,
        memory_limit=_memory_limit(),
        core={name: version_of(name) for name in CORE},
        extras={extra: {name: version_of(name) for name in names} for extra, names in EXTRAS.items()},
        blas=tuple(
            Blas(str(one["internal_api"]), one.get("version"), one.get("architecture"), int(one["num_threads"]))
            for one in threadpool_info()
        ),
        thread_variables={name: os.environ[name] for name in _THREAD_VARIABLES if name in os.environ},
        files=_files(out),
        data_variable=bool(os.environ.get(DATA_VARIABLE)),
        encodings={
            "locale": ".".join(part or "none" for part in locale.getlocale()),
            "files": sys.getfilesystemencoding(),
            "output": getattr(sys.stdout, "encoding", None) or "none",
        },
    )


def _distribution() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = platform.mac_ver()[0] or platform.release()
    return ", ".join(part for part in (name, " ".join(platform.libc_ver())) if part.strip())


def _memory() -> tuple[int | None, int | None]:
    """Bytes of memory, and those that are free."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = {name: 1024 * int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return found.get("MemTotal"), found.get("MemAvailable")
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), None
    except (AttributeError, OSError, ValueError):
        return None, None


def _memory_limit() -> int | None:
    for path in _MEMORY_LIMITS:
        try:
            limit = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
        if limit < sys.maxsize // 2:
            return limit
    return None


def _files(out: Path) -> Files:
    place = out.absolute()
    while not place.exists():
        place = place.parent
    state = "not a folder"
    if place.is_dir():
        state = "writable" if _can_write(place) else "not writable"
    try:
        temporary = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        temporary = None
    return Files(state, shutil.disk_usage(place).free, temporary)


def _can_write(folder: Path) -> bool:
    """Whether a file can be made there: one without a name is, and is gone again."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError:
        return False
    return True
