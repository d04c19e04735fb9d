"""One self-contained HTML page: pictures, tables and the configuration behind them. It opens from disk, offline."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from figures.report import Report, save_figures, save_tables
from figures.style import FORMATS, rendered
from figures.table import Table, to_html
from projnorm.core.records import flat

_LAST_LINK = '<li><a href="#provenance">Where this came from</a></li>'


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a page: its heading, its body as HTML, and the answer for the top of the page in one sentence."""

    title: str
    body: str
    verdict: str = ""


def section(
    report: Report,
    folder: Path | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    width: str | float | None = None,
) -> Section:
    """What a record says as a part of a page: its pictures first, its configuration folded away at the end.

    The figures are saved in `folder`, unless they are there already, in these formats and SVG, which the page embeds,
    and the tables beside them; without a folder they are for the page only. The width is that of `figures.style.save`.
    """
    if folder is not None:
        save_figures(report, folder, formats=tuple(dict.fromkeys((*formats, "svg"))), width=width)
        save_tables(report, folder)
    parts, captions = [], {drawing.caption for drawing in report.figures.values()}
    for name, drawing in report.figures.items():
        svg = rendered(drawing(), "svg") if folder is None else (folder / f"{name}.svg").read_bytes()
        if drawing.title != report.title and len(report.figures) > 1:
            parts.append(f"<h3>{to_html(drawing.title)}</h3>")
        source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode('ascii')}"
        parts.append(f'<figure><img alt="{html.escape(drawing.caption)}" src="{source}"></figure>')
        parts.append(f"<p>{to_html(drawing.caption)}</p>")
    for block in report.blocks:
        if isinstance(block, Table):
            parts.append(block.html())
        elif block not in captions:
            parts.append(f"<p>{to_html(block)}</p>")
    if (record := report.record) is not None:
        settings = _settings({"record": record.id, "created": record.created, **record.config}, "setting")
        parts.append(f"<details><summary>Configuration</summary>{settings}</details>")
    return Section(report.title, "\n".join(parts), report.verdict)


def page(title: str, introduction: str, sections: Sequence[Section], provenance: Mapping[str, object]) -> str:
    """The whole document: the answers first, then the contents, every section, and how it was made (`provenance`)."""
    verdicts = "".join(f"<li>{to_html(part.verdict)}</li>" for part in sections if part.verdict)
    links = "".join(f'<li><a href="#s{i}">{to_html(part.title)}</a></li>' for i, part in enumerate(sections))
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(title),
        introduction=to_html(introduction),
        verdict=f'<div class="verdict"><ul>{verdicts}</ul></div>' if verdicts else "",
        contents=f"<nav><ul>{links}{_LAST_LINK}</ul></nav>" if len(sections) > 1 else "",
        sections="\n".join(f'<h2 id="s{i}">{to_html(part.title)}</h2>\n{part.body}' for i, part in enumerate(sections)),
        provenance=_settings(provenance, "what"),
    )


def _settings(settings: Mapping[str, object], first: str) -> str:
    """A table of settings, those of a nested configuration by their dotted names."""
    return Table((first, "value"), [(key, _plain(value)) for key, value in flat(settings)]).html()


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)
