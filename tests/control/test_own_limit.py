"""Whether a link was warned is judged by its job's own time limit, as Slurm reports it, and by its changes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.job import ABSENT, Job, JobId, JobState, WarnSignal
from mirage.domain.link import Link, LinkState
from mirage.provisioner import machine
from mirage.provisioner.events import LinkEnded, LinkPlanned, LinkStarted, LinkSubmitted

REQUESTED = 40 * MIN


def warned_chain(limit: int = REQUESTED):
    made = chain(limit)
    return replace(made, request=replace(made.request, warn=WarnSignal("USR1", 120)))


def started(limit: int, start: int = 0) -> ChainRecord:
    record = ChainRecord(warned_chain())
    events = (
        LinkPlanned("test"),
        LinkSubmitted(1, JobId(1), start),
        LinkStarted(1, start, start + limit, limit),
    )
    return machine.apply_all(record, events, start)


def seen_with(record: ChainRecord, limit: int, now: int) -> ChainRecord:
    return machine.apply(record, LinkStarted(1, 0, limit, limit), now)


def exits(record: ChainRecord, end: int, limit: int = ABSENT) -> ChainStatus:
    ended = LinkEnded(1, 0, end, JobState.COMPLETED, 0, limit)
    return machine.apply(record, ended, end).status


@pytest.mark.parametrize("reported", [15 * MIN, ABSENT])
def test_limit_lowered_exit_at_new_limit_continues(reported: int) -> None:
    record = seen_with(started(REQUESTED), 15 * MIN, 5 * MIN)
    assert exits(record, 13 * MIN, reported) is ChainStatus.ACTIVE
    assert exits(record, 9 * MIN, reported) is ChainStatus.DONE


def test_limit_lowered_between_two_polls_continues() -> None:
    assert exits(started(REQUESTED), 13 * MIN, 15 * MIN) is ChainStatus.ACTIVE


def test_limit_below_request_from_start_continues() -> None:
    assert exits(started(10 * MIN), 8 * MIN, 10 * MIN) is ChainStatus.ACTIVE


def test_start_never_seen_uses_accounting_limit() -> None:
    record = machine.apply_all(
        ChainRecord(warned_chain()), (LinkPlanned("test"), LinkSubmitted(1, JobId(1), 0)), 0
    )
    assert exits(record, 8 * MIN, 10 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 8 * MIN, REQUESTED) is ChainStatus.DONE


@pytest.mark.parametrize("seen", [ABSENT, 18 * MIN, 19 * MIN])
def test_limit_raised_after_warning_while_nobody_looked_continues(seen: int) -> None:
    """The limit of before is the requested one: the job may have been warned of it."""
    raised = REQUESTED + 60 * MIN
    record = ChainRecord(warned_chain())
    record = machine.apply_all(record, (LinkPlanned("test"), LinkSubmitted(1, JobId(1), 0)), 0)
    if seen != ABSENT:
        record = machine.apply(record, LinkStarted(1, 0, raised, raised), seen + 20 * MIN)
    assert exits(record, REQUESTED - MIN, raised) is ChainStatus.ACTIVE
    assert exits(record, 30 * MIN, raised) is ChainStatus.DONE
    assert exits(record, 60 * MIN, raised) is ChainStatus.DONE


@pytest.mark.parametrize("polled", [True, False])
def test_limit_raised_early_exit_is_done(polled: bool) -> None:
    record = started(20 * MIN)
    record = seen_with(record, 60 * MIN, 10 * MIN) if polled else record
    assert exits(record, 33 * MIN, 60 * MIN) is ChainStatus.DONE
    assert exits(record, 58 * MIN, 60 * MIN) is ChainStatus.ACTIVE


def test_limit_lowered_and_raised_after_warning_continues() -> None:
    """The warning came by the first limit; saving takes longer than the second would have let it."""
    record = started(30 * MIN)
    record = seen_with(record, 28 * MIN + 10, 28 * MIN)
    record = seen_with(record, 90 * MIN, 28 * MIN + 5)
    assert exits(record, 29 * MIN, 90 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 31 * MIN, 90 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 45 * MIN, 90 * MIN) is ChainStatus.DONE


def test_each_change_after_a_warning_keeps_it() -> None:
    """However often the limit changes, an exit until the end of any limit that had warned executes a warning."""
    for limits in itertools.permutations((21 * MIN, 25 * MIN, 60 * MIN), 3):
        record = started(20 * MIN)
        for seconds, limit in enumerate(limits):
            record = seen_with(record, limit, 18 * MIN + seconds)
        assert exits(record, 19 * MIN + 30, limits[-1]) is ChainStatus.ACTIVE, limits


@pytest.mark.parametrize("polled", [True, False])
def test_limit_raised_after_warning_continues(polled: bool) -> None:
    """The job executes the warning that it got, whatever its limit is by then."""
    record = started(20 * MIN)
    record = seen_with(record, 60 * MIN, 18 * MIN + 30) if polled else record
    assert exits(record, 19 * MIN, 60 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 33 * MIN, 60 * MIN) is ChainStatus.DONE


@pytest.mark.parametrize("behind", [0, 10 * MIN, 30 * MIN])
def test_limit_raised_after_warning_clock_behind_continues(behind: int) -> None:
    """When the change came is known by this machine's clock alone, which may be behind Slurm's."""
    record = seen_with(started(20 * MIN), 60 * MIN, 18 * MIN - behind)
    assert exits(record, 19 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 12 * MIN) is ChainStatus.DONE, "no limit can have warned of its end by then"
    assert exits(record, 33 * MIN) is ChainStatus.DONE


def test_suspended_time_moves_the_limit() -> None:
    record = machine.apply(started(20 * MIN), LinkStarted(1, 0, 50 * MIN, 20 * MIN), 40 * MIN)
    assert exits(record, 30 * MIN, 20 * MIN) is ChainStatus.DONE
    assert exits(record, 48 * MIN, 20 * MIN) is ChainStatus.ACTIVE


def test_requeued_link_is_judged_by_its_last_run() -> None:
    record = seen_with(started(20 * MIN), 60 * MIN, 19 * MIN)
    record = machine.apply(record, LinkStarted(1, HOUR, HOUR + 60 * MIN, 60 * MIN), HOUR)
    ended = LinkEnded(1, HOUR, HOUR + 10 * MIN, JobState.COMPLETED, 0, 60 * MIN)
    assert machine.apply(record, ended, 2 * HOUR).status is ChainStatus.DONE


def test_link_of_an_older_database_is_judged_by_the_request() -> None:
    link = Link(1, "mirage:svc:1", 0, LinkState.RUNNING, JobId(1), 0, 0, REQUESTED)
    record = ChainRecord(warned_chain(), (link,))
    assert exits(record, 38 * MIN) is ChainStatus.ACTIVE
    assert exits(record, 20 * MIN) is ChainStatus.DONE


def test_loop_lowered_limit_keeps_the_chain() -> None:
    fates = iter([Fate(runtime=13 * MIN), Fate(runtime=5 * MIN)])
    service = Service(FakeCluster(lambda request: next(fates)), chain_=warned_chain())
    service.cycle()
    service.cycle(2 * MIN)
    job: Job = service.cluster.jobs[100]
    service.cluster.jobs[100] = replace(job, limit=15 * MIN, end=job.start + 15 * MIN)
    service.cycle(14 * MIN)
    assert service.record.status is ChainStatus.ACTIVE
    service.cycle(16 * MIN)
    service.cycle(30 * MIN)
    assert service.record.status is ChainStatus.DONE, "the second link ended long before its limit"
