"""Files that are written whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirage.wholefile import draft_of, write_anew

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
    with pytest.raises(UnicodeEncodeError), draft_of(file) as draft:
        _ = draft.write_bytes(b"ne"), draft.write_text("\N{SNOWMAN}", encoding="ascii")
    assert file.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_in_the_way_stays_and_no_draft_is_left(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    (file / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"state\.json"):
        write_anew(file, b"new")
    assert list(tmp_path.iterdir()) == [file]


def test_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    with draft_of(file) as first, draft_of(file) as second:
        first.write_bytes(b"f")
        second.write_bytes(b"second")
        first.write_bytes(b"first")
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]
