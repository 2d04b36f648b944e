"""Chains as values: handovers, the objective, what failures lead to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.chain import ChainRecord
from mirage.domain.failurepolicy import FailureAction, FailurePolicy
from mirage.domain.job import ABSENT, BatchScript, JobId, JobRequest
from mirage.domain.link import Link, LinkState
from mirage.domain.objective import Outcome, Weights, objective

instants = st.integers(0, 10**10)


@given(instants, instants)
def test_a_hand_over_interrupts_or_overlaps_never_both(end: int, start: int) -> None:
    outcome = Outcome(end, start)
    assert outcome.interruption - outcome.overlap == outcome.x == start - end
    assert min(outcome.interruption, outcome.overlap) == 0


@given(instants, instants, st.floats(0, 10), st.floats(0, 10))
def test_the_objective_is_best_at_a_seamless_hand_over(end: int, start: int, e_i: float, e_o: float) -> None:
    weights = Weights(e_i, e_o)
    assert objective(Outcome(end, start), weights) <= objective(Outcome(end, end), weights) == 0


def test_the_objective_by_hand() -> None:
    assert objective(Outcome(100, 160), Weights(2.0, 0.5)) == -120
    assert objective(Outcome(160, 100), Weights(2.0, 0.5)) == -30


@given(
    st.lists(st.integers(0, 1_000), min_size=1, max_size=30),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
)
def test_the_critical_level_is_the_cheapest_quantile(starts: list[int], e_i: float, e_o: float) -> None:
    """No other planned end has a lower mean cost over these starts."""
    weights = Weights(e_i, e_o)

    def cost(end: int) -> float:
        return -sum(objective(Outcome(end, start), weights) for start in starts)

    ordered = sorted(starts)
    index = min(int(weights.critical_level * len(ordered)), len(ordered) - 1)
    around = ordered[max(index - 1, 0) : index + 2]
    assert min(map(cost, around)) == pytest.approx(min(map(cost, ordered)))


def test_links_carry_the_tag_and_the_owner() -> None:
    request = chain().link_request(3)
    assert (request.tag, request.user, request.limit) == ("mirage:svc:3", "alice", 48 * 3_600)
    assert request.name == chain().request.name


def test_links_are_told_where_the_state_of_their_tasks_is() -> None:
    request = replace(chain().request, batch=BatchScript("#!/bin/sh\n"))
    told = replace(chain(), request=request, tasks_state="/scratch/tasks").link_request(2).batch
    untold = replace(chain(), request=request).link_request(2).batch
    assert told is not None
    assert untold is not None
    assert dict(told.environment)["MIRAGE_TASKS_STATE"] == "/scratch/tasks"
    assert "MIRAGE_TASKS_STATE" not in dict(untold.environment)


def test_back_off_doubles_and_gives_up() -> None:
    policy = FailurePolicy(FailureAction.RETRY, retries=3, backoff=60)
    assert [policy.pause(n) for n in (1, 2, 3)] == [60, 120, 240]
    assert [policy.gives_up(n) for n in (1, 3, 4)] == [False, False, True]
    assert not FailurePolicy(FailureAction.CONTINUE).gives_up(10**6)
    assert FailurePolicy(FailureAction.CONTINUE).pause(5) == 0
    assert FailurePolicy(FailureAction.STOP).gives_up(1)
    assert policy.pause(10**6) > 0, "no overflow after many failures"


def link(index: int, state: LinkState, start: int = ABSENT, end: int = ABSENT) -> Link:
    return Link(index, f"mirage:svc:{index}", 0, state, JobId(index), 0, start, end)


def test_outcomes_join_neighbours_that_ran() -> None:
    record = ChainRecord(
        chain(),
        (
            link(1, LinkState.ENDED, 0, 100),
            link(2, LinkState.ENDED),  # cancelled while pending: no handover for it
            link(3, LinkState.ENDED, 130, 200),
            link(4, LinkState.RUNNING, 180, 300),
            link(5, LinkState.PENDING),
        ),
    )
    record.check()
    assert [outcome.x for outcome in record.outcomes()] == [30, -20]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100)), min_size=1, max_size=8))
def test_interruptions_and_overlaps_are_the_seconds_without_and_with_several_links(
    ran: list[tuple[int, int]],
) -> None:
    """Also where a link outlasts those after it: counted second by second."""
    spans = [(start, start + length) for start, length in sorted(ran)]
    links = [link(k, LinkState.ENDED, start, end) for k, (start, end) in enumerate(spans, 1)]
    outcomes = ChainRecord(chain(), tuple(links)).outcomes()
    running = [sum(start <= second < end for start, end in spans) for second in range(450)]
    between = range(spans[0][0], max(start for start, _ in spans))
    assert sum(outcome.interruption for outcome in outcomes) == sum(running[second] == 0 for second in between)
    assert sum(outcome.overlap for outcome in outcomes) == sum(max(0, count - 1) for count in running)


def test_a_record_that_contradicts_itself_is_caught() -> None:
    two = ChainRecord(chain(), (link(1, LinkState.PENDING), link(2, LinkState.PENDING)))
    with pytest.raises(AssertionError, match="two links wait"):
        two.check()
    with pytest.raises(AssertionError):
        ChainRecord(chain(), (link(2, LinkState.PENDING),)).check()
    with pytest.raises(AssertionError, match="never started"):
        ChainRecord(chain(), (link(1, LinkState.RUNNING),)).check()


def test_the_head_is_the_running_link_that_ends_last() -> None:
    record = ChainRecord(chain(), (link(1, LinkState.RUNNING, 0, 100), link(2, LinkState.RUNNING, 90, 190)))
    assert record.head is record.links[1]
    assert isinstance(record.chain.request, JobRequest)
