"""`projnorm env`: what a bug report needs to say of this machine and installation."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import typer

from projnorm.cli.options import OUT, Json, Out, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from projnorm.runs.diagnosis import Diagnosis

_WIDTH = 100
_MARGIN = 15


def run(out: Out = OUT, as_json: Json = False) -> None:
    """Print what a bug report needs: versions, machine, libraries; nothing that names a person or a place."""
    from dataclasses import asdict

    from projnorm.environment import version_of

    torch = _torch() if version_of("torch") is not None else {"problem": "not installed"}
    # After torch, which brings libraries of its own.
    from projnorm.runs.diagnosis import diagnose

    found = diagnose(out)
    if as_json:
        typer.echo(to_json({**asdict(found), "torch": torch}))
        return
    typer.echo(f"projnorm {found.environment.projnorm}")
    for name, text in _lines(found, torch):
        lines = textwrap.wrap(text, _WIDTH - _MARGIN, break_on_hyphens=False)
        typer.echo(textwrap.indent("\n".join(lines), " " * _MARGIN).replace(" " * _MARGIN, name.ljust(_MARGIN), 1))


def _torch() -> dict[str, Any]:
    """What torch says of itself, or why it says nothing; a message of an import may name a folder and is left out."""
    from dataclasses import asdict

    try:
        from projnorm.device import torch_facts
    except ModuleNotFoundError as error:
        return {"problem": f"installed, but {error.name} is missing"}
    except (ImportError, OSError) as error:
        return {"problem": f"installed, but cannot be imported ({type(error).__name__})"}
    return asdict(torch_facts())


def _lines(found: Diagnosis, torch: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    where = found.environment
    yield "python", f"{where.python} ({found.implementation})"
    yield "system", f"{where.system}, {found.distribution}"
    yield "processor", f"{where.processor}, {where.cores} cores for this process"
    limit = "" if found.memory_limit is None else f", {_size(found.memory_limit)} allowed"
    yield "memory", f"{_size(found.memory)}, {_size(found.memory_free)} free{limit}"
    yield "libraries", _versions(found.core)
    for extra, libraries in found.extras.items():
        yield f"extra {extra}", _versions(libraries)
    yield "torch", str(torch.get("problem") or _spoken(torch))
    yield (
        "BLAS",
        "; ".join(
            " ".join(part for part in (one.name, one.version, one.architecture, f"{one.threads} threads") if part)
            for one in found.blas
        ),
    )
    if found.thread_variables:
        yield "threads", ", ".join(f"{name}={value}" for name, value in found.thread_variables.items())
    files = found.files
    free = f"{_size(files.output_free)} free; temporary folder {_size(files.temporary_free)} free"
    yield "output", f"folder {files.output}, {free}"
    yield "data", f"PROJNORM_DATA is {'set' if found.data_variable else 'not set'}"
    yield "text", ", ".join(f"{what} {encoding}" for what, encoding in found.encodings.items())
    missing = [extra for extra, libraries in found.extras.items() if None in libraries.values()]
    if missing:
        yield "missing", f"extras {', '.join(missing)}: pip install '.[{','.join(missing)}]' in the project's folder"


def _versions(libraries: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'missing'}" for name, version in libraries.items())


def _spoken(torch: Mapping[str, Any]) -> str:
    return f"{torch['version']} on {'; '.join(torch['devices'])} ({torch['processor']}), {torch['threads']} threads"


def _size(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
