"""A chain's record after its database was restored, against what Slurm shows of its links."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, chain

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import ABSENT, Job, JobId, JobState, WarnSignal
from mirage.domain.link import Link, LinkState
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.domain.tags import PastLinks
from mirage.provisioner.restored import PastJobs, bring_up

NOW = 100 * HOUR
ON_START = HandoverSettings(HandoverPolicy.ON_START)


def link(index: int, state: LinkState = LinkState.RUNNING, **more) -> Link:
    start = index * HOUR
    known = {"job_id": JobId(10 + index), "submit": start - 60, "start": start, "end": start + HOUR}
    return Link(index, f"mirage:svc:{index}", start - 60, state, **(known | more))


def job(index: int, state: JobState = JobState.TIMEOUT, **more) -> Job:
    start = index * HOUR
    tag = f"mirage:svc:{index}"
    found = Job(JobId(10 + index), "svc", "alice", "p", 1, HOUR, state, start - 60, start, start + HOUR, tag=tag)
    return replace(found, **more)


def snapshot(*jobs: Job, stock: tuple[Job, ...] | None = None) -> Snapshot:
    columns = JobColumns.none()
    return Snapshot(NOW, columns, columns, (), (), (), (), {each.tag: each for each in jobs}, stock=stock)


def brought(record: ChainRecord, seen: Snapshot, *past: Job, keeps: bool | None = True, known: bool = True):
    answer = PastLinks(past) if known else None
    after = bring_up(record, seen, PastJobs(answer, keeps, [record]), 2 * HOUR, NOW)
    after.record.check()
    return after.record


def record(*links: Link, **more) -> ChainRecord:
    return ChainRecord(chain(HOUR, **more), links)


def with_warning(record: ChainRecord) -> ChainRecord:
    request = replace(record.chain.request, warn=WarnSignal("USR1", 120))
    return replace(record, chain=replace(record.chain, request=request))


def test_restored_chain_without_further_jobs_goes_on() -> None:
    after = brought(record(link(1)), snapshot(job(1, JobState.RUNNING)), job(1))
    assert after.status is ChainStatus.ACTIVE
    assert [each.index for each in after.links] == [1]


def test_restored_chain_takes_over_past_links_and_is_paused() -> None:
    after = brought(record(link(1)), snapshot(job(1)), job(1), job(2), job(3))
    assert "accounting" not in after.reason
    assert after.status is ChainStatus.PAUSED
    assert [(each.state, each.job_id) for each in after.links] == [(LinkState.ENDED, n) for n in (11, 12, 13)]
    assert "12 (2), 13 (3)" in after.reason
    assert after.reason.endswith("mirage chain resume svc")


@pytest.mark.parametrize("known", [True, False])
def test_chain_that_was_paused_before_the_backup_keeps_its_reason(known: bool) -> None:
    """An administrator who resumes what the restore has paused leaves it out."""
    paused = replace(record(link(1)), status=ChainStatus.PAUSED, reason="by alice")
    after = brought(paused, snapshot(job(1)), job(1), job(2), known=known)
    assert after.status is ChainStatus.PAUSED
    assert after.reason.startswith("by alice; paused already in a backup")
    assert "restored" not in after.reason
    again = brought(after, snapshot(job(1)), job(1), job(2), job(3), known=known)
    assert again.reason.count("paused already") == 1


def test_chain_that_two_restores_have_paused_is_one_of_those() -> None:
    first = brought(record(link(1)), snapshot(job(1)), job(1), job(2))
    second = brought(first, snapshot(job(1)), job(1), job(2), job(3))
    assert second.status is ChainStatus.PAUSED
    assert second.reason.startswith("the database was restored from a backup")


def test_restored_chain_that_has_completed_is_done() -> None:
    after = brought(record(link(1)), snapshot(job(1)), job(2), job(3, JobState.COMPLETED))
    assert after.status is ChainStatus.DONE


@pytest.mark.parametrize(
    "waiting",
    [
        job(3, JobState.PENDING, submit=3 * HOUR - 600, start=ABSENT, end=ABSENT),
        job(3, JobState.CANCELLED, submit=3 * HOUR - 600, start=3 * HOUR, end=3 * HOUR),
    ],
    ids=["pending", "cancelled"],
)
@pytest.mark.parametrize("known", [1, 2])
def test_restored_chain_is_done_whose_waiting_link_never_started(waiting: Job, known: int) -> None:
    """It was submitted before its predecessor did the work, and waits for a failure of it that never comes."""
    seen = [each for each in (job(1), waiting) if not each.state.finished]
    links = [link(1), link(2)][:known]
    after = brought(record(*links), snapshot(*seen, job(2, JobState.COMPLETED)), job(1), waiting)
    assert after.status is ChainStatus.DONE


WAITED = {"submit": 2 * HOUR + 30}


@pytest.mark.parametrize(
    ("successor", "status"),
    [
        (job(3, JobState.PENDING, start=ABSENT, end=ABSENT, **WAITED), ChainStatus.PAUSED),
        (job(3, JobState.CANCELLED, start=ABSENT, end=2 * HOUR + 605, **WAITED), ChainStatus.DONE),
        (job(3, JobState.CANCELLED, start=2 * HOUR + 605, end=2 * HOUR + 605, **WAITED), ChainStatus.DONE),
        (job(3, JobState.CANCELLED, start=2 * HOUR + 60, end=2 * HOUR + 60, **WAITED), ChainStatus.DONE),
        (job(3, **WAITED), ChainStatus.PAUSED),
    ],
    ids=["waits", "cancelled-at-the-end", "cancelled-at-the-end-with-a-start", "cancelled-before", "ran"],
)
def test_restored_chain_with_a_warning_is_done_only_where_its_successor_was_given_up(
    successor: Job, status: ChainStatus
) -> None:
    """Whether the exit with 0 followed the warning is for its owner to say, unless nothing waits to follow it."""
    warned = with_warning(record(link(1)))
    queue = [] if successor.state.finished else [successor]
    past = [successor] if successor.state.finished else []
    after = brought(warned, snapshot(*queue), job(1), job(2, JobState.COMPLETED, end=2 * HOUR + 600), *past)
    assert after.status is status


@pytest.mark.parametrize(
    ("conditions", "last", "status"),
    [
        ({}, {"state": JobState.CANCELLED}, ChainStatus.STOPPED),
        ({"done": DoneCondition(exit_code=7)}, {"state": JobState.FAILED, "exit_code": 7}, ChainStatus.DONE),
        (
            {"failures": FailurePolicies(exit=FailurePolicy(FailureAction.STOP))},
            {"state": JobState.FAILED, "exit_code": 1},
            ChainStatus.STOPPED,
        ),
    ],
    ids=["cancelled", "exit-code", "failed"],
)
def test_restored_chain_that_ended_is_over_beside_a_successor_cancelled_with_it(conditions, last, status) -> None:
    """Its owner's ``cancel`` ends the waiting link immediately, and the running one after ``KillWait``."""
    successor = job(3, JobState.CANCELLED, start=ABSENT, end=2 * HOUR + 580, **WAITED)
    ended = job(2, end=2 * HOUR + 600, **last)
    after = brought(with_warning(record(link(1), **conditions)), snapshot(), job(1), ended, successor)
    assert after.status is status


def test_restored_chain_continued_where_a_link_was_submitted_after_an_end() -> None:
    waiting = job(3, JobState.PENDING, start=ABSENT, end=ABSENT, submit=3 * HOUR + 60)
    after = brought(record(link(1)), snapshot(waiting), job(1), job(2, JobState.COMPLETED))
    assert after.status is ChainStatus.PAUSED


def test_restored_chain_counts_past_links_towards_its_bound() -> None:
    after = brought(record(link(1), done=DoneCondition(exit_code=None, links=3)), snapshot(job(1)), job(2), job(3))
    assert after.status is ChainStatus.DONE


def test_restored_chain_cancelled_since_by_its_owner_is_over() -> None:
    after = brought(record(link(1)), snapshot(job(1)), job(2, JobState.CANCELLED))
    assert after.status is ChainStatus.STOPPED


@pytest.mark.parametrize("handover", [HandoverSettings(), ON_START])
def test_restored_running_successor_is_not_cancelled_by_the_end_before_it(handover: HandoverSettings) -> None:
    """The first link ended with 0 on Mirage's signal; no record of that signal exists."""
    running = job(2, JobState.RUNNING, start=NOW - 60, end=NOW + HOUR)
    after = brought(record(link(1), handover=handover), snapshot(job(1, JobState.COMPLETED), running))
    assert after.status is ChainStatus.PAUSED
    assert not after.cancel_running
    assert after.links[1].running


def test_restored_predecessor_that_runs_may_have_been_told() -> None:
    """It ends with 0 only after the comparison: that is no end of the chain."""
    jobs = [job(n, JobState.RUNNING, start=NOW - 60 * (3 - n), end=NOW + HOUR) for n in (1, 2)]
    first = link(1, start=NOW - 120, end=NOW + HOUR, submit=NOW - 200)
    after = brought(record(first, handover=ON_START), snapshot(*jobs))
    assert after.links[0].telling != ABSENT
    assert after.links[1].telling == ABSENT


def test_restored_chain_with_a_missing_job_leaves_its_index_out() -> None:
    after = brought(record(link(1)), snapshot(job(1)), job(3))
    assert [each.state for each in after.links] == [LinkState.ENDED, LinkState.LOST, LinkState.ENDED]


def test_restored_chain_ignores_comments_that_cannot_be_its_links() -> None:
    far, others = job(900_000_000), job(2, user="mallory")
    own = job(1, JobState.RUNNING, tag="")
    after = brought(record(link(1)), snapshot(job(1, JobState.RUNNING)), own, far, others, job(0))
    assert len(after.links) == 1
    assert after.status is ChainStatus.ACTIVE


def test_restored_planned_link_is_found_in_accounting() -> None:
    planned = Link(2, "mirage:svc:2", HOUR)
    after = brought(record(link(1, LinkState.ENDED), planned), snapshot(), job(2))
    assert after.links[1].job_id == 12
    assert after.status is ChainStatus.PAUSED


def test_restored_planned_link_that_was_overtaken_waits_no_more() -> None:
    planned = Link(2, "mirage:svc:2", HOUR)
    pending = job(3, JobState.PENDING, start=ABSENT, end=ABSENT)
    after = brought(record(link(1, LinkState.ENDED), planned), snapshot(pending))
    assert [each.state for each in after.links[1:]] == [LinkState.LOST, LinkState.PENDING]


def test_restored_requeued_job_is_two_links() -> None:
    """The second run of job 11 is link 2, whose comment still names the first."""
    again = job(1, JobState.COMPLETED, submit=3 * HOUR, start=3 * HOUR, end=4 * HOUR)
    running = job(3, JobState.RUNNING, start=NOW - 60, end=NOW + HOUR)
    after = brought(record(link(1), handover=ON_START), snapshot(again, running), again)
    assert after.links[1].job_id == 11
    assert after.links[2].running
    assert after.status is ChainStatus.PAUSED


def test_restored_failures_do_not_end_a_chain_that_went_on() -> None:
    """Its owner had resumed it."""
    policies = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    failed = job(2, JobState.FAILED, exit_code=1)
    after = brought(record(link(1), failures=policies), snapshot(job(1)), failed, job(3))
    assert after.status is ChainStatus.PAUSED
    assert len(after.links) == 3


def test_restored_stock_is_no_link() -> None:
    """Held links that their owner has submitted in advance, and one that was cancelled as such."""
    held = job(2, JobState.PENDING, start=ABSENT, end=ABSENT, held=True)
    gone = job(3, JobState.CANCELLED, start=ABSENT, end=2 * HOUR)
    seen = snapshot(job(1, JobState.RUNNING), stock=(held,))
    after = brought(record(link(1)), seen, job(1, JobState.RUNNING, tag=""), held, gone)
    assert len(after.links) == 1
    assert after.status is ChainStatus.ACTIVE


@pytest.mark.parametrize(
    ("past", "keeps", "known", "paused"),
    [
        ((job(1),), True, True, False),
        ((), True, True, True),
        ((job(1, user="bob"), job(2, user="bob")), True, True, True),
        ((), False, False, True),
        ((), None, False, True),
        ((), None, True, True),
        ((job(1),), None, True, False),
        ((job(1, tag=""),), True, True, True),
        ((job(1, JobState.RUNNING, tag=""),), True, True, False),
    ],
)
def test_restored_chain_is_paused_unless_comments_are_kept(past, keeps, known, paused) -> None:
    after = brought(record(link(1)), snapshot(job(1)), *past, keeps=keeps, known=known)
    assert (after.status is ChainStatus.PAUSED) is paused
    assert not paused or "accounting" in after.reason


def test_restored_chain_is_paused_where_a_row_cannot_be_read() -> None:
    answer = PastLinks((), frozenset({"mirage:svc:2"}))
    before = record(link(1))
    after = bring_up(before, snapshot(job(1)), PastJobs(answer, True, [before]), 2 * HOUR, NOW)
    assert after.record.status is ChainStatus.PAUSED


def test_restored_end_says_nothing_where_links_are_not_known() -> None:
    """Mirage may have signalled it to exit for a successor that has ended as well."""
    before = record(link(1), handover=ON_START)
    after = brought(before, snapshot(job(1, JobState.COMPLETED)), keeps=False, known=False)
    assert after.status is ChainStatus.PAUSED
    after = brought(record(link(1)), snapshot(job(1, JobState.COMPLETED)), keeps=False, known=False)
    assert after.status is ChainStatus.DONE, "a one-writer link is signalled for no successor"


def test_chains_of_accounting_that_the_database_lacks_are_named() -> None:
    past = PastJobs(PastLinks((job(1), job(1, tag="mirage:later:1"))), True, [])
    assert past.strangers([record()]) == {"later": "alice"}
