"""One self-contained HTML page: pictures, tables and the configuration behind them. It opens from disk, offline."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from figures.style import rendered
from figures.table import Table

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
h1 {{ font-size: 1.6rem; line-height: 1.25; }}
h2 {{ font-size: 1.2rem; margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: 1rem; }}
figure {{ margin: 1rem 0; background: #ffffff; border-radius: 6px; padding: .5rem; }}
figure img {{ display: block; width: 100%; height: auto; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }}
th, td {{ padding: .25rem .75rem .25rem 0; text-align: left; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }}
.note, details {{ color: var(--soft); font-size: .85rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{introduction}</p>
{sections}
<h2>Where this came from</h2>
{provenance}
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One picture or table with what to read from it.

    Attributes:
        title: Heading.
        text: Two sentences or so: what to see.
        figure: The picture, if any.
        table: The numbers, if any.
        table_caption: How to read them.
        configuration: What was run to get them.
    """

    title: str
    text: str
    figure: Figure | None = None
    table: Table | None = None
    table_caption: str = ""
    configuration: Mapping[str, object] = field(default_factory=dict)


def page(title: str, introduction: str, sections: Sequence[Section], provenance: Mapping[str, object]) -> str:
    """The whole document."""
    return _PAGE.format(
        title=html.escape(title),
        introduction=html.escape(introduction),
        sections="\n".join(map(_section, sections)),
        provenance=Table(("what", "value"), [(key, str(value)) for key, value in provenance.items()]).html(),
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    if section.figure is not None:
        data = base64.b64encode(rendered(section.figure, "svg")).decode("ascii")
        alt = html.escape(section.text, quote=True)
        parts.append(f'<figure><img alt="{alt}" src="data:image/svg+xml;base64,{data}"></figure>')
    parts.append(f"<p>{html.escape(section.text)}</p>")
    if section.table is not None:
        parts.append(section.table.html())
    if section.table_caption:
        parts.append(f'<p class="note">{html.escape(section.table_caption)}</p>')
    if section.configuration:
        rows = [(key, str(value)) for key, value in section.configuration.items()]
        parts.append(f"<details><summary>Configuration</summary>{Table(('setting', 'value'), rows).html()}</details>")
    return "\n".join(parts)
