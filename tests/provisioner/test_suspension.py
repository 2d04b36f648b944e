"""The time that a chain lost while Slurm had suspended its links, against a count of every minute."""

from __future__ import annotations

from fakes import HOUR
from hypothesis import given
from hypothesis import strategies as st
from provisioner.test_machine import LIMIT, after, fresh, submitted

from mirage.domain.chain import ChainRecord, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.job import ABSENT, JobState
from mirage.provisioner import machine
from mirage.provisioner.events import CancelAsked, LinkEnded, LinkResumed, LinkStarted, LinkSuspended
from mirage.provisioner.handover import to_retire
from mirage.provisioner.service import Service, ServiceState, interruption_of, service_of, suspended_for

RUNS = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(6, 14), st.integers(1, 5), st.integers(1, 20)),
    min_size=1,
    max_size=5,
)
"""Minutes from the end of the one before to the start, of the run, until it is suspended, and of that."""


@given(RUNS, st.integers(12, 90))
def test_interruption_is_that_of_a_count_of_minutes(runs: list[tuple[int, int, int, int]], now: int) -> None:
    """Links overlap, are suspended and resumed, or end suspended."""
    record = fresh(done=DoneCondition(exit_code=None), handover=HandoverSettings(HandoverPolicy.OVERLAP))
    works, end, starts = [0] * now, 5, []
    steps: list[tuple[int, int, int]] = []
    for k, (gap, length, until, pause) in enumerate(runs):
        start = max(end + gap, starts[-1] + 1 if starts else 0)
        end = max(end + 1, start + length)
        starts.append(start)
        stops, goes = start + until, start + until + pause
        steps += [(start, 1, k), (end, 0, k)]
        steps += [(stops, 2, k), (goes, 3, k)] if goes < end else [(stops, 2, k)] if stops < end else []
        for minute in range(start, min(end, now)):
            works[minute] += not stops <= minute < goes
    for at, what, k in sorted(steps):
        if at <= now:
            record = step(record, at, what, k + 1, starts[k])
    first = min(starts)
    down = [minute for minute in range(first, now) if not works[minute]]
    assert interruption_of(record, now) == len(down), (sorted(steps), down)
    assert suspended_for(record, now) <= len(down)


def step(record: ChainRecord, at: int, what: int, index: int, start: int) -> ChainRecord:
    match what:
        case 0:
            return after(record, LinkEnded(index, start, at, JobState.TIMEOUT, 0), now=at)
        case 1:
            return after(submitted(record, at), LinkStarted(index, at, at + LIMIT), now=at)
        case 2:
            return after(record, LinkSuspended(index, at), now=at)
        case _:
            return after(record, LinkResumed(index, at), now=at)


def test_suspended_chain_is_down_since_then() -> None:
    up = step(fresh(done=DoneCondition(exit_code=None)), 10, 1, 1, 10)
    down = step(up, 30, 2, 1, 10)
    found = service_of(down, 50)
    assert (found.state, found.since, found.interruption) == (ServiceState.DOWN, 30, 20)
    again = step(down, 60, 3, 1, 10)
    assert (service_of(again, 90).state, again.links[0].suspended) == (ServiceState.UP, ABSENT)
    assert (interruption_of(again, 90), suspended_for(again, 90)) == (30, 30)


def test_what_was_lost_before_a_cancellation_counts_once() -> None:
    down = step(step(fresh(done=DoneCondition(exit_code=None)), 10, 1, 1, 10), 30, 2, 1, 10)
    over = step(after(down, CancelAsked(), now=50), 70, 0, 1, 10)
    assert interruption_of(over, 900) == 20


def test_next_link_of_one_writer_does_not_end_the_wait() -> None:
    """It has nodes, and waits for the end of the suspended one."""
    down = step(step(fresh(done=DoneCondition(exit_code=None)), 10, 1, 1, 10), 30, 2, 1, 10)
    waits = step(down, 40, 1, 2, 40)
    assert service_of(waits, 60).state is ServiceState.DOWN
    assert interruption_of(waits, 60) == 30
    assert interruption_of(step(waits, 70, 3, 1, 10), 80) == 40


def test_chain_goes_on_beside_a_suspended_link_that_makes_way_once_it_is_resumed() -> None:
    record = fresh(done=DoneCondition(exit_code=None), handover=HandoverSettings(HandoverPolicy.ON_START))
    down = step(step(record, 10, 1, 1, 10), 30, 2, 1, 10)
    again = step(down, 40, 1, 2, 40)
    assert service_of(again, 60) == Service(ServiceState.UP, 40)
    assert again.head == again.links[1]
    assert to_retire(again, ready=False, now=60) == ()
    assert not isinstance(machine.need(again, 2 * HOUR, 120), machine.NoAction), "it needs a third link"
    resumed = step(again, 70, 3, 1, 10)
    assert to_retire(resumed, ready=False, now=70) == (resumed.links[0],)
    assert interruption_of(resumed, 90) == 10
