"""The `projnorm` command and how it fails: one line on stderr, never a traceback for a bad input."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Annotated

import typer

from projnorm import __version__
from projnorm.cli import bound, deep, deep_analyses, deep_text, env, ntk, predict, report, runs, toy, verify

_INTERRUPTED = 130
_PIPE_CLOSED = 141
# Of the extras, without which the theory works and the commands on networks do not.
_EXTRAS = {
    "torch": "nn",
    "sklearn": "nn",
    "safetensors": "nn",
    "PIL": "nn",
    "ot": "nn",
    "onnxruntime": "onnx",
    "dask": "cluster",
    "distributed": "cluster",
    "transformers": "text",
    "huggingface_hub": "text",
}

app = typer.Typer(
    name="projnorm",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("report")(report.run_report)
app.command("toy")(toy.run)
app.command("bound")(bound.run)
app.command("figures")(report.run_figures)
app.command("predict")(predict.run)
app.add_typer(ntk.app, name="ntk")
deep.app.command("text")(deep_text.run_text)
deep.app.command("sweep")(deep_analyses.run_sweep)
deep.app.command("trajectory")(deep_analyses.run_trajectory)
deep.app.command("residuals")(deep_analyses.run_residuals)
deep.app.command("ensemble")(deep_analyses.run_ensemble)
deep.app.command("adversarial")(deep_analyses.run_adversarial)
deep.app.command("label-shift")(deep_analyses.run_label_shift)
deep.app.command("small-samples")(deep_analyses.run_small_samples)
app.add_typer(deep.app, name="deep")
runs.app.command("verify")(verify.run)
app.add_typer(runs.app, name="runs")
app.command("env")(env.run)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"projnorm {__version__}")
        raise typer.Exit


@app.callback()
def _projnorm(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """How wrong will a model be on new, unlabelled data? The Projection Norm, in theory and practice."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line: exit code 2 and one line on stderr for anything wrong with what was asked."""
    try:
        with _notices_shown():
            code = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(error.format_message())
    except ValueError as error:
        _fail(str(error))
    except SystemExit:  # in this mode only a closed pipe ends here; 1 would read as a broken bound
        sys.exit(_PIPE_CLOSED)
    except MemoryError:
        _fail("not enough memory for these sizes")
    except BrokenExecutor:
        _fail("a worker process was killed, perhaps for want of memory; the same command goes on from here")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        extra = f"pip install '.[{_EXTRAS[error.name]}]' in the project's folder"
        _fail(f"this command needs {error.name}, which is not installed: {extra}")
    except OSError as error:
        _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    else:
        if code == _INTERRUPTED:
            sys.stderr.write("projnorm: interrupted; the same command goes on from here\n")
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _notices_shown() -> Iterator[None]:
    """What the library has to say on the way is a line on stderr too."""
    logger = logging.getLogger("projnorm")  # of projnorm.runs.notices, which would import numpy for --help
    handler, propagate = logging.StreamHandler(), logger.propagate
    handler.setFormatter(logging.Formatter("projnorm: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _fail(message: str) -> None:
    sys.stderr.write(f"projnorm: {' '.join(message.split())}\n")
    sys.exit(2)
