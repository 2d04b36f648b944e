"""Output of commands while the cluster does not answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mirage.cli.tables import tell_silence

if TYPE_CHECKING:
    import pytest


def test_a_silent_cluster_is_said_beside_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    since = datetime(2026, 11, 21, 11, tzinfo=UTC)
    tell_silence(since)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert since.astimezone().isoformat()[:19] in said.err


def test_a_daemon_that_stands_by_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    tell_silence(None, "stands by: the lease cannot be written: the disk is full")
    assert "stands by: the lease cannot be written: the disk is full" in capsys.readouterr().err
    tell_silence(None, "hold: it is early")
    assert capsys.readouterr() == ("", "")


def test_nothing_is_said_of_one_that_answers(capsys: pytest.CaptureFixture[str]) -> None:
    tell_silence(None)
    assert capsys.readouterr() == ("", "")
