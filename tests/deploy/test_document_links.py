"""Links between documents have existing targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "mirage").rglob("*.md"),
    *(ROOT / "slurm-testbed").glob("*.md"),
]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(document: Path) -> set[str]:
    """GitHub's anchor of a heading."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_they_lead_somewhere(document: Path) -> None:
    for name, anchor in _LINK.findall(document.read_text()):
        target = document.parent / name if name else document
        assert target.exists(), name
        assert not anchor or anchor in anchors(target), f"{name}#{anchor}"


def test_every_document_is_found_from_the_first() -> None:
    seen, left = set[Path](), [ROOT / "README.md"]
    while left:
        document = left.pop().resolve()
        if document in seen or document.suffix != ".md":
            continue
        seen.add(document)
        left += [document.parent / name for name, _ in _LINK.findall(document.read_text()) if name]
    assert {path.resolve() for path in (ROOT / "docs").rglob("*.md")} <= seen
