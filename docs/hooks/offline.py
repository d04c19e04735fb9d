"""After the build, every page is searched for resources that a browser would fetch from another host.

The script of the theme would fetch a polyfill in very old browsers, and a library where a page has diagrams; these
addresses are taken out of it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_FETCHED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}
_ELSEWHERE = re.compile(r"^\s*(https?:)?//", re.IGNORECASE)
_SCRIPT_ELSEWHERE = re.compile(r"https://unpkg\.com/[\w./@-]+")
_CSS_ELSEWHERE = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)


def on_post_build(config: dict[str, str]) -> None:
    """Fail the build if a page or a style sheet loads anything from another host."""
    site = Path(config["site_dir"])
    for script in site.rglob("*.js"):
        script.write_text(_SCRIPT_ELSEWHERE.sub("", script.read_text("utf-8")), "utf-8")
    resources = {
        str(page.relative_to(site)): resources_elsewhere(page.read_text("utf-8")) for page in site.rglob("*.html")
    }
    for sheet in site.rglob("*.css"):
        resources[str(sheet.relative_to(site))] = _CSS_ELSEWHERE.findall(sheet.read_text("utf-8"))
    lines = [f"{file} loads {resource}" for file, addresses in resources.items() for resource in addresses]
    if lines:
        raise SystemExit("\n".join(lines))


def resources_elsewhere(html: str) -> list[str]:
    """Addresses on other hosts that a page loads; links that a reader may follow are not among them."""
    parser = _Resources()
    parser.feed(html)
    parser.close()
    return parser.addresses


class _Resources(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self._in_style = tag == "style"
        address = values.get(_FETCHED.get(tag, "")) or ""
        if tag == "link" and values.get("rel") in ("canonical", "prev", "next", "alternate", "author", "license"):
            address = ""
        addresses = [address, *((values.get("srcset") or "").split(","))]
        self.addresses += [address.strip() for address in addresses if _ELSEWHERE.match(address)]
        self.addresses += _CSS_ELSEWHERE.findall(values.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.addresses += _CSS_ELSEWHERE.findall(data)

    def handle_endtag(self, _tag: str) -> None:
        self._in_style = False
