"""The daemon's directories where all users may make some, and where old files are cleaned away."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from mirage.daemon.state_directory import check_database, make_folder, make_private_folder, single_instance
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

KEY = "service.state"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory with the mode of /var/tmp."""
    folder = tmp_path / "var-tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_a_folder_is_made_for_its_user_alone(shared: Path) -> None:
    for _ in range(2):
        made = make_private_folder(shared / "mirage-alice", KEY)
        assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("target", ["there", "missing"])
def test_a_link_laid_out_is_not_followed(shared: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "there").mkdir()
    (shared / "mirage-alice").symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match=r"service\.state"):
        make_private_folder(shared / "mirage-alice", KEY)
    assert not (tmp_path / "missing").exists()


def test_a_folder_of_somebody_else_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "mirage-alice").mkdir(mode=0o700)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="another user"):
        make_private_folder(shared / "mirage-alice", KEY)


def test_a_folder_open_to_others_is_refused_with_the_remedy(shared: Path) -> None:
    (shared / "mirage-alice").mkdir()
    (shared / "mirage-alice").chmod(0o750)
    with pytest.raises(ConfigError, match=r"chmod 700 .*mirage-alice"):
        make_private_folder(shared / "mirage-alice", KEY)


def test_where_only_few_may_write_the_administrator_chooses(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o750)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    assert make_private_folder(tmp_path / "state", KEY) == tmp_path / "state"


def test_directories_above_are_for_their_user_to_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_private_folder(tmp_path / "a" / "b" / "c", "store.url")
    finally:
        os.umask(before)
    modes = [(tmp_path / each).stat().st_mode & 0o777 for each in ("a", "a/b", "a/b/c")]
    assert modes == [0o755, 0o755, 0o700]


def test_a_folder_that_cannot_be_made_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"service\.runtime: the directory .*/file/x cannot be made"):
        make_folder(tmp_path / "file" / "x", 0o755, "service.runtime")


def test_cleaners_of_old_files_leave_a_running_daemons_alone(shared: Path, tmp_path: Path) -> None:
    cleaner = shutil.which("systemd-tmpfiles", path="/usr/bin:/bin")
    if cleaner is None:
        pytest.skip("systemd-tmpfiles is not installed")
    rules = tmp_path / "rules.conf"
    rules.write_text(f"d {shared} 1777 - - 0\n")
    state = make_private_folder(shared / "mirage-alice", KEY)

    def cleaned() -> bool:
        (state / "mirage.db").touch()
        subprocess.run([cleaner, "--clean", str(rules)], check=True, capture_output=True)
        return not (state / "mirage.db").exists()

    with single_instance(state / "daemon.lock"):
        assert not cleaned()
        assert (state / "daemon.lock").exists()
    assert cleaned(), "what is tested is that the lock keeps it out"


def test_empty_database_of_a_daemon_that_ran_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, heartbeat = tmp_path / "mirage.db", tmp_path / "heartbeat"
    url = f"sqlite:///{file}"
    file.touch()
    check_database(url, heartbeat)  # the first start was killed before the schema was there
    heartbeat.touch()
    with pytest.raises(ConfigError, match=r"mirage\.db"):
        check_database(url, heartbeat)
    assert not caplog.records
    file.unlink()
    check_database(url, heartbeat)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    file.write_bytes(b"SQLite")
    check_database(url, heartbeat)
