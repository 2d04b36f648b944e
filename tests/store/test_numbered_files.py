"""Compare and swap by numbered files, against a list as the reference; processes that stop, late listings."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain.errors import StoreUnavailable
from mirage.store.numbered_files import NumberedFiles, check_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.store.numbered_files import Numbered

_STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "add", "add"]), st.integers(0, 2), st.integers(0, 6)), max_size=40
)


class _LateListing:
    """Shows the directory as it was some changes ago, and catches up as it is read again."""

    def __init__(self) -> None:
        self.past: list[list[str]] = [[]]
        self.lag = 0

    def note(self, directory: Path) -> None:
        self.past.append([each.name for each in directory.iterdir()])

    def __call__(self, directory: Path) -> Sequence[str]:
        del directory
        shown = self.past[max(0, len(self.past) - 1 - self.lag)]
        self.lag //= 2
        return shown


@given(steps=_STEPS)
@settings(max_examples=60, deadline=None)
def test_numbered_files_add_succeeds_exactly_on_the_newest(steps: list[tuple[str, int, int]]) -> None:
    """Each process goes on from what it has read, however long ago, and whatever was deleted since."""
    with tempfile.TemporaryDirectory() as place:
        directory, listing = Path(place), _LateListing()
        files = [NumberedFiles(directory, "value", 2, listing) for _ in range(3)]
        known: list[Numbered | None] = [None] * 3
        stored: list[Numbered] = []
        for count, (act, who, lag) in enumerate(steps):
            listing.lag = lag
            if act == "read":
                known[who] = files[who].newest()
                assert known[who] == (stored[-1] if stored else None)
                continue
            added = files[who].add(known[who], str(count).encode())
            assert (added is not None) is (known[who] == (stored[-1] if stored else None))
            if added is not None:
                stored.append(added)
                known[who] = added
            listing.note(directory)
        listing.lag = 0
        assert NumberedFiles(directory, "value", 2).newest() == (stored[-1] if stored else None)
        assert len(list(directory.glob("value.[0-9]*"))) <= 5


def test_numbered_files_stale_twice_counts_neither(tmp_path: Path) -> None:
    """A number that a stopped process made again is no predecessor for another one that had stopped later."""
    files = NumberedFiles(tmp_path, "value", 2)
    values = [files.add(None, b"")]
    for _ in range(9):
        values.append(files.add(values[-1], b""))
    assert files.add(values[1], b"late") is None
    values_of_a_killed_one = tmp_path / "value.3"
    values_of_a_killed_one.write_bytes(files.path(10).read_bytes().replace(b"value 10 ", b"value 3 "))
    assert files.add(values[2], b"late") is None
    assert NumberedFiles(tmp_path, "value", 2).newest() == values[-1]


def _emptied(file: Path) -> None:
    file.write_bytes(b"")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def _changed(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def _renumbered(file: Path) -> None:
    file.write_bytes(file.with_name("value.1").read_bytes())


def _linked(file: Path) -> None:
    file.unlink()
    file.symlink_to("value.1")


@pytest.mark.parametrize("harm", [_emptied, _cut, _changed, _renumbered, _linked])
def test_numbered_files_damaged_value_is_never_replaced(harm: Callable[[Path], None], tmp_path: Path) -> None:
    files = NumberedFiles(tmp_path, "value", 2)
    first = files.add(None, b"first")
    second = files.add(first, b"second")
    harm(tmp_path / "value.2")
    with pytest.raises(StoreUnavailable, match=r"value\.2: .*(damaged|symbolic)"):
        NumberedFiles(tmp_path, "value", 2).newest()
    assert not (tmp_path / "value.3").exists()
    (tmp_path / "value.2").unlink()
    assert NumberedFiles(tmp_path, "value", 2).newest() == first
    assert files.add(second, b"third") is None, "the one before counts"


def test_numbered_files_lost_values_are_not_begun_again(tmp_path: Path) -> None:
    files = NumberedFiles(tmp_path, "value", 2)
    files.add(files.add(None, b""), b"")
    for each in tmp_path.glob("value.[0-9]*"):
        each.unlink()
    for one in (files, NumberedFiles(tmp_path, "value", 2)):
        with pytest.raises(StoreUnavailable, match=r"value\.N that were there are missing.*remove value\.begun"):
            one.newest()


def test_numbered_files_drafts_of_killed_processes_go(tmp_path: Path) -> None:
    files = NumberedFiles(tmp_path, "value", 2)
    left = tmp_path / f".value.2.{'0' * 32}.new"
    left.write_bytes(b"half")
    value = files.add(None, b"")
    for _ in range(6):
        value = files.add(value, b"")
    assert not left.exists()


def test_check_directory_open_or_linked_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(StoreUnavailable, match=f"run: chmod 700 {tmp_path}"):
        check_directory(tmp_path)
    tmp_path.chmod(0o700)
    check_directory(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(StoreUnavailable, match="symbolic link"):
        check_directory(link)
    if os.geteuid() == 0:
        os.chown(tmp_path, 12_345, -1)
        with pytest.raises(StoreUnavailable, match="belongs to UID 12345"):
            check_directory(tmp_path)
