"""One self-contained HTML page: pictures, tables and the configuration behind them. It opens from disk, offline."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from figures.markup import to_html
from figures.show import Drawing, Shown, save_figures
from figures.style import FORMATS, rendered
from figures.table import Table
from projnorm.records import flat

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
    """The whole document: the answers first, then the contents, every section, and how it was made (`provenance`)."""
    verdicts = "".join(f"<li>{to_html(one.verdict)}</li>" for one in sections if one.verdict)
    links = "".join(f'<li><a href="#s{i}">{to_html(one.title)}</a></li>' for i, one in enumerate(sections))
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
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
