"""The machine and the library versions behind a number, without anything that names a person or a place."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from projnorm import __version__
from projnorm.core.files import DATA_VARIABLE, physical_memory
from projnorm.core.lazy import version_of

# Libraries of the core, and of each extra besides those before it; pyproject.toml says the same.
CORE = ("numpy", "scipy", "matplotlib", "seaborn", "rich", "joblib", "threadpoolctl", "filelock", "pot", "shtab")
EXTRAS = {
    "cluster": ("distributed",),
    "nn": ("torch", "safetensors", "scikit-learn", "pillow"),
    "text": ("transformers",),
    "onnx": ("onnxruntime",),
    "tables": ("pandas", "pyarrow"),
}
# Those that numbers and pictures depend on.
_LIBRARIES = ("numpy", "scipy", "matplotlib", "seaborn", "pot", *(name for names in EXTRAS.values() for name in names))
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_MEMORY_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def current_environment() -> dict[str, Any]:
    """Where a result comes from: versions of the package, Python and numerical libraries, system and processor."""
    return {
        "projnorm": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": available_cores(),
        "libraries": {name: version for name in _LIBRARIES if (version := version_of(name)) is not None},
    }


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def diagnose(out: Path) -> dict[str, str]:
    """Facts about this machine, installation and output folder for a bug report, by topic."""
    torch = _torch()  # first, since it loads libraries of its own
    here = current_environment()
    facts = {
        "projnorm": here["projnorm"],
        "python": f"{here['python']} ({platform.python_implementation()})",
        "system": ", ".join(part for part in (here["system"], _distribution(), " ".join(platform.libc_ver())) if part),
        "processor": f"{here['processor']}, {here['cores']} cores for this process",
        "memory": f"{physical_memory() / 1e9:.1f} GB{_memory_limit()}",
        "libraries": _versions(CORE),
        **{f"extra {extra}": _versions(names) for extra, names in EXTRAS.items()},
        "torch": torch,
        "BLAS": _blas(),
        "threads": ", ".join(f"{name}={os.environ[name]}" for name in _THREAD_VARIABLES if name in os.environ),
        "output": _output(out),
        "data": f"{DATA_VARIABLE} is {'set' if os.environ.get(DATA_VARIABLE) else 'not set'}",
        "text": f"files {sys.getfilesystemencoding()}, output {getattr(sys.stdout, 'encoding', None) or 'unknown'}",
    }
    missing = [extra for extra, names in EXTRAS.items() if None in map(version_of, names)]
    if missing:
        facts["missing"] = f"extras {', '.join(missing)}: pip install '.[{','.join(missing)}]' in a clone"
    return {topic: text for topic, text in facts.items() if text}


def _versions(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} {version_of(name) or 'missing'}" for name in names)


def _torch() -> str:
    """Version and devices of torch, or why there is none; an import's message may name a folder and is left out."""
    try:
        from projnorm.core.device import describe_torch
    except ModuleNotFoundError as error:
        return f"{error.name} is not installed"
    except (ImportError, OSError) as error:
        return f"installed, but cannot be imported ({type(error).__name__})"
    return describe_torch()


def _blas() -> str:
    import scipy.linalg  # noqa: F401 (loads the BLAS of scipy, which is another than numpy's)
    from threadpoolctl import threadpool_info

    rows = [
        (pool["internal_api"], pool.get("version"), pool.get("architecture"), f"{pool['num_threads']} threads")
        for pool in threadpool_info()
    ]
    return "; ".join(" ".join(str(part) for part in row if part) for row in rows)


def _output(out: Path) -> str:
    folder = out.absolute()
    while not folder.exists():
        folder = folder.parent
    free = f"{shutil.disk_usage(folder).free / 1e9:.1f} GB free"
    if not folder.is_dir():
        return f"not a folder, {free}"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
            file.flush()
    except OSError:
        return f"folder is not writable, {free}"
    return f"folder is writable, {free}"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.mac_ver()[0] or platform.release()


def _memory_limit() -> str:
    for path in _MEMORY_LIMITS:
        try:
            limit = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):  # there is none, or it is "max"
            continue
        if limit < sys.maxsize // 2:
            return f", {limit / 1e9:.1f} GB allowed"
    return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
