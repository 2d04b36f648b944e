"""The queue as the command line shows it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from mirage.cli.status import queue_columns
from mirage.client.documents import QueuedJob
from mirage.domain.texts import printable

if TYPE_CHECKING:
    import pytest

MINE = QueuedJob(7, "train-vit", "alice", "research", "gpu", state="RUNNING", nodes=2)
OTHERS = QueuedJob(8, None, "bob", None, "gpu", state="PENDING")


def test_names_and_accounts_are_shown_where_they_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    columns = queue_columns(None)
    columns.print([MINE, OTHERS])
    heading, mine, others = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading[:4] == ["JOBID", "PARTITION", "NAME", "USER"]
    assert mine[:4] == ["7", "gpu", "train-vit", "alice"]
    assert others[:4] == ["8", "gpu", "-", "bob"]
    columns.print([MINE, OTHERS], "%.4i %a %j", heading=False)
    assert capsys.readouterr().out == "   7 research train-vit\n   8 - -\n"
    assert [job.job_id for job in columns.sorted([OTHERS, MINE], "account")] == [8, 7]


def test_suspended_job_has_its_state_and_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime(2026, 11, 28, 13, tzinfo=UTC)
    stopped = QueuedJob(7, state="SUSPENDED", limit=3_600, start=now - timedelta(hours=8))
    resumed = replace(stopped, state="RUNNING", end=now + timedelta(minutes=5))
    queue_columns(now).print([stopped, resumed], "%t %T %M %L", heading=False)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["S", "SUSPENDED", "-", "-"],
        ["R", "RUNNING", "00:55:00", "00:05:00"],
    ]


@given(st.text())
def test_no_name_reaches_the_terminal_as_an_order(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert not shown or shown.isprintable()
    assert all(one in (other, "?") for one, other in zip(shown, text, strict=True))


def test_a_hostile_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = QueuedJob(9, "a\nb\x1b]0;x\x07\u202e", "mallory", "x", "gpu", state="PENDING")
    queue_columns(None).print([hostile], "name,account", heading=False)
    assert capsys.readouterr().out == "a?b?]0;x??  x\n"
