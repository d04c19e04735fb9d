"""`projnorm env` and `projnorm completion`: this installation, for a bug report and for a shell."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

from projnorm.cli.options import OutOption, Parser
from projnorm.cli.output import say, say_json
from projnorm.core.config import Config, setting

_WIDTH, _MARGIN = 80, 15


@dataclass(frozen=True)
class CompletionOptions(Config):
    """Which shell."""

    shell: str = setting("bash", "Shell that the script is for.", choices=("bash", "zsh", "tcsh"), positional=True)


def env(out: OutOption) -> None:
    """Print what a bug report needs: versions, machine, libraries; nothing that names a person or a place."""
    from projnorm.core.environment import diagnose

    facts = diagnose(Path(out.out))
    if out.json:
        say_json(facts)
        return
    for topic, text in facts.items():
        lines = textwrap.wrap(text, _WIDTH - _MARGIN, break_on_hyphens=False)
        say(topic.ljust(_MARGIN) + ("\n" + " " * _MARGIN).join(lines))


def completion(options: CompletionOptions) -> None:
    """Print a completion script: for bash, add `eval "$(projnorm completion bash)"` to ~/.bashrc."""
    import shtab

    say(shtab.complete(_whole_parser(), shell=options.shell))


def _whole_parser() -> Parser:
    """One parser with every command, as shtab reads it."""
    from projnorm.cli.app import GROUPS, SUMMARIES, command_parser
    from projnorm.core.errors import MissingExtraError

    whole = Parser(prog="projnorm")
    places = {"": whole.add_subparsers()}
    for name in sorted(SUMMARIES, key=lambda n: n.count(" ")):
        group, _, last = name.rpartition(" ")
        if group not in places:
            above, _, word = group.rpartition(" ")
            if above not in places:
                places[above] = places[""].add_parser(above, help=GROUPS[above]).add_subparsers()
            places[group] = places[above].add_parser(word, help=GROUPS[group]).add_subparsers()
        try:
            parser = command_parser(name)
            parser.show_all()
        except MissingExtraError:  # an extra that is not installed: nothing to complete
            continue
        added = places[group].add_parser(last, help=SUMMARIES[name], parents=[parser], add_help=False)
        if name == "runs":
            places[name] = added.add_subparsers()
    return whole
