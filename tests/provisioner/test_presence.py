"""Reasons for which a link stays in the queue, and its possible start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.domain.chain import Chain, ChainId, ChainRecord, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.job import ABSENT, Job, JobId, JobRequest, JobState, WarnSignal
from mirage.domain.link import Link, LinkState
from mirage.provisioner.pending import Kept, expected_start, kept_by, kept_until, running_until

HOUR, MIN = 3_600, 60
END, PLAN = 2 * HOUR, 2 * HOUR + 7 * MIN
"""End of the first link by its limit; Slurm's plan for the second."""


def record(steering: Steering, policy: HandoverPolicy, *, unpinned: bool = False) -> ChainRecord:
    request = JobRequest("svc", "alice", 2 * HOUR, warn=WarnSignal("TERM", 2 * MIN))
    chain = Chain(ChainId("svc"), "svc", "alice", request, steering=steering, handover=HandoverSettings(policy))
    first = Link(1, chain.tag(1), 0, LinkState.RUNNING, JobId(1), 0, start=0, end=END, limit=2 * HOUR)
    second = Link(2, chain.tag(2), 5, LinkState.PENDING, JobId(2), 5, unpinned=unpinned)
    return ChainRecord(chain, (first, second))


def job(number: int, state: JobState, nodes: str = "", *, held: bool = False) -> Job:
    plan = PLAN if state is JobState.PENDING else ABSENT
    end = END if state is JobState.RUNNING else ABSENT
    more = {"end": end, "expected_start": plan, "node_list": nodes, "held": held}
    return Job(JobId(number), "svc", "alice", "gpu", 1, 2 * HOUR, state, 0, **more)


@pytest.mark.parametrize(
    ("steering", "policy", "nodes", "held", "kept", "until"),
    [
        (Steering.PIN, HandoverPolicy.NONE, "n1", False, Kept.PINNED, END),
        (Steering.AUTO, HandoverPolicy.ON_START, "n1", False, Kept.PINNED, END - 2 * MIN - 10 * MIN),
        (Steering.HOLD, HandoverPolicy.ON_START, "", True, Kept.HELD, END - 2 * MIN - 10 * MIN),
        (Steering.PIN, HandoverPolicy.ON_START, "", False, Kept.NOTHING, ABSENT),
        (Steering.OFF, HandoverPolicy.ON_START, "", False, Kept.NOTHING, ABSENT),
    ],
)
def test_what_keeps_a_link_and_until_when(
    steering: Steering, policy: HandoverPolicy, nodes: str, held: bool, kept: Kept, until: int
) -> None:
    """Links that exit for successors are released a tenth of the limit (10 min at most) before Slurm's warning."""
    chain, first = record(steering, policy), job(1, JobState.RUNNING, "n1")
    second = job(2, JobState.PENDING, nodes, held=held)
    assert kept_by(chain, chain.links[1], second) is kept
    assert kept_until(chain, kept, second, first) == until
    expected = until if kept in (Kept.PINNED, Kept.HELD) else PLAN
    assert expected_start(chain, chain.links[1], second, first) == expected


@pytest.mark.parametrize(
    ("idle", "reason", "held"), [(False, "Resources", False), (True, "PartitionDown", False), (True, "", True)]
)
def test_pinned_link_that_more_than_its_pin_keeps_starts_as_slurm_plans(
    idle: bool, reason: str, held: bool
) -> None:
    chain, first = record(Steering.AUTO, HandoverPolicy.ON_START), job(1, JobState.RUNNING, "n1")
    waits = replace(job(2, JobState.PENDING, "n1", held=held), reason=reason)
    assert expected_start(chain, chain.links[1], waits, first, idle=idle) == PLAN


def test_link_of_one_writer_that_is_not_pinned_depends_on_the_one_before() -> None:
    chain = record(Steering.PIN, HandoverPolicy.NONE, unpinned=True)
    waiting = job(2, JobState.PENDING)
    predecessor = job(1, JobState.RUNNING, "n1")
    assert kept_by(chain, chain.links[1], waiting) is Kept.DEPENDENT
    assert expected_start(chain, chain.links[1], waiting, predecessor) == END
    waiting = replace(waiting, expected_start=ABSENT)
    assert expected_start(chain, chain.links[1], waiting, predecessor, idle=False) == ABSENT


@pytest.mark.parametrize("steering", [Steering.PIN, Steering.HOLD, Steering.NICE])
def test_nothing_keeps_a_link_whose_nodes_boot(steering: Steering) -> None:
    chain = record(steering, HandoverPolicy.ON_START)
    boots = replace(job(2, JobState.RUNNING, "n2", held=steering is Steering.HOLD), start=ABSENT)
    assert kept_by(chain, chain.links[1], boots) is Kept.NOTHING


@pytest.mark.parametrize(
    ("reason", "held", "kept"),
    [
        ("JobHeldAdmin", False, Kept.ADMIN),
        ("JobHeldUser", True, Kept.OWNER),
        ("PartitionDown", False, Kept.DEPENDENT),
    ],
)
def test_dependent_link_that_more_keeps_has_no_start(reason: str, held: bool, kept: Kept) -> None:
    chain = record(Steering.PIN, HandoverPolicy.NONE, unpinned=True)
    waiting = replace(job(2, JobState.PENDING, held=held), reason=reason, expected_start=ABSENT)
    assert kept_by(chain, chain.links[1], waiting) is kept
    assert expected_start(chain, chain.links[1], waiting, job(1, JobState.RUNNING, "n1")) == ABSENT


def test_end_of_a_suspended_predecessor_is_not_known() -> None:
    chain = record(Steering.PIN, HandoverPolicy.NONE)
    waiting = job(2, JobState.PENDING, "n1")
    assert kept_until(chain, Kept.PINNED, waiting, job(1, JobState.SUSPENDED, "n1")) == ABSENT
    assert kept_until(chain, Kept.PINNED, waiting, None) == ABSENT
    assert expected_start(chain, chain.links[1], waiting, job(1, JobState.SUSPENDED, "n1")) == ABSENT


def test_link_that_is_to_begin_later_is_expected_then() -> None:
    """The first one by its owner's word, any by Slurm's as its job was requeued."""
    chain = record(Steering.PIN, HandoverPolicy.NONE)
    waiting = replace(job(2, JobState.PENDING), reason="BeginTime", expected_start=ABSENT, begin=9 * HOUR)
    assert kept_by(chain, chain.links[1], waiting) is Kept.BEGIN
    assert expected_start(chain, chain.links[1], waiting, None) == 9 * HOUR


def test_running_link_ends_by_its_limit_or_as_its_time_to_make_way_is_over() -> None:
    chain, running = record(Steering.PIN, HandoverPolicy.ON_START), job(1, JobState.RUNNING, "n1")
    grace = chain.chain.handover.signal.lead
    first = chain.links[0]
    assert running_until(chain, first, running) == END
    assert running_until(chain, replace(first, retired=HOUR), running) == HOUR + grace
    assert running_until(chain, replace(first, retired=END), running) == END
    assert running_until(chain, first, job(1, JobState.SUSPENDED)) == ABSENT
