"""Links that exit soon after their start, one after the other: the chain pauses, unless its work is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN, chain
from provisioner.test_machine import LIMIT, after, ended, fresh, running

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.job import JobState, WarnSignal
from mirage.provisioner.events import DoneFileSeen, LinkEnded, LinkRequeued, LinkRetired, LinkStarted, PauseAsked


@pytest.mark.parametrize("done", [DoneCondition(exit_code=None, file="/model.done"), DoneCondition(exit_code=3)])
def test_quick_exits_that_end_nothing_pause_the_chain(done: DoneCondition) -> None:
    record = fresh(done=done)
    for start in (0, HOUR, 2 * HOUR):
        assert record.status is ChainStatus.ACTIVE
        record = ended(running(record, start), start + 5, JobState.COMPLETED)
    assert record.status is ChainStatus.PAUSED
    assert "3 links in a row ended within 60 s of their start (exit codes 0, 0, 0)" in record.reason
    assert (done.file or "exit code 3") in record.reason


def test_quick_exits_with_any_code_pause_the_chain() -> None:
    record = fresh(done=DoneCondition(exit_code=None))
    for start, code in ((0, 0), (HOUR, 1), (2 * HOUR, 0)):
        assert record.status is ChainStatus.ACTIVE
        state = JobState.FAILED if code else JobState.COMPLETED
        record = ended(running(record, start), start + 5, state, code)
    assert record.status is ChainStatus.PAUSED
    assert "exit codes 0, 1, 0" in record.reason


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
def test_quick_exits_of_warned_links_pause_the_chain(state: JobState) -> None:
    kind = chain(done=DoneCondition(exit_code=None))
    record = ChainRecord(replace(kind, request=replace(kind.request, warn=WarnSignal("USR1", LIMIT))))
    for start in (0, HOUR, 2 * HOUR):
        record = ended(running(record, start), start + 5, state, int(state is JobState.FAILED))
    assert record.status is ChainStatus.PAUSED
    assert "--signal" in record.reason


def test_chain_that_its_owner_has_paused_keeps_that_reason() -> None:
    record = fresh(done=DoneCondition(exit_code=None))
    for start in (0, HOUR):
        record = ended(running(record, start), start + 5, JobState.COMPLETED)
    record = after(running(record, 2 * HOUR), PauseAsked("by alice"))
    assert ended(record, 2 * HOUR + 5, JobState.COMPLETED).reason == "by alice"


def test_quick_exits_that_complete_the_chain_end_it() -> None:
    record = fresh(done=DoneCondition(exit_code=None, links=3))
    for start in (0, HOUR, 2 * HOUR):
        record = ended(running(record, start), start + 5, JobState.COMPLETED)
    assert record.status is ChainStatus.DONE


def test_done_file_after_quick_exits_ends_the_paused_chain() -> None:
    record = fresh(done=DoneCondition(exit_code=None, file="/model.done"))
    for start in (0, HOUR, 2 * HOUR):
        record = ended(running(record, start), start + 5, JobState.COMPLETED)
    assert after(record, DoneFileSeen()).status is ChainStatus.DONE


@pytest.mark.parametrize("lasts", [30, MIN])
def test_quick_exits_under_a_limit_of_a_minute_go_on(lasts: int) -> None:
    kind = chain(done=DoneCondition(exit_code=None))
    record = ChainRecord(replace(kind, request=replace(kind.request, limit=MIN)))
    for start in (0, HOUR, 2 * HOUR):
        record = ended(running(record, start), start + lasts, JobState.COMPLETED)
    assert record.status is ChainStatus.ACTIVE


@pytest.mark.parametrize(
    "between",
    [
        (LinkRetired(2, "test"), LinkEnded(2, HOUR, HOUR + 5, JobState.COMPLETED, 0)),
        (LinkEnded(2, HOUR, HOUR + 5, JobState.TIMEOUT, 0),),
        (LinkEnded(2, HOUR, HOUR + 5, JobState.PREEMPTED, 0),),
        (LinkEnded(2, HOUR, HOUR + 10 * MIN, JobState.COMPLETED, 0),),
    ],
)
def test_quick_exits_with_another_end_between_go_on(between) -> None:
    record = fresh(done=DoneCondition(exit_code=None))
    record = ended(running(record), 5, JobState.COMPLETED)
    record = after(running(record, HOUR), *between, now=HOUR + 5)
    record = ended(running(record, 2 * HOUR), 2 * HOUR + 5, JobState.COMPLETED)
    assert record.status is ChainStatus.ACTIVE


def test_quick_exit_after_requeued_runs_goes_on() -> None:
    record = running(fresh(done=DoneCondition(exit_code=None)))
    for index, at in ((1, 30), (2, HOUR + 30)):
        record = after(record, LinkRequeued(index, at, at), now=at)
        record = after(record, LinkStarted(index + 1, index * HOUR, index * HOUR + LIMIT), now=index * HOUR)
    assert ended(record, 2 * HOUR + 5, JobState.COMPLETED).status is ChainStatus.ACTIVE
