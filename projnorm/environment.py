"""The machine and the library versions behind a number, without anything that names a person or a place."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from projnorm import __version__

# What is needed by everything, and by each extra besides those before it; pyproject.toml says the same.
CORE = ("numpy", "scipy", "matplotlib", "seaborn", "typer", "rich", "joblib", "threadpoolctl", "filelock")
EXTRAS = {
    "cluster": ("distributed",),
    "nn": ("torch", "safetensors", "scikit-learn", "pillow", "pot"),
    "text": ("transformers",),
    "onnx": ("onnxruntime",),
}
# Those that numbers and pictures depend on.
_LIBRARIES = ("numpy", "scipy", "matplotlib", "seaborn", *(name for names in EXTRAS.values() for name in names))


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a result came from.

    Attributes:
        projnorm: Version of this package.
        python: Version of Python.
        system: Operating system and architecture.
        processor: Model name of the processor, as far as the system tells.
        cores: Cores available to the process.
        libraries: Versions of the numerical libraries installed.
    """

    projnorm: str
    python: str
    system: str
    processor: str
    cores: int
    libraries: dict[str, str]


def current_environment() -> Environment:
    """Describe this process."""
    return Environment(
        projnorm=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        libraries={name: version for name in _LIBRARIES if (version := version_of(name)) is not None},
    )


def version_of(name: str) -> str | None:
    """The version of a library that is installed; None for one that is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
