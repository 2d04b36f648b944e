"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirage.atomic_file import draft_of, read_regular, write_atomically


def test_what_was_there_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    for content in (b"long as it was", b"new"):
        write_atomically(file, content)
        assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


def test_one_that_cannot_be_written_holds_what_it_held(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_atomically(file, b"as it was")
    with pytest.raises(UnicodeEncodeError), draft_of(file) as draft:
        _ = draft.write_bytes(b"ne"), draft.write_text("\N{SNOWMAN}", encoding="ascii")
    assert file.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_in_the_way_stays_and_no_draft_is_left(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    (file / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"state\.json"):
        write_atomically(file, b"new")
    assert list(tmp_path.iterdir()) == [file]


def test_writers_at_once_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    with draft_of(file) as first, draft_of(file) as second:
        first.write_bytes(b"f")
        second.write_bytes(b"second")
        first.write_bytes(b"first")
    assert file.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [file]


def test_read_regular_returns_the_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    assert read_regular(tmp_path / "link", 5) == b"12345"


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "large", "absent", "link"])
def test_read_regular_anything_else_raises_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case "large":
            path.write_bytes(b"123456")
        case "link":
            (tmp_path / "file").write_bytes(b"1")
            path.symlink_to("file")
    before = _open_files()
    with pytest.raises(OSError, match=kind):
        read_regular(path, 5, follow_links=kind != "link")
    assert _open_files() == before


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
