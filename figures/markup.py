"""Text with inline code and a few mathematical words, as HTML and as LaTeX."""

from __future__ import annotations

import html
import re

# Word in plain text: its LaTeX and its HTML.
_MATHS = {
    "R^2": ("$R^2$", "R<sup>2</sup>"),
    "rho": (r"$\rho$", "&rho;"),
    "sigma": (r"$\sigma$", "&sigma;"),
    "±": (r"$\pm$", "±"),
}
_WORD = re.compile(r"(R\^2|\brho\b|\bsigma\b|±)")
_CODE = re.compile(r"`([^`]+)`")
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"} | {
    character: f"\\{character}" for character in "&%$#_{}"
}


def to_html(text: str) -> str:
    """Escaped, with what stands in backticks as code."""
    parts = _CODE.split(text)
    for i, part in enumerate(parts):
        escaped = html.escape(part)
        parts[i] = f"<code>{escaped}</code>" if i % 2 else _WORD.sub(lambda word: _MATHS[word[0]][1], escaped)
    return "".join(parts)


def to_latex(text: str) -> str:
    """Escaped, with mathematical words as formulas."""
    parts = _WORD.split(text)
    return "".join(
        _MATHS[part][0] if i % 2 else "".join(_LATEX.get(character, character) for character in part)
        for i, part in enumerate(parts)
    )
