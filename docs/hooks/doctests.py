"""Examples in docstrings, which are doctests, are shown as code on the pages of the API."""

from __future__ import annotations

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig

# From a prompt to the next empty line.
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the rule to the Markdown extensions of every page and docstring."""
    config.markdown_extensions.append(Doctests())  # type: ignore[arg-type]
    return config


class Doctests(Extension):
    """Doctests as fenced code."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the rule before that for fenced code."""
        md.preprocessors.register(_Doctests(md), "doctests", 29)


class _Doctests(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        pieces = _FENCED.split("\n".join(lines))
        pieces[::2] = (_DOCTEST.sub(_fenced, piece) for piece in pieces[::2])
        return "".join(pieces).split("\n")


def _fenced(match: re.Match[str]) -> str:
    indent = match.group(1)
    return f"{indent}```pycon\n{match.group(0)}\n{indent}```"
