"""Killed processes and concurrent threads: data reported as saved are complete."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stored_values import jobs, ran, record

from mirage.domain.chain import ChainId
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.store.access import AuditEntry
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from mirage.store.opening import Store

SAVING = Path(__file__).with_name("saving_process.py")


def saved_until_killed(url: str, after: int) -> int:
    """Let a process save and report N times, kill it, and return its last report."""
    with subprocess.Popen([sys.executable, SAVING, url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        said += [int(line) for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -9
    return said[-1]


def test_kill_loses_nothing_that_was_said_to_be_saved(url: str) -> None:
    for after in (1, 17, 60):
        said = saved_until_killed(url, after)
        store = open_store(url)
        [found] = store.chains.load()
        found.check()
        assert len(found.links) in (said, said + 1)
        assert found.failures == len(found.links), "chain and links are of one transaction"
        assert len(store.outcomes.read()) == len(found.links) - 1, "and the outcomes"
        lines = store.journal.read(limit=10_000)
        assert [line.entry.time for line in lines] == list(range(len(found.links), 0, -1)), "and the journal"
        store.close()


def test_threads_read_while_the_loop_writes(store: Store) -> None:
    """Each reader sees a chain whole, never going back, and nothing fails."""
    value = record().with_link(ran(1, 100, 200))
    store.chains.save(value)
    done, faults = threading.Event(), []

    def read() -> None:
        seen = 0
        try:
            while not done.is_set():
                [found] = store.chains.load()
                assert found.failures == len(found.links) - 1
                assert len(found.links) >= seen
                seen = len(found.links)
                outcomes, lines = store.outcomes.read(), store.journal.read(limit=1_000)
                assert len(outcomes) >= seen - 1
                assert len(lines) >= seen - 1
                store.waits.recent_waits(10)
        except BaseException as fault:
            faults.append(fault)
            raise

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for n in range(2, 60):
        store.journal.write(Entry(n, ChainId("svc"), EntryKind.ACTION, f"link {n}"))
        value = replace(value.with_link(ran(n, 100 * n, 100 * n + 99)), failures=n - 1)
        store.chains.save(value)
    done.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert store.chains.load() == (value,)


def test_several_threads_write_what_they_may(store: Store) -> None:
    """Audit, waits and snapshots from other threads while the loop saves: all there, none in doubt."""
    faults: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for n in range(first, first + 20):
                store.audit.write(AuditEntry(n, "alice", 1_000, "pause", None, "done"))
                store.waits.add(jobs((n, n, n + 5)))
                store.snapshots.write(Snapshot.unseen(n))
        except BaseException as fault:
            faults.append(fault)
            raise

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    for writer in writers:
        writer.start()
    for n in range(40):
        store.chains.save(record(failures=n))
    for writer in writers:
        writer.join()
    assert faults == []
    assert len(store.audit.read(limit=1_000)) == 60
    assert len(store.waits.recent_waits(1_000)) == 60
    assert len(store.snapshots.times(0, 1_000)) == 60
    assert store.chains.load()[0].failures == 39


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_commit_is_on_disk_even_if_the_power_fails(kind: str, tmp_path: Path) -> None:
    """Settings replace what cannot be tried: the database waits for the disk at every commit."""
    store = open_store(f"{kind}:///{tmp_path}/mirage.db")
    pragmas = {
        name: store.database.read(lambda c, name=name: c.exec_driver_sql(f"PRAGMA {name}").scalar())  # type: ignore[misc]
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}
    store.close()
