"""Backups in directories where others may write: no other user gets the copy or redirects the write."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stored_values import record

from mirage.store.backup import NoBackup, back_up
from mirage.store.location import Location, locate
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def source(tmp_path: Path) -> Location:
    url = f"sqlite:///{tmp_path}/mirage.db"
    store = open_store(url)
    store.chains.save(record())
    store.close()
    return locate(url)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory with the mode of ``/tmp``, which other users can enter."""
    with tempfile.TemporaryDirectory(prefix="mirage-open-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


def as_nobody(program: str) -> None:
    subprocess.run(["/bin/sh", "-ec", program], user="nobody", extra_groups=[], check=True)


@pytest.mark.skipif(os.getuid() != 0, reason="to be another user needs root")
@pytest.mark.parametrize(
    "trap", ["umask 0; : >{}", "ln -s {victim} {}", "umask 0; mkdir {}", "umask 0; mkdir {}; : >{}/copy"]
)
def test_what_somebody_else_has_put_there_first_gets_no_copy(
    source: Location, open_folder: Path, trap: str
) -> None:
    victim = open_folder / "victim"
    victim.write_text("somebody's work")
    place = open_folder / ".copy.db.unfinished-backup"
    as_nobody(trap.replace("{victim}", str(victim)).replace("{}", str(place)))
    with pytest.raises(NoBackup):
        back_up(source, open_folder / "copy.db")
    assert victim.read_text() == "somebody's work"
    victim.unlink()
    found = [file for file in open_folder.rglob("*") if file.is_file()]
    assert not any(file.stat().st_size for file in found), "the other user can read no part of the database"
    assert not (open_folder / "copy.db").exists()


def test_a_link_at_the_backups_own_name_is_not_followed(source: Location, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(NoBackup):
        back_up(source, target)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_where_anybody_may_replace_files_is_refused(source: Location, tmp_path: Path) -> None:
    folder = tmp_path / "loose"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(NoBackup, match="name another directory"):
        back_up(source, folder / "copy.db")
    assert list(folder.iterdir()) == []


def loosen(folder: Path, how: str) -> None:
    if how == "another's":
        os.chown(folder, 65534, 65534)
    else:
        os.chown(folder, 0, 65534)
        folder.chmod(0o2775)


@pytest.mark.skipif(os.getuid() != 0, reason="to give a directory away needs root")
@pytest.mark.parametrize("how", ["another's", "a group's"])
@pytest.mark.parametrize("below", ["", "inner/folder"])
def test_backup_below_a_folder_of_others_is_rejected(
    source: Location, tmp_path: Path, how: str, below: str
) -> None:
    shared = tmp_path / "shared"
    folder = shared / below
    folder.mkdir(parents=True)
    loosen(shared, how)
    with pytest.raises(NoBackup, match="name another directory"):
        back_up(source, folder / "copy.db")
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="to give a directory away needs root")
def test_backup_beside_a_database_of_the_daemons_account_is_made(tmp_path: Path, source: Location) -> None:
    (state := tmp_path / "state").mkdir()
    os.chown(state, 65534, 65534)
    with pytest.raises(NoBackup):
        back_up(source, state / "copy.db")
    back_up(source, state / "copy.db", state)
    assert (state / "copy.db").stat().st_size
    os.chown(tmp_path, 65534, 65534)
    back_up(source, tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_size


def test_backup_in_a_folder_of_the_users_own_group_is_made(tmp_path: Path, source: Location) -> None:
    (folder := tmp_path / "own").mkdir()
    folder.chmod(0o775)  # umask 002: the account's group has its name and no other member
    private = grp.getgrgid(folder.stat().st_gid).gr_name == pwd.getpwuid(os.geteuid()).pw_name
    with contextlib.nullcontext() if private else pytest.raises(NoBackup):
        back_up(source, folder / "copy.db")


def test_a_backup_in_an_open_folder_is_its_owners_alone_and_leaves_nothing_else(
    source: Location, open_folder: Path
) -> None:
    back_up(source, open_folder / "copy.db")
    assert [file.name for file in open_folder.iterdir()] == ["copy.db"]
    assert stat.S_IMODE((open_folder / "copy.db").stat().st_mode) == 0o600
