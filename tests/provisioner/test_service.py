"""The state of a chain's service against a count of every minute."""

from __future__ import annotations

import pytest
from fakes import HOUR
from hypothesis import given
from hypothesis import strategies as st
from provisioner.test_machine import LIMIT, after, ended, fresh, running, submitted

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import ABSENT, JobState
from mirage.provisioner.events import CancelAsked, LinkEnded, LinkStarted, PauseAsked, ResumeAsked
from mirage.provisioner.service import Service, ServiceState, service_of

STOPS = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
# Runs as (minutes from the end of the one before to the start, minutes of the run).
RUNS = st.lists(st.tuples(st.integers(-3, 6), st.integers(4, 9)), max_size=6)


def played(runs: list[tuple[int, int]], now: int) -> tuple[ChainRecord, list[int]]:
    """The chain as it stands at ``now``, and of each minute until then how many links ran."""
    record, covered, end = fresh(done=DoneCondition(exit_code=None)), [0] * now, 5
    times = []
    for gap, length in runs:
        start = end + gap
        end = start + length
        times.append((start, end))
    instants = sorted(
        [(a, 1, k) for k, (a, _) in enumerate(times)] + [(b, 0, k) for k, (_, b) in enumerate(times)]
    )
    for at, starts, k in instants:
        if at > now:
            continue
        if starts:
            record = submitted(record, at)
            record = after(record, LinkStarted(k + 1, at, at + LIMIT), now=at)
        else:
            record = after(record, LinkEnded(k + 1, times[k][0], at, JobState.TIMEOUT, 0), now=at)
    for start, stop in times:
        for minute in range(start, min(stop, now)):
            covered[minute] += 1
    return record, covered


@given(RUNS, st.integers(1, 70))
def test_interruption_and_state_are_those_of_a_count_of_minutes(runs: list[tuple[int, int]], now: int) -> None:
    record, covered = played(runs, now)
    found = service_of(record, now)
    if record.status is not ChainStatus.ACTIVE:
        return
    starts = [link.start for link in record.links if link.started]
    if not starts:
        assert found == Service(ServiceState.STARTING)
        return
    first = min(starts)
    uncovered = sum(not each for each in covered[first:now])
    assert sum(each.interruption for each in record.outcomes()) + found.interruption == uncovered
    twice = sum(max(0, each - 1) for each in covered)
    assert sum(each.overlap for each in record.outcomes()) + found.overlap == twice
    runs_now = any(link.running for link in record.links)
    assert (found.state is ServiceState.UP) == runs_now
    down = [minute for minute in range(first, now) if not covered[minute]]
    if runs_now:
        assert found.since == (down[-1] + 1 if down else first)
    else:
        assert (found.state, found.since) == (ServiceState.DOWN, now - found.interruption)


def test_a_person_or_a_failure_ends_a_chain() -> None:
    up = running(fresh())
    assert service_of(after(up, CancelAsked()), HOUR).state is ServiceState.CANCELLED
    assert service_of(ended(up, HOUR, JobState.CANCELLED), HOUR).state is ServiceState.CANCELLED
    record = up
    while record.status is ChainStatus.ACTIVE:
        record = ended(record, record.links[-1].start + HOUR // 2, JobState.FAILED, 7)
        if record.status is ChainStatus.ACTIVE:
            record = running(record, record.links[-1].end + HOUR)
    assert service_of(record, record.links[-1].end + HOUR) == Service(ServiceState.FAILED, record.links[-1].end)
    waiting = submitted(running(fresh(failures=STOPS)), HOUR // 2)
    stopped = after(waiting, LinkEnded(1, waiting.links[0].start, HOUR, JobState.FAILED, 7))
    withdrawn = after(stopped, LinkEnded(2, ABSENT, HOUR + 1, JobState.CANCELLED, 0))
    assert withdrawn.links[-1].job_state is JobState.CANCELLED
    assert service_of(withdrawn, 2 * HOUR) == Service(ServiceState.FAILED, HOUR)
    assert service_of(ended(up, HOUR, JobState.COMPLETED), 2 * HOUR) == Service(ServiceState.DONE, HOUR)


def test_what_a_chain_had_lost_as_it_was_cancelled_stays_known() -> None:
    down = ended(running(fresh(done=DoneCondition(exit_code=None))), HOUR, JobState.TIMEOUT)
    over = after(down, CancelAsked(), now=3 * HOUR)
    assert service_of(down, 3 * HOUR).interruption == 2 * HOUR
    assert service_of(over, 9 * HOUR) == Service(ServiceState.CANCELLED, 3 * HOUR, 2 * HOUR)
    assert after(running(fresh()), CancelAsked(), now=3 * HOUR).lost == 0


def test_cancelled_chain_is_cancelled_since_it_was_asked_for() -> None:
    """Its running link may live on for a while: no agent runs, or its node does not answer."""
    over = after(running(fresh()), CancelAsked(), now=HOUR // 2)
    assert service_of(over, HOUR - 60) == Service(ServiceState.CANCELLED, HOUR // 2)
    assert service_of(ended(over, HOUR, JobState.CANCELLED), 2 * HOUR).since == HOUR // 2


def test_gap_before_a_link_that_is_seen_once_it_has_ended_counts_once() -> None:
    down = ended(running(fresh(failures=STOPS, done=DoneCondition(exit_code=None))), HOUR, JobState.TIMEOUT)
    seen = LinkEnded(2, HOUR + 60, HOUR + 90, JobState.FAILED, 3)
    over = after(submitted(down, HOUR), seen, now=HOUR + 300)
    assert over.over
    assert sum(each.interruption for each in over.outcomes()) + service_of(over, 9 * HOUR).interruption == 60


@pytest.mark.parametrize("ran", [False, True])
def test_a_paused_chain_is_not_up(ran: bool) -> None:
    at = HOUR // 2
    record = after(running(fresh()) if ran else submitted(fresh()), PauseAsked("by hand"), now=at)
    assert service_of(record, HOUR) == Service(ServiceState.PAUSED, at)
    record = after(ended(record, HOUR) if ran else record, PauseAsked("once more"), now=HOUR)
    assert service_of(record, 2 * HOUR) == Service(ServiceState.PAUSED, at, HOUR if ran else 0)
    assert service_of(after(record, ResumeAsked()), 2 * HOUR).since == (HOUR if ran else ABSENT)
