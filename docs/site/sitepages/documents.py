"""Documents of the repository as pages: which they are, and links from one to another as the site has them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

OUTSIDE = {
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "mirage/DESIGN.md": "design.md",
    "plugins/README.md": "plugins.md",
    "slurm-testbed/README.md": "testbed.md",
}
"""Documents that lie where a reader of the repository looks for them: page by path."""

MADE_FROM = {"README.md": "index.md", "docs/man": "reference/commands.md"}
"""What the site has in another form: page by path."""

CARRIED = "files"
"""Directory of the site for files of the repository that documents point at."""

_DOCS = "docs"
_LINK = re.compile(
    r"(?P<label>\[(?:[^\[\]]|\[[^\]]*\])*\])"  # an image may stand within
    r"\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]+)?\)"
)
_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def github_slug(heading: str, separator: str = "-") -> str:
    """The anchor of a heading, as GitHub names it: documents are read there, too."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", separator)


@dataclass(frozen=True, slots=True)
class Documents:
    """The repository at ``root``, seen from the site."""

    root: Path
    pages: dict[str, str] = field(init=False)
    """Page by path in the repository."""

    def __post_init__(self) -> None:
        docs = self.root / _DOCS
        own = {str(path.relative_to(self.root)): str(path.relative_to(docs)) for path in docs.rglob("*.md")}
        object.__setattr__(self, "pages", own | OUTSIDE)

    def path_of(self, page: str) -> str:
        """Where in the repository a page is written; for one that is made the empty text."""
        return next((path for path, name in self.pages.items() if name == page), "")

    def carried(self) -> Iterator[str]:
        """Files outside ``docs`` that some document points at; each once."""
        seen = set()
        for path in self.pages:
            for target in self._targets((self.root / path).read_text(encoding="utf-8"), path):
                if target not in seen and self._is_carried(target):
                    seen.add(target)
                    yield target

    def relinked(self, text: str, page: str) -> str:
        """The text of a page with its links as the site has them; a directory's link leaves its words."""
        path = self.path_of(page)

        def moved(link: re.Match[str]) -> str:
            label, target, anchor = link["label"], link["path"], link["anchor"] or ""
            if not target:
                return link[0]
            there = self._page(_resolved(path, target))
            if not there:
                return label[1:-1]
            return f"{label}({posixpath.relpath(there, posixpath.dirname(page) or '.')}{anchor})"

        return _outside_code(text, lambda prose: _LINK.sub(moved, prose))

    def _targets(self, text: str, path: str) -> Iterable[str]:
        return (_resolved(path, link["path"]) for link in _LINK.finditer(text) if link["path"])

    def _page(self, target: str) -> str:
        if found := self.pages.get(target) or MADE_FROM.get(target):
            return found
        if self._is_carried(target):
            return f"{CARRIED}/{target}"
        inside = target.startswith(f"{_DOCS}/") and (self.root / target).is_file()
        return target.removeprefix(f"{_DOCS}/") if inside else ""

    def _is_carried(self, target: str) -> bool:
        outside = (
            target not in self.pages and target not in MADE_FROM and not target.startswith((f"{_DOCS}/", "."))
        )
        return outside and (self.root / target).is_file()


def _resolved(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    parts = _FENCED.split(text)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))
