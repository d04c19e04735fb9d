"""The `projnorm` command and how it fails: one line on stderr, never a traceback for a bad input."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from projnorm import __version__
from projnorm.cli import demo

app = typer.Typer(
    name="projnorm",
    help="How wrong will a model be on new, unlabelled data? The Projection Norm, in theory and practice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.run)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"projnorm {__version__}")
        raise typer.Exit


@app.callback()
def _projnorm(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before any sub-command."""


def main() -> None:
    """Run the command line: exit code 2 and one line on stderr for anything wrong with what was asked."""
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(error.format_message())
    except (ValueError, OSError) as error:
        _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> None:
    sys.stderr.write(f"projnorm: {' '.join(message.split())}\n")
    sys.exit(2)
