"""Waits read from accounting: everything one time, however often the import is cut short."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.daemon.history import AccountingImport, AccountingSinks, started_jobs
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.jobtable import Names, job_table
from mirage.store.jobs import StoredJobs
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
    """A job starts each hour."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.fails_after: int | None = None

    def ask(self, start: int, end: int) -> JobTable:
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            raise ClusterUnavailable("slurmdbd does not answer")
        self.asked.append((start, end))
        first = -(-start // 3_600) * 3_600
        return jobs(list(range(first, end, 3_600)))


class Setting:
    def __init__(self, folder: Path) -> None:
        self.accounting = Accounting()
        self.store = open_store(f"sqlite:///{folder}/mirage.db")
        self.stopped = threading.Event()
        self.time = NOW
        self.memory = StoredJobs(self.store.jobs, self)
        kept = AccountingSinks(self.store.waits, self.store.jobs, self.memory.refresh)
        self.run = AccountingImport(
            self.accounting.ask, kept, self, folder / "history.json", 30 * DAY, self.stopped
        ).run

    def now(self) -> int:
        return self.time

    def known(self) -> list[int]:
        return self.store.waits.recent_waits(10_000).start.tolist()


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setattr("mirage.daemon.history._PAUSE", 0.0)
    made = Setting(tmp_path)
    yield made
    made.store.close()


def test_the_first_import_looks_back_the_later_ones_only_as_far_as_needed(setting: Setting) -> None:
    assert setting.run() == "720 jobs imported; queries: 30"
    assert setting.known() == list(range(NOW - 30 * DAY, NOW, 3_600))
    assert setting.accounting.asked == [(NOW - (k + 1) * DAY, NOW - k * DAY) for k in range(30)], (
        "the latest first"
    )
    assert setting.run() == "", "nothing is due"
    setting.time += 6 * 3_600
    assert setting.run() == "7 jobs imported; queries: 1"
    assert setting.accounting.asked[30:] == [(NOW - 3_600, NOW + 6 * 3_600)]
    setting.time += 3 * DAY
    setting.run()
    assert setting.known() == list(range(NOW - 30 * DAY, setting.time, 3_600))


def test_no_question_is_about_more_than_a_day(setting: Setting) -> None:
    setting.run()
    setting.time += 100 * DAY
    setting.run()
    assert max(end - start for start, end in setting.accounting.asked) == DAY
    assert set(range(setting.time - 30 * DAY, setting.time, 3_600)) <= set(setting.known())


@pytest.mark.parametrize("after", range(0, 30, 7))
def test_an_import_that_fails_goes_on_where_it_was(setting: Setting, after: int) -> None:
    setting.accounting.fails_after = after
    for _ in range(2):
        with pytest.raises(ClusterUnavailable):
            setting.run()
    assert setting.known() == list(range(NOW - after * DAY, NOW, 3_600))
    setting.accounting.fails_after = None
    setting.run()
    assert setting.known() == list(range(NOW - 30 * DAY, NOW, 3_600))
    assert len(setting.accounting.asked) == 30, "nothing is asked twice"


def test_an_import_that_was_cut_short_long_ago_has_no_gap(setting: Setting) -> None:
    setting.accounting.fails_after = 5
    with pytest.raises(ClusterUnavailable):
        setting.run()
    setting.accounting.fails_after, setting.time = 7, NOW + 4 * DAY
    with pytest.raises(ClusterUnavailable):
        setting.run()
    setting.accounting.fails_after, setting.time = None, NOW + 6 * DAY
    setting.run()
    assert setting.known() == list(range(setting.time - 30 * DAY, setting.time, 3_600))


def test_an_import_ends_when_the_daemon_does(setting: Setting) -> None:
    setting.stopped.set()
    assert setting.run() == "24 jobs imported; the rest follows after the next start"
    setting.stopped.clear()
    assert setting.run() == "696 jobs imported; queries: 29"


@pytest.mark.parametrize(
    "marker",
    [
        "",
        "{}",
        '{"until": null, "from": 0}',
        f'{{"from": 0, "until": {NOW + DAY}}}',
        f'{{"from": {NOW}, "until": {NOW - DAY}}}',
    ],
)
def test_a_marker_that_cannot_be_true_is_not_believed(setting: Setting, marker: str, tmp_path: Path) -> None:
    (tmp_path / "history.json").write_text(marker)
    assert setting.run().startswith("720 ")


def test_started_jobs_keep_account_qos_and_gres_on_each_node() -> None:
    table = replace(
        jobs([5, 6, 7], ["12", "13", "14"]),
        account=Names.encode(["ml", "", "bio"]),
        qos=Names.encode(["high", "low", "low"]),
        nodes=np.array([2, 1, 1], dtype=np.int32),
        gres=np.array([[8, 0], [0, 0], [1, 2]], dtype=np.int32),
        gres_names=("gpu:a100", "nvme"),
    )
    traits = started_jobs(table).traits
    assert traits is not None
    assert (traits.account.decode(), traits.qos.decode()) == (["ml", "", "bio"], ["high", "low", "low"])
    assert traits.gres.decode() == ["gpu:a100", "none", "gpu:a100,nvme"]
    assert traits.gres_per_node.tolist() == [4, 0, 1]


def test_components_of_heterogeneous_jobs_are_left_out() -> None:
    assert started_jobs(jobs([5, 6, 7], ["12", "13+1", "14"])).job_id.tolist() == [12, 14]
    assert len(started_jobs(jobs([]))) == 0
