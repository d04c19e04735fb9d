r"""Formulas become MathML while the site is built, so that browsers draw them without a script.

Formulas are written in the two forms that GitHub understands, ``$`x`$`` in a line and a fence named ``math``, and as
``.. math::`` or ``:math:`` in docstrings.
"""

from __future__ import annotations

import html
import re
import textwrap
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig

# Formulas in a line with more characters than this, as drawn, may be wider than the screen of a phone.
_LONG = 22
_TAG = re.compile(r"\\tag\{(\w+)\}")
# Browsers ignore the attribute that latex2mathml gives blackboard letters.
_LETTERS = {r"\mathbb E": "𝔼", r"\mathbb{E}": "𝔼", r"\mathbb R": "ℝ", r"\mathbb{R}": "ℝ"}  # noqa: RUF001


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the formulas to the Markdown extensions of every page and docstring."""
    config.markdown_extensions.append(Formulas())  # type: ignore[arg-type]
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {}).setdefault("custom_fences", [])
    fences.append({"name": "math", "class": "formula", "format": displayed})
    return config


def displayed(source: str, *_: Any, **__: Any) -> str:
    """One formula on a line of its own, with its number where it has a tag."""
    number = _TAG.search(source)
    formula = _accented(convert(_plain(_TAG.sub("", source)), display="block"))
    tag = f'<span class="number">({number.group(1)})</span>' if number else ""
    return f'<div class="formula">{formula}{tag}</div>'


class Formulas(Extension):
    """Formulas in running text, and the ``.. math::`` of docstrings."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register both before the rules for code, which would take the backticks."""
        md.preprocessors.register(_DocstringFormulas(md), "docstring_formulas", 28)
        md.inlinePatterns.register(_InlineFormula(r"\$`(.+?)`\$", md), "formula", 200)
        md.inlinePatterns.register(_InlineFormula(r":math:`([^`]+)`", md), "docstring_formula", 201)


class _InlineFormula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], _data: str) -> tuple[str, int, int]:  # type: ignore[override]
        formula = _accented(convert(_plain(m.group(1))))
        if len(re.sub(r"<[^>]*>", "", html.unescape(formula))) > _LONG:
            formula = f'<span class="long-formula">{formula}</span>'
        return self.md.htmlStash.store(formula), m.start(0), m.end(0)


class _DocstringFormulas(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines)
        directive = re.compile(r"^( *)\.\. math::(.*(?:\n\1 +\S.*)*)", re.MULTILINE)

        def fence(match: re.Match[str]) -> str:
            formula = textwrap.dedent(match.group(2)).strip()
            return textwrap.indent(f"```math\n{formula}\n```", match.group(1))

        return directive.sub(fence, text).split("\n")


def _plain(source: str) -> str:
    for letter, symbol in _LETTERS.items():
        source = source.replace(letter, symbol)
    return source.strip()


def _accented(mathml: str) -> str:
    """Say what latex2mathml leaves out: a tilde is an accent, and the bars of a norm have one height."""
    mathml = re.sub(r"<mover>(?=<m[a-z]+[^>]*>[^<]*</m[a-z]+><mo[^>]*>&#x0007E;)", '<mover accent="true">', mathml)
    return mathml.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
