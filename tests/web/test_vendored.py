"""Other people's files are those that were published."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mirage.api.web.rendering import STATIC

FOLDERS = [STATIC / "vendored", Path(__file__).parent / "assets"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_files_are_those_of_the_list(folder: Path) -> None:
    listed = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    found = {path.name for path in folder.iterdir()} - {"SHA256SUMS", "README", "README.md"}
    assert found == set(listed)
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
