"""A coverage-guided fuzzer on the binary readers: atheris, in a process of its own for each.

``python -m tests.reliability.coverage_guided --seconds 60`` fuzzes each in turn and prints what it found as JSON; names
behind it choose some. Needs the extra `fuzz`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_MEGABYTES = 3000
_SECONDS_AN_INPUT = 5
_LARGEST_INPUT = 200_000


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """What a time of fuzzing found.

    Attributes:
        reader: Its name.
        executions: Inputs tried.
        coverage: Branches that were seen.
        failures: What went wrong: another exception, too slow, too much memory.
    """

    reader: str
    executions: int
    coverage: int
    failures: tuple[str, ...]


def is_installed() -> bool:
    """Whether there is a fuzzer."""
    return importlib.util.find_spec("atheris") is not None


def fuzz(reader: str, seconds: float, seed: int) -> Fuzzed | None:
    """Fuzz one reader for so long, with whole files to begin with; None where atheris is not installed."""
    if not is_installed():
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("corpus", "found", "work"):
            (folder / part).mkdir()
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.reliability.coverage_target",
                reader,
                str(folder / "work"),
                str(folder / "corpus"),
                f"-max_total_time={max(1, round(seconds))}",
                f"-rss_limit_mb={_MEGABYTES}",
                f"-timeout={_SECONDS_AN_INPUT}",
                f"-report_slow_units={_SECONDS_AN_INPUT}",
                f"-max_len={_LARGEST_INPUT}",
                f"-seed={seed + 1}",
                f"-artifact_prefix={folder / 'found'}/",
                "-print_final_stats=1",
            ],
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)},
            cwd=_ROOT,
            check=False,
        )
        said = ended.stdout + ended.stderr
        failures = [f"{path.name}: {path.read_bytes()[:2000].hex()}" for path in sorted((folder / "found").iterdir())]
        if ended.returncode or failures:
            failures.append(f"ended with {ended.returncode}: {_reason(said)}")
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    coverage = re.findall(r"cov: (\d+)", said)
    return Fuzzed(
        reader, int(executions[1]) if executions else 0, int(coverage[-1]) if coverage else 0, tuple(failures)
    )


def _reason(said: str) -> str:
    exceptions = [line for line in said.splitlines() if "Error" in line or "ERROR" in line]
    return " | ".join(exceptions[:3])[:600] or said[-300:]


def main() -> None:
    """Fuzz what is asked for and print it."""
    from tests.reliability.readers import READERS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", nargs="*", help="names of readers; all binary ones")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = asked.readers or [name for name, reader in READERS.items() if reader.modules]
    for name in names:
        found = fuzz(name, asked.seconds, asked.seed)
        if found is None:
            sys.exit("atheris is not installed: pip install '.[fuzz]' in the project's folder")
        sys.stdout.write(json.dumps(asdict(found)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
