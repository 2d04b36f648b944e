"""Log lines that a user can cause are written once an hour."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.backends.cli_links import _by_tag
from mirage.backends.seldom import Seldom
from mirage.domain.job import Job, JobId, JobState
from mirage.slurm.queuetext import QueueRow

if TYPE_CHECKING:
    import pytest


def test_each_cause_is_told_once_an_hour() -> None:
    times = iter([0.0, 10.0, 20.0, 3_601.0, 3_602.0])
    seldom = Seldom(lambda: next(times))
    keys = ["a", "a", "b", "a", "a"]
    assert [seldom.allows("e", key) for key in keys] == [True, False, True, True, False]


def test_duplicate_tags_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    jobs = [
        Job(JobId(k), "x", "mallory_of_logs", "p", 1, 60, JobState.PENDING, 0, tag="mirage:a:1") for k in range(9)
    ]
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            _, rivals = _by_tag([QueueRow(job, completing=False) for job in jobs], {}, {})
            assert len(rivals) == 8
    assert len([line for line in caplog.messages if "duplicate_tag" in line]) == 1
