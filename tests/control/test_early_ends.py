"""Scripts that save and exit as Slurm warns them of the limit, as the documents advise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.job import JobState, WarnSignal

LIMIT, LEAD, WAIT = 2 * HOUR, 30 * MIN, 20 * MIN


def outcomes(runtime: int, state: JobState = JobState.COMPLETED) -> list[tuple[int, int]]:
    """Interruption and overlap of each handover, by a predictor that knows the wait."""
    cluster = FakeCluster(lambda request: Fate(wait=WAIT, runtime=runtime, state=state))
    done = DoneCondition(exit_code=None, links=7)
    made = chain(LIMIT, done, handover=HandoverSettings(HandoverPolicy.OVERLAP, WarnSignal("TERM", MIN)))
    request = replace(made.request, warn=WarnSignal("USR1", LEAD, batch_only=True))
    service = Service(cluster, f"fixed:{WAIT}s", chain_=replace(made, request=request))
    record = service.run(30 * HOUR, tick=MIN)
    return [(outcome.interruption, outcome.overlap) for outcome in record.outcomes()]


def test_links_that_end_at_their_warning_are_followed_at_once_from_the_second_on() -> None:
    first, *later = outcomes(LIMIT - LEAD)
    assert first[0] >= WAIT - 2 * MIN, "nothing is known of this script yet"
    assert len(later) == 5
    assert all(interruption <= 2 * MIN and overlap <= 2 * MIN for interruption, overlap in later)


@pytest.mark.parametrize("runtime", [LIMIT, None])
def test_links_that_run_to_their_limit_are_followed_there(runtime: int | None) -> None:
    found = outcomes(LIMIT if runtime is None else runtime, JobState.TIMEOUT)
    assert all(interruption <= 2 * MIN and overlap <= 2 * MIN for interruption, overlap in found)


@pytest.mark.parametrize(("between", "gap"), [(True, 0), (False, 10)])
def test_a_wait_shorter_than_the_poll_leaves_no_gap(between: bool, gap: int) -> None:
    """Polled each minute, a queue of 20 seconds: the submission is due between two polls."""
    cluster = FakeCluster(lambda request: Fate(wait=70 if request.tag.endswith(":1") else 20))
    service = Service(cluster, predictor="fixed:20s", between_polls=between)
    service.run(100 * HOUR, tick=60)
    ((_, outcome),) = service.record.handovers()
    assert outcome.interruption == gap
