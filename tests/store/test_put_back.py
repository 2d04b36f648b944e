"""A physical copy in place of a database: only the last stored data distinguish the two."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event
from stored_values import record
from test_restoration import fill, noted, owners

from mirage.bootstrap.readiness import _write_trial
from mirage.domain.errors import StoreUnavailable
from mirage.store.about import number_file
from mirage.store.opening import Store, open_store
from mirage.store.restoration import declare_restored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from postgres_server import PostgresServer

POSTGRES = pytest.mark.xdist_group("postgres")


def opened(url: str, state: Path) -> Store:
    return open_store(url, backups=state)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@POSTGRES
def test_server_whose_files_are_put_back_is_written_to_no_more(
    postgres: PostgresServer, new_url: Callable[[str], str], state: Path
) -> None:
    url = new_url("postgres")
    store = opened(url, state)
    fill(store)
    data, old = postgres.folder / "data", postgres.folder / "old"
    postgres.stop()
    shutil.copytree(data, old, symlinks=True)
    if postgres.account:
        for path in (old, *old.rglob("*")):
            shutil.chown(path, postgres.account)
    postgres.start()
    store.chains.save(record(links=1, failures=2))
    postgres.stop()
    shutil.rmtree(data)
    old.rename(data)
    postgres.start()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="put back to an earlier state while it was open"):
            store.chains.save(record(links=1, failures=3))
    store.database.close()
    again = opened(url, state)
    assert again.restoration.load() is not None, "the next start compares the chains with Slurm"
    assert again.tokens.load() == (), "one that was revoked since would be valid again"
    again.chains.save(record(links=1, failures=3))
    again.restoration.clear()
    again.close()
    last = opened(url, state)
    assert last.restoration.load() is None
    last.close()


@pytest.mark.parametrize("declared", [True, False])
def test_copy_by_another_tool_is_known_as_the_store_is_opened(declared: bool, tmp_path: Path, state: Path) -> None:
    file = tmp_path / "mirage.db"
    url = f"sqlite:///{file}"
    store = opened(url, state)
    fill(store)
    store.close()
    shutil.copyfile(file, tmp_path / "copy")
    store = opened(url, state)
    store.chains.save(record(links=1, failures=2))
    store.close()
    assert noted(url) is None
    shutil.copyfile(tmp_path / "copy", file)
    if declared:
        declare_restored(url, keep_tokens=True)
    again = opened(url, state)
    assert again.restoration.load() is not None
    again.close()
    assert owners(url) == (["alice", "bob"] if declared else []), "who restores it may keep the tokens"


def test_daemon_that_stood_by_knows_a_database_that_was_put_back_as_it_leads(tmp_path: Path, state: Path) -> None:
    """It has stored nothing of it itself, and has seen how far the leader had come."""
    file, others = tmp_path / "mirage.db", tmp_path / "others"
    others.mkdir()
    url = f"sqlite:///{file}"
    first = opened(url, state)
    fill(first)
    first.close()
    shutil.copyfile(file, tmp_path / "copy")
    leader, standby = opened(url, state), opened(url, others)
    leader.chains.save(record(links=1, failures=2))
    standby.stand_by()
    leader.close()
    standby.close()
    shutil.copyfile(tmp_path / "copy", file)
    again = opened(url, others)
    assert again.restoration.load() is not None
    assert owners(url) == []
    again.close()


def test_new_database_in_the_place_of_one_is_no_restored_one(tmp_path: Path, state: Path) -> None:
    file = tmp_path / "mirage.db"
    store = opened(f"sqlite:///{file}", state)
    fill(store)
    store.close()
    file.unlink()
    for place in (file, tmp_path / "other.db"):
        again = opened(f"sqlite:///{place}", state)
        assert again.restoration.load() is None
        fill(again)
        again.close()


@pytest.mark.parametrize("content", [b"", b"7", b"9999999 ", b"\xff\xfe", b"-3 x", b"9" * 5_000])
def test_number_file_that_is_damaged_says_nothing(content: bytes, tmp_path: Path, state: Path) -> None:
    url = f"sqlite:///{tmp_path}/mirage.db"
    number_file(state).write_bytes(content)
    store = opened(url, state)
    fill(store)
    assert store.restoration.load() is None
    store.close()
    assert number_file(state).read_text().endswith(f" {tmp_path}/mirage.db")


def test_trials_of_readyz_are_no_other_state(url: str) -> None:
    store = open_store(url)
    fill(store)
    store.database.write(_write_trial)
    store.chains.save(record(links=1, failures=2))
    store.close()


def test_commit_whose_answer_is_lost_is_no_other_state(url: str) -> None:
    """It may be there or not; either is what this process has stored."""
    store = open_store(url)
    fill(store)
    engine = store.database._engine
    for after_commit in (True, False):
        broken = []

        @event.listens_for(engine, "commit")
        def commit(connection: Any, broken: list[int] = broken, after_commit: bool = after_commit) -> None:
            if not broken:
                broken.append(1)
                if after_commit:
                    connection.connection.commit()
                raise StoreUnavailable("the answer is lost")

        with pytest.raises(StoreUnavailable, match="the answer is lost"):
            store.chains.save(record(links=1, failures=2 + after_commit))
        event.remove(engine, "commit", commit)
        store.chains.save(record(links=1, failures=4 + after_commit))
    assert store.chains.load() == (record(links=1, failures=4),)
    store.close()
