"""Small files that are written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirage.backends.wholefile import write_anew

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for content in (b"long as it was", b"new"):
        write_anew(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_one_that_cannot_be_written_holds_what_it_held(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_anew(file, b"as it was")
    (tmp_path / "state.json.new").mkdir()  # in the way
    with pytest.raises(IsADirectoryError):
        write_anew(file, b"new")
    assert file.read_bytes() == b"as it was"
