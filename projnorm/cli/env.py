"""`projnorm env`: what a bug report needs to say of this machine and installation."""

from __future__ import annotations

import textwrap
from pathlib import Path

from projnorm.cli.options import OutOption
from projnorm.cli.output import say, say_json

_WIDTH, _MARGIN = 80, 15


def env(out: OutOption) -> None:
    """Print what a bug report needs: versions, machine, libraries; nothing that names a person or a place."""
    from projnorm.environment import diagnose

    found = diagnose(Path(out.out))
    if out.json:
        say_json(found)
        return
    for topic, text in found.items():
        lines = textwrap.wrap(text, _WIDTH - _MARGIN, break_on_hyphens=False)
        say(topic.ljust(_MARGIN) + ("\n" + " " * _MARGIN).join(lines))
