"""One self-contained HTML page: pictures, tables and the configuration behind them. It opens from disk, offline."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from figures.markup import to_html
from figures.show import Drawing, Shown, save_figures
from figures.style import FORMATS, rendered
from figures.table import Table
from projnorm.records import flat

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --rule: #d0d0d0; --soft: #5a5a5a; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e6e6; --paper: #16181a; --rule: #3a3d40; --soft: #a5a5a5; }}
}}
body {{ margin: 0 auto; max-width: 58rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }}
h2 {{ font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }}
h2, p, li {{ overflow-wrap: anywhere; }}
h3 {{ font-size: 1rem; margin: 1.5rem 0 .5rem; }}
a {{ color: inherit; }}
code {{ font: .9em ui-monospace, monospace; }}
figure {{ margin: 1rem 0; background: #ffffff; border-radius: 6px; padding: .5rem; }}
figure img {{ display: block; width: 100%; height: auto; }}
.verdict {{ border-left: 4px solid var(--rule); padding: .1rem 0 .1rem 1rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }}
th, td {{ padding: .25rem .75rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }}
th.number, td.number {{ text-align: right; }}
details {{ color: var(--soft); font-size: .85rem; margin-top: 1rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{introduction}</p>
{verdict}
{contents}
{sections}
<h2 id="provenance">Where this came from</h2>
{provenance}
</body>
</html>
"""


_LAST_LINK = '<li><a href="#provenance">Where this came from</a></li>'


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page.

    Attributes:
        svg: The figure as an SVG file.
        caption: What to see in it.
        title: Heading above it, where a section has several.
    """

    svg: bytes
    caption: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a page.

    Attributes:
        title: Heading.
        blocks: Text, tables and pictures in order; or one text.
        verdict: The answer in one sentence, which also stands at the top of the page.
        configuration: What was run, folded away below.
    """

    title: str
    blocks: Sequence[str | Table | Picture] | str
    verdict: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)


def section(
    shown: Shown,
    folder: Path | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    width: str | float | None = None,
) -> Section:
    """What a record says as a part of a page.

    Args:
        shown: What the record says.
        folder: Folder that the figures are saved in, unless they are there already; the page embeds these files. None
            if they are for the page only.
        formats: File formats of the figures that are saved, besides the SVG files that the page needs.
        width: Width of the figures, as in `figures.style.save`.

    Raises:
        OSError: If a figure cannot be written.
    """
    pictures = []
    if folder is not None:
        save_figures(shown, folder, formats=tuple(dict.fromkeys((*formats, "svg"))), width=width)
    for name, drawing in shown.figures.items():
        svg = rendered(drawing(), "svg") if folder is None else (folder / f"{name}.svg").read_bytes()
        caption, title = (drawing.caption, drawing.title) if isinstance(drawing, Drawing) else ("", "")
        pictures.append(Picture(svg, caption, title if len(shown.figures) > 1 and title != shown.title else ""))
    captions = {picture.caption for picture in pictures}
    record = shown.record
    return Section(
        shown.title,
        [*pictures, *(block for block in shown.blocks if not isinstance(block, str) or block not in captions)],
        shown.verdict,
        {} if record is None else {"record": record.id, "created": record.created, **record.config},
    )


def page(title: str, introduction: str, sections: Sequence[Section], provenance: Mapping[str, object]) -> str:
    """The whole document: the answers first, then the contents, then every section.

    Args:
        title: Title of the page.
        introduction: What it is about.
        sections: Its parts.
        provenance: When, where and with what it was made.
    """
    verdicts = "".join(f"<li>{to_html(one.verdict)}</li>" for one in sections if one.verdict)
    links = "".join(f'<li><a href="#s{i}">{to_html(one.title)}</a></li>' for i, one in enumerate(sections))
    return _PAGE.format(
        title=html.escape(title),
        introduction=to_html(introduction),
        verdict=f'<div class="verdict"><ul>{verdicts}</ul></div>' if verdicts else "",
        contents=f"<nav><ul>{links}{_LAST_LINK}</ul></nav>" if len(sections) > 1 else "",
        sections="\n".join(_section(f"s{i}", one) for i, one in enumerate(sections)),
        provenance=_settings(provenance, "what"),
    )


def _section(anchor: str, section: Section) -> str:
    parts = [f'<h2 id="{anchor}">{to_html(section.title)}</h2>']
    for block in [section.blocks] if isinstance(section.blocks, str) else section.blocks:
        if isinstance(block, Picture):
            data = base64.b64encode(block.svg).decode("ascii")
            alt = html.escape(block.caption, quote=True)
            parts += [f"<h3>{to_html(block.title)}</h3>"] if block.title else []
            parts.append(f'<figure><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></figure>')
            parts.append(f"<p>{to_html(block.caption)}</p>")
        else:
            parts.append(block.html() if isinstance(block, Table) else f"<p>{to_html(block)}</p>")
    if section.configuration:
        settings = _settings(section.configuration, "setting")
        parts.append(f"<details><summary>Configuration</summary>{settings}</details>")
    return "\n".join(parts)


def _settings(settings: Mapping[str, object], first: str) -> str:
    """A table of settings, those of a nested configuration by their dotted names."""
    return Table((first, "value"), [(key, _plain(value)) for key, value in flat(settings)]).html()


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
