"""Check that names of tests depend on nothing but the source: not on the clock, the process, hash seeds or folders.

Workers of pytest-xdist each collect the tests and compare the names; one that differs stops all of them. So the tests
are collected twice here, seconds apart, in processes with other hash seeds and temporary folders. What else pytest
should be told is passed on: ``python .ci/same_tests.py [ARGUMENTS OF PYTEST]``.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
import time

_SECONDS_APART = 2  # more than the resolution of every clock that a name could hold
_SHOWN = 20
_PLAIN = ("-p", "no:cacheprovider", "-o", "addopts=--doctest-modules")


def collect(hash_seed: int, arguments: list[str]) -> list[str]:
    """Names of all tests, in the order of collection."""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", *_PLAIN, *arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "TMPDIR": folder},
            check=False,
        )
    if ended.returncode:
        sys.exit(f"pytest could not collect the tests:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return [line for line in ended.stdout.splitlines() if "::" in line]


def main() -> None:
    """Collect twice and compare."""
    first = collect(1, sys.argv[1:])
    time.sleep(_SECONDS_APART)
    second = collect(2, sys.argv[1:])
    changed = list(difflib.unified_diff(first, second, "first", "second", lineterm="", n=0))
    if changed:
        sys.exit("\n".join(["These names of tests change from one process to the next:", *changed[:_SHOWN]]))
    sys.stdout.write(f"{len(first):,} tests have the same names in two processes\n")


if __name__ == "__main__":
    main()
