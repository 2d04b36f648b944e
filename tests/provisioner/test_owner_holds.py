"""``--hold``: the owner keeps the first link until he releases it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import chain
from provisioner.test_machine import SETTLE, after, submitted

from mirage.domain.chain import ChainRecord, Steering
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.provisioner import machine, pending
from mirage.provisioner.events import LinkQueued
from mirage.provisioner.machine import NoAction, Steer


def test_hold_counts_for_the_first_link_only() -> None:
    kind = chain()
    kind = replace(kind, request=replace(kind.request, held=True))
    assert [kind.link_request(index).held for index in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(("held", "need"), [(True, NoAction), (False, Steer)])
def test_link_held_by_its_owner_is_not_steered(held: bool, need: type) -> None:
    kind = chain(steering=Steering.HOLD)
    record = ChainRecord(replace(kind, request=replace(kind.request, held=held)))
    record = after(submitted(record), LinkQueued(1))
    assert isinstance(machine.need(record, 0, SETTLE), need)


def waits(reason: str) -> Job:
    return Job(JobId(7), "s", "u", "p", 1, 3_600, JobState.PENDING, 0, ABSENT, ABSENT, reason=reason)


def test_a_link_that_its_owner_holds_is_told_as_that_with_what_lets_it_go() -> None:
    told = pending.resting("link 2 is pending", "it waits for the end of link 1", waits("JobHeldUser"))
    assert "scontrol release 7" in told
    assert "end of link 1" not in told, "over, maybe for long"
    other = pending.resting("link 2 is pending", "it waits for the end of link 1", waits("Dependency"))
    assert other == "link 2 is pending: it waits for the end of link 1: Dependency"
    assert "scontrol" not in pending.resting("link 2 is pending", "", waits("JobHeldAdmin"))
    assert pending.resting("link 2 is pending", "", None) == "link 2 is pending"


def test_a_suspended_link_is_told_as_that() -> None:
    running = replace(waits(""), state=JobState.RUNNING)
    assert pending.suspended(running) == pending.suspended(None) == ""
    assert "scontrol resume 7" in pending.suspended(replace(running, state=JobState.SUSPENDED))
