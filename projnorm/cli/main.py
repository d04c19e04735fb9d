"""The entry point of the command ``projnorm``; everything else is imported once it can be interrupted cleanly."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from projnorm.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("projnorm: interrupted\n")
        code = 128 + signal.SIGINT
    sys.exit(code)
