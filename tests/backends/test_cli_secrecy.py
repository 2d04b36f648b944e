"""Data that the cli backend hides from other users of the machine, and data of their jobs that it may not see."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from backends.contract import HOUR, Doing
from backends.test_cli import FakeWorld, slurm, world

from mirage.backends.cli import CliCluster, past_jobs
from mirage.backends.cli_links import LinkTracker
from mirage.backends.cluster_queries import CliVisibility
from mirage.backends.execution import CommandRunner
from mirage.backends.jobquery import Fates
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.link import NO_JOB, LinkIdentity, is_link
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.slurm.queuetext import Queue, QueueRow

if TYPE_CHECKING:
    from fake_slurm.fake import FakeSlurm

__all__ = ["slurm", "world"]

TAG = "mirage:svc.qqq:1"
JOB = Job(JobId(7), "svc", "bob", "cpu", 1, HOUR, JobState.RUNNING, 100, start=200, end=200 + HOUR, tag=TAG)
BOBS = LinkIdentity(TAG, "bob", "svc", "cpu", 100)


def queue(*jobs: Job, owners: tuple[str, ...] = ()) -> Queue:
    ours = tuple(QueueRow(job, completing=False) for job in jobs)
    return Queue(JobColumns.none(), JobColumns.none(), (), (), (), ours, (), owners=frozenset(owners))


def account(memory: LinkTracker, seen: Queue, fates: Fates | None = None) -> dict[str, Job]:
    found = fates or Fates({}, lagging=False)
    return memory.account(seen, {TAG: JobId(7)}, lambda ids: found, 1_000, {TAG: BOBS})


def test_cli_marks_of_answers_are_in_no_argument(world: FakeWorld) -> None:
    """Arguments of a process are public, and a comment can be changed before Slurm answers."""
    request, job_id = world.submit(Doing(runs=60))
    world.slurm.advance(HOUR)
    world.cluster.snapshot(expected={request.tag: job_id, "mirage:c:2": NO_JOB})
    world.cluster.snapshot(expected={"mirage:c:2": NO_JOB})
    past_jobs(CommandRunner(world.slurm.environment("alice")), 0, world.slurm.now())
    calls = [call for call in world.slurm.calls if call.command in ("squeue", "sinfo", "sacct")]
    assert {call.command for call in calls} == {"squeue", "sinfo", "sacct"}
    assert not any("\x1e" in argument for call in calls for argument in call.arguments)
    marks = [re.findall("\x1e[0-9a-f]{12}", "".join(call.environment.values())) for call in calls]
    assert [len(found) for found in marks] == [1] * len(calls)
    assert len({found[0] for found in marks}) == len(calls)


# Users whom Slurm cannot name just now


@pytest.mark.parametrize("shown", ["nobody", "1001", ""])
def test_link_whose_user_has_no_name_just_now_is_its_owners(shown: str) -> None:
    found = account(LinkTracker(), queue(replace(JOB, user=shown)))
    assert found == {TAG: JOB}
    assert Snapshot.unseen(0).link(TAG, "bob") is None
    assert replace(Snapshot.unseen(0), links=found).link(TAG, "bob") == JOB


def test_link_of_another_name_is_none_of_the_owners() -> None:
    assert not is_link(replace(JOB, user="alice"), BOBS)
    assert is_link(replace(JOB, user="nobody"), BOBS)
    assert not is_link(replace(JOB, user="nobody", tag="", name="other", submit=500), BOBS), "an ID used again"


def test_link_without_an_id_and_a_user_without_a_name_is_unknown() -> None:
    memory = LinkTracker()
    seen = queue(replace(JOB, user="nobody"))
    assert TAG not in memory.account(seen, {TAG: NO_JOB}, lambda ids: Fates({}), 1_000, {TAG: BOBS})
    assert memory.unaccounted == {TAG}, "it may be the link: not lost, and not sent again"


# Jobs that Slurm hides (PrivateData=jobs)


def test_link_that_slurm_may_hide_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    memory = LinkTracker("mirage")
    with caplog.at_level(logging.WARNING):
        assert account(memory, queue(owners=("mirage",))) == {}
        assert account(memory, queue()) == {}
    assert memory.unaccounted == {TAG}
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=jobs_hidden"]


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.RUNNING])
def test_link_that_slurm_may_hide_ends_as_accounting_tells(state: JobState) -> None:
    memory = LinkTracker("mirage")
    row = replace(JOB, state=state, end=900 if state.finished else ABSENT)
    found = account(memory, queue(), Fates({JobId(7): row}))
    assert found == ({TAG: row} if state.finished else {})
    assert memory.unaccounted == (frozenset() if state.finished else {TAG})


@pytest.mark.parametrize("me", ["bob", ""])
def test_link_that_slurm_would_show_is_lost(me: str) -> None:
    memory = LinkTracker(me)
    assert account(memory, queue()) == {}
    assert memory.unaccounted == frozenset()


@pytest.mark.parametrize("shows_all", [True, False])
def test_link_is_lost_by_what_slurm_says_and_not_because_some_jobs_are_seen(shows_all: bool) -> None:
    """With PrivateData=jobs a coordinator sees the jobs of one account of Slurm."""
    told = []

    def asked(seen: bool) -> bool:
        told.append(seen)
        return shows_all

    memory = LinkTracker("mirage", asked)
    assert account(memory, queue(owners=("carol", "mirage"))) == {}
    assert memory.unaccounted == (frozenset() if shows_all else {TAG})
    assert told == [True]


def test_link_that_slurm_does_not_hide_is_lost() -> None:
    answers = iter((False, True, False))
    memory = LinkTracker("mirage", lambda seen: next(answers))
    none = Fates({}, lagging=False)
    lost = []
    for now in (1_000, 1_059, 1_060, 1_120):
        memory.account(queue(), {TAG: JobId(7)}, lambda ids: none, now, {TAG: BOBS})
        lost.append(memory.unaccounted == frozenset())
    assert lost == [False, False, True, False], "Slurm is asked again after a minute: PrivateData can change"


CONFIG = ("scontrol", "config")


@pytest.mark.parametrize(
    ("account", "told", "seen"),
    [
        ("root", {}, True),
        ("mirage", {}, False),
        ("mirage", {CONFIG: "PrivateData = none\n"}, True),
        ("mirage", {CONFIG: "PrivateData = usage,accounts\n"}, True),
        ("mirage", {CONFIG: "PrivateData = jobs,usage\nSlurmUser = slurm(64030)\n"}, False),
        ("slurm", {CONFIG: "PrivateData = jobs\nSlurmUser = slurm(64030)\n"}, True),
        ("mirage", {CONFIG: "PrivateData = jobs\n", ("sacctmgr", "user"): "mirage|Operator\n"}, True),
        ("mirage", {CONFIG: "PrivateData = jobs\n", ("sacctmgr", "user"): "mirage|None\n"}, False),
        ("mirage", {CONFIG: "PrivateData = jobs\n", ("sacctmgr", "user"): "other|Administrator\n"}, False),
        ("mirage", {CONFIG: "garbage"}, False),
    ],
)
def test_account_sees_all_jobs(
    slurm: FakeSlurm, account: str, told: dict[tuple[str, str], str], seen: bool
) -> None:
    slurm.told |= told
    assert CliVisibility(CommandRunner(slurm.environment("alice")), account)() is seen


def test_idle_cluster_does_not_keep_a_link_that_never_arrived(world: FakeWorld) -> None:
    world.slurm.accounting = False
    world.slurm.told[CONFIG] = "PrivateData = none\n"
    expected, known = {"mirage:other:1": NO_JOB}, {"mirage:other:1": LinkIdentity("mirage:other:1", "alice")}
    as_mirage = CliCluster(CommandRunner(world.slurm.environment("alice")), world.slurm, "mirage")
    assert as_mirage.snapshot(expected=expected, identities=known).unaccounted == frozenset()


def test_cluster_tells_whose_jobs_it_shows(world: FakeWorld) -> None:
    request, job_id = world.submit(Doing(runs=60))
    world.slurm.advance(2 * HOUR)
    world.slurm.accounting = False
    expected, known = {request.tag: job_id}, {request.tag: LinkIdentity(request.tag, "alice")}
    as_mirage = CliCluster(CommandRunner(world.slurm.environment("alice")), world.slurm, "mirage")
    assert as_mirage.snapshot(expected=expected, identities=known).unaccounted == {request.tag}
    world.foreign_job()
    assert as_mirage.snapshot(queue=False, expected=expected, identities=known).unaccounted == {request.tag}
    world.slurm.told[CONFIG] = "PrivateData = none\n"
    world.slurm.advance(61)
    seen = as_mirage.snapshot(queue=False, expected=expected, identities=known)
    assert request.tag not in seen.links
    assert seen.unaccounted == frozenset()
