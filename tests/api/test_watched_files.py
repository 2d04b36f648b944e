"""Keys and the policy, read again while the daemon runs."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from mirage.api.access.watchedfile import ReloadedFile
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65_534


def word(content: bytes) -> str:
    if not content.isalpha():
        raise ValueError(f"no word: {content!r}")
    return content.decode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


@pytest.fixture
def watched(file: Path) -> ReloadedFile[str]:
    return ReloadedFile(file, "api.policy", word)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@contextmanager
def without_rights() -> Iterator[None]:
    """Run as an ordinary user: root may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_watched_file_closed_at_first_is_read_once_it_opens() -> None:
    with TemporaryDirectory() as folder:  # that of pytest is closed to other users
        Path(folder).chmod(0o755)
        file, new = Path(folder, "file"), Path(folder, "new")
        file.write_bytes(b"old")
        watched = ReloadedFile(file, "api.policy", word)
        new.write_bytes(b"new")
        new.chmod(0)
        new.replace(file)
        with without_rights():
            watched.refresh()
            assert (watched.value, "Permission denied" in watched.outdated) == ("old", True)
        file.chmod(0o444)
        with without_rights():
            watched.refresh()
        assert (watched.value, watched.outdated) == ("new", "")


def test_watched_file_that_comes_back_is_read(file: Path, watched: ReloadedFile[str]) -> None:
    kept = file.rename(file.with_name("kept"))
    watched.refresh()
    assert (watched.value, "No such file" in watched.outdated) == ("old", True)
    kept.rename(file)
    watched.refresh()
    assert (watched.value, watched.outdated) == ("old", "")


def test_watched_file_of_equal_size_and_time_is_read(file: Path, watched: ReloadedFile[str]) -> None:
    about = file.stat()
    file.write_bytes(b"new")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    watched.refresh()
    assert watched.value == "new"


def test_watched_file_with_wrong_content_leaves_the_old_value(file: Path, watched: ReloadedFile[str]) -> None:
    for content, value, outdated in ((b"", "old", True), (b"new", "new", False), (b"1", "new", True)):
        file.write_bytes(content)
        watched.refresh()
        assert (watched.value, bool(watched.outdated)) == (value, outdated)
    with pytest.raises(ConfigError, match="no word"):
        ReloadedFile(file, "api.policy", word)


def test_watched_file_is_read_by_those_who_ask(file: Path) -> None:
    seconds = [0.0]
    watched = ReloadedFile(file, "api.policy", word, lambda: seconds[0])
    file.write_bytes(b"new")
    assert watched.value == "old"
    seconds[0] = 1.0
    assert watched.value == "new"


def test_watched_file_logs_each_kind_of_failure_once_an_hour(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    seconds = [0.0]
    watched = ReloadedFile(file, "api.policy", word, lambda: seconds[0])
    for _ in range(3):
        file.write_bytes(b"1")
        watched.refresh()
        file.unlink()
        watched.refresh()
    assert len(errors(caplog)) == 2
    seconds[0] = 3_600.0
    watched.refresh()
    assert len(errors(caplog)) == 3
    file.write_bytes(b"new")
    watched.refresh()
    file.unlink()
    watched.refresh()
    assert len(errors(caplog)) == 4, "a failure after a success is a new one"


def test_watched_file_that_hangs_delays_one_reader_only(file: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(content: bytes) -> str:
        if content == b"new":
            begun.set()
            go_on.wait(30)
        return word(content)

    watched = ReloadedFile(file, "api.policy", slow, lambda: 0.0)
    file.write_bytes(b"new")
    reader = threading.Thread(target=watched.refresh)
    reader.start()
    assert begun.wait(30)
    watched.refresh()
    assert watched.value == "old"
    go_on.set()
    reader.join(30)
    assert watched.value == "new"
