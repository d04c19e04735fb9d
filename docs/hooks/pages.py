"""Pages that are made while the site is built: the API, the command line, and documents from the root.

Links in the documents are written between files of the repository, so that they work on GitHub; here they become links
between pages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import posixpath
import re
import sys
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = ("projnorm", "projnorm_theory", "simulations", "ntk", "deep", "figures")
# Of the ground that the packages share, what somebody who adds to them needs.
GROUND = (
    "projnorm.core.config.setting",
    "projnorm.core.config.Config",
    "projnorm.core.records.Record",
    "projnorm.core.records.recorded",
    "projnorm.core.store.Store",
    "projnorm.core.store.Entry",
    "projnorm.core.errors",
)
# What people open first, as the beginnings of paths.
FIRST = (
    "projnorm.estimate.estimate.",
    "projnorm.estimate.",
    "projnorm.labels.",
    "projnorm.monitor.",
    "projnorm.outputs.",
    "projnorm.estimators.",
    "deep.estimators.",
    "projnorm_theory.",
    "ntk.",
    "simulations.",
)
DOCUMENTS = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the documents of the root, and the records and figures that pages link to."""
    sys.path.insert(0, str(ROOT))  # the packages of this clone, whatever is installed
    for source, target in DOCUMENTS.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    for path in sorted((ROOT / "results").rglob("*.*")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    pages = api_pages() | {"command-line.md": command_line_page()}
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    folder = "" if uri in DOCUMENTS.values() else posixpath.dirname(f"docs/{uri}")

    def rewritten(match: re.Match[str]) -> str:
        before, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(folder, target))
        return before + posixpath.relpath(_on_site(path), posixpath.dirname(uri) or ".")

    return _LINK.sub(rewritten, markdown)


def _on_site(path: str) -> str:
    if path == "README.md":
        return "index.md"
    if path.startswith("examples"):
        return path.replace(".py", ".md") if path.endswith(".py") else "examples.md"
    return DOCUMENTS.get(path, path.removeprefix("docs/"))


def api_pages() -> dict[str, str]:
    """The page of every package: what it exports, each thing documented once."""
    exports = {name: _exports(importlib.import_module(name)) for name in PACKAGES}
    pages: dict[str, str] = {}  # of every thing, the package on whose page it is documented
    for package, public in exports.items():
        pages |= {path: package for path in public.values() if path.partition(".")[0] == package}
    for package, public in reversed(exports.items()):  # the front door comes last
        pages = dict.fromkeys(public.values(), package) | pages
    return {f"api/{name}.md": _api_page(name, exports[name], pages) for name in PACKAGES}


def _exports(package: ModuleType) -> dict[str, str]:
    """The public names of a package in alphabetical order, each with the path of what it names."""
    names = {*getattr(package, "__all__", ()), *dir(package)}
    exported = {}
    for public in sorted(names, key=str.lower):
        value = getattr(package, public)
        if public.startswith("_"):
            continue
        if inspect.ismodule(value) and value.__name__ in PACKAGES:
            exported[public] = value.__name__
        elif inspect.isclass(value) or inspect.isfunction(value):
            exported[public] = f"{value.__module__}.{value.__qualname__}"
    return {public: path for public, path in exported.items() if path.partition(".")[0] in PACKAGES}


def _api_page(name: str, exports: dict[str, str], pages: dict[str, str]) -> str:
    package = importlib.import_module(name)
    text, documented = [f"# {name}\n", inspect.getdoc(package) or "", ""], []
    rows = []
    for public, path in sorted(exports.items(), key=lambda export: _place(export[1])):
        if path in PACKAGES:
            rows.append(f"| [`{public}`]({path}.md) | the package `{path}` |")
            continue
        module, _, attribute = path.rpartition(".")
        exported = getattr(importlib.import_module(module), attribute)
        rows.append(f"| [`{public}`][{path}] | {_summary(exported)} |")
        if pages[path] == name:
            documented += [f"::: {name}.{public}", *_settings(exported), ""]
    text += [f"| `{name}.` | what it is |", "| --- | --- |", *rows, ""]
    if name == "projnorm":
        documented += [f"::: {path}\n" for path in GROUND]
    return "\n".join([*text, *documented])


def _place(path: str) -> int:
    """Where a name stands on a page: what people open first comes first, all else in alphabetical order after it."""
    return next((place for place, prefix in enumerate(FIRST) if path.startswith(prefix)), len(FIRST))


def _summary(exported: object) -> str:
    """The first sentence of a docstring, fit for a table."""
    paragraph = (inspect.getdoc(exported) or "").partition("\n\n")[0].replace("\n", " ")
    return paragraph.replace("|", "\\|")


def _settings(exported: object) -> list[str]:
    """The settings of a configuration as a table, in place of a signature; nothing for anything else."""
    from projnorm.core.config import Config, settings

    if not (inspect.isclass(exported) and issubclass(exported, Config)):
        return []
    rows = []
    for declared in settings(exported):
        default = "required" if declared.default is dataclasses.MISSING else f"`{_default(declared.default)}`"
        rows.append(f"| `{declared.name}` | {default} | {declared.rule.help} |".replace("\n", " "))
    hidden = ["    options:", "      members: false", "      show_signature: false"]
    return [*hidden, "", "| setting | default | meaning |", "| --- | --- | --- |", *rows]


def _default(value: object) -> str:
    return f"{type(value).__name__}()" if dataclasses.is_dataclass(value) else str(value)


def command_line_page() -> str:
    """The help of every command, as it prints it."""
    from projnorm.cli.app import SECTIONS, SUMMARIES

    listed = [name for names in SECTIONS.values() for name in names]

    def place(name: str) -> int:
        return next(number for number, listed_name in enumerate(listed) if f"{name} ".startswith(f"{listed_name} "))

    text = [
        "# Command line\n",
        "Every command with its settings, as `--help-all` prints them. `--config FILE` reads settings from a TOML",
        "file; every run saves one that repeats it. Exit codes: 0 for success, 1 for a negative answer, 2 for bad",
        "input, 70 for a bug, 130 when interrupted.\n",
    ]
    text += [f"## projnorm {name}\n\n```text\n{_help(name)}```\n" for name in ("", *sorted(SUMMARIES, key=place))]
    return "\n".join(text)


def _help(name: str) -> str:
    from projnorm.cli.app import run

    os.environ["COLUMNS"] = "80"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if run([*name.split(), "--help-all" if name else "--help"]):
            raise SystemExit(f"`projnorm {name} --help-all` failed")
    return printed.getvalue()
