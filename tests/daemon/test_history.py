"""Waits asked of the accounting: everything once, however often it is cut short."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.daemon.history import AccountingImport, started_jobs
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.jobtable import Names, job_table
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.jobtable import JobTable

DAY = 86_400
NOW = 100 * DAY


def jobs(starts: list[int], ids: list[str] | None = None) -> JobTable:
    start = np.array(starts, dtype=np.int64)
    return job_table(
        len(starts),
        job_id=np.array(ids or [str(at) for at in starts], dtype=np.str_),
        submit=start - 100,
        start=start,
        nodes=np.ones(len(starts), dtype=np.int32),
        limit=np.full(len(starts), 3_600, dtype=np.int64),
        partition=Names.encode(["cpu"] * len(starts)),
    )


class Accounting:
    """A job starts each hour; questions are answered by the day, the latest first."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fails_after: int | None = None

    def ask(self, start: int, end: int, pause) -> Iterator[JobTable]:
        self.asked.append((start, end))
        for answered, until in enumerate(range(end, start, -DAY)):
            if self.fails_after is not None and answered >= self.fails_after:
                raise ClusterUnavailable("slurmdbd does not answer")
            first = -(-max(start, until - DAY) // 3_600) * 3_600
            yield jobs(list(range(first, until, 3_600)))
            pause()


class Setting:
    def __init__(self, folder: Path) -> None:
        self.accounting = Accounting()
        self.store = open_store(f"sqlite:///{folder}/mirage.db")
        self.stopped = threading.Event()
        self.time = NOW
        self.run = AccountingImport(
            self.accounting.ask, self.store.waits, self, folder / "history.json", 30 * DAY, self.stopped
        ).run

    def now(self) -> int:
        return self.time

    def known(self) -> int:
        return len(self.store.waits.recent_waits(10_000))


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setattr("mirage.daemon.history._PAUSE", 0.0)
    made = Setting(tmp_path)
    yield made
    made.store.close()


def test_the_first_import_looks_back_the_later_ones_only_as_far_as_needed(setting: Setting) -> None:
    assert setting.run() == "720 waits imported of the last 720 h"
    assert setting.known() == 720
    setting.time += 6 * 3_600
    assert setting.run() == "7 waits imported of the last 7 h"
    assert setting.known() == 726
    assert setting.accounting.asked == [(NOW - 30 * DAY, NOW), (NOW - 3_600, NOW + 6 * 3_600)]


def test_an_import_that_fails_keeps_what_it_has_and_begins_anew(setting: Setting) -> None:
    setting.accounting.fails_after = 3
    with pytest.raises(ClusterUnavailable):
        setting.run()
    assert setting.known() == 72
    setting.accounting.fails_after = None
    setting.run()
    assert setting.known() == 720


def test_an_import_ends_when_the_daemon_does(setting: Setting) -> None:
    setting.stopped.set()
    assert setting.run() == "24 waits imported; the daemon ends before all are"
    setting.stopped.clear()
    assert setting.run().startswith("720 ")


@pytest.mark.parametrize("marker", ["", "{}", '{"through": null}', f'{{"through": {NOW + DAY}}}'])
def test_a_marker_that_cannot_be_true_is_not_believed(setting: Setting, marker: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(marker)
    assert setting.run().startswith("720 ")


def test_components_of_heterogeneous_jobs_are_left_out() -> None:
    assert started_jobs(jobs([5, 6, 7], ["12", "13+1", "14"])).job_id.tolist() == [12, 14]
    assert len(started_jobs(jobs([]))) == 0
