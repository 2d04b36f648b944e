"""What mkdocs calls: pages made of the code, and documents that lie outside ``docs``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File
from sitepages.benchmarktables import benchmark_text
from sitepages.commands import commands_page
from sitepages.documents import CARRIED, OUTSIDE, Documents, github_slug
from sitepages.figures import stylesheet, with_figures
from sitepages.interface import interface_page
from sitepages.measures import measures_page
from sitepages.sdk import errors_page, sdk_page
from sitepages.settings import settings_page

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = Documents(ROOT)


def on_config(config: MkDocsConfig) -> None:
    """Headings are named as GitHub names them, so that one link serves both."""
    config.mdx_configs["toc"]["slugify"] = github_slug


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what does not lie in ``docs``."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    for name, text in made_pages().items():
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "figures.css", content=stylesheet()))
    for path in DOCUMENTS.carried():
        files.append(File.generated(config, f"{CARRIED}/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Rewrite links for the site and insert the figures."""
    name = page.file.src_uri
    if name not in DOCUMENTS.pages.values():
        return markdown
    return with_figures(DOCUMENTS.relinked(markdown, name), benchmark_text(ROOT))


def made_pages() -> dict[str, str]:
    """References by name."""
    description = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    return {
        "reference/commands.md": commands_page(),
        "reference/configuration.md": settings_page(),
        "reference/rest.md": interface_page(description),
        "reference/metrics.md": measures_page(),
        "reference/sdk.md": sdk_page(),
        "reference/errors.md": errors_page(),
    }
