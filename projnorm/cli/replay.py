"""`projnorm replay`: the intervals on one saved design."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from projnorm.cli.output import answer
from projnorm.config import Config, setting


@dataclass(frozen=True)
class ReplayOptions(Config):
    """Which design."""

    file: str = setting(help="Design that `projnorm bound` saved.", positional=True)
    json: bool = setting(False, "Print machine-readable output only.")


def replay(options: ReplayOptions) -> int:
    """Check every interval on one saved design. Exit code 1 if one fails where it must hold."""
    from figures.bound import show_instance

    return answer(show_instance(Path(options.file)), as_json=options.json)
