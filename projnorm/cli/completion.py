"""`projnorm completion`: scripts that complete commands and options in a shell."""

from __future__ import annotations

from dataclasses import dataclass

from projnorm.cli.options import Parser
from projnorm.cli.output import say
from projnorm.config import Config, setting


@dataclass(frozen=True)
class CompletionOptions(Config):
    """Which shell."""

    shell: str = setting("bash", "Shell that the script is for.", choices=("bash", "zsh", "tcsh"), positional=True)


def completion(options: CompletionOptions) -> None:
    """Print a completion script: for bash, add `eval "$(projnorm completion bash)"` to ~/.bashrc."""
    import shtab

    say(shtab.complete(_whole_parser(), shell=options.shell))


def _whole_parser() -> Parser:
    """One parser with every command, as shtab reads it."""
    from projnorm.cli.app import GROUPS, SUMMARIES, command_function
    from projnorm.cli.experiment import experiment_parser
    from projnorm.cli.options import make_parser
    from projnorm.errors import MissingExtraError
    from projnorm.experiments import EXPERIMENTS

    whole = Parser(prog="projnorm")
    places = {"": whole.add_subparsers()}
    for name in sorted(SUMMARIES, key=lambda n: n.count(" ")):
        group, _, last = name.rpartition(" ")
        if group and group not in places:
            places[group] = places[""].add_parser(group, help=GROUPS[group]).add_subparsers()
        try:
            parser = next((experiment_parser(one) for one in EXPERIMENTS if one.command == name), None)
            if parser is None:
                parser = make_parser(name, "", command_function(name)[1])
        except MissingExtraError:  # an extra that is not installed: nothing to complete
            continue
        added = places[group].add_parser(last, help=SUMMARIES[name], parents=[parser], add_help=False)
        if name == "runs":
            places[name] = added.add_subparsers()
    return whole
