"""The site is built without a warning, and needs nothing from the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

if TYPE_CHECKING:
    from pathlib import Path

Attributes = list[tuple[str, str | None]]


class Page(HTMLParser):
    """The URLs that a built page fetches, its links, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("script", "img", "iframe", "source") and "src" in given:
            self.fetched.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(given["href"])
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built one time, into a separate directory; fails with the output of mkdocs."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-f", str(root / "mkdocs.yml"), "-d", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [line for line in said.splitlines() if not line.startswith("INFO")] == []
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


@pytest.mark.xdist_group("site")
def test_nothing_is_fetched_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert len(pages) > 20
    for path, page in pages.items():
        assert [address for address in page.fetched if urlsplit(address).netloc] == [], path
    for sheet in site.rglob("*.css"):
        assert re.findall(r"@import|url\([\"']?(?:https?:)?//", sheet.read_text()) == [], sheet


@pytest.mark.xdist_group("site")
def test_every_link_within_it_leads_to_a_page_and_a_place(site: Path, pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in pages.items():
        if path.name == "404.html":  # its addresses count from the server's root
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            known = pages[target].ids if target in pages else set()
            if not target.exists() or (place and target.suffix == ".html" and place not in known):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []
