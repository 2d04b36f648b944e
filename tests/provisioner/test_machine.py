"""The chain machine, event by event: failures, done-conditions, loss, requeue, cancellation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, MIN, chain

from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import ABSENT, Job, JobId, JobState, PastRun, WarnSignal
from mirage.domain.link import LinkState
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.provisioner import handover, machine
from mirage.provisioner.events import (
    CancelAsked,
    DoneFileSeen,
    LinkEnded,
    LinkLost,
    LinkPlanned,
    LinkQueued,
    LinkRejected,
    LinkRequeued,
    LinkStarted,
    LinkSubmitted,
    PauseAsked,
    ResumeAsked,
    link_events,
)
from mirage.provisioner.failures import end_name
from mirage.provisioner.machine import NoAction, Resubmit, Successor

LIMIT = 48 * HOUR
SETTLE = 120


def after(record: ChainRecord, *events, now: int = 0) -> ChainRecord:
    record = machine.apply_all(record, events, now)
    record.check()
    return record


def submitted(record: ChainRecord, now: int = 0) -> ChainRecord:
    index = record.next_index
    return after(record, LinkPlanned("test"), LinkSubmitted(index, JobId(index), now), now=now)


def running(record: ChainRecord, start: int = 0) -> ChainRecord:
    record = submitted(record, start)
    return after(record, LinkStarted(len(record.links), start, start + LIMIT), now=start)


def ended(record: ChainRecord, end: int, state: JobState = JobState.TIMEOUT, code: int = 0) -> ChainRecord:
    link = record.links[-1]
    return after(record, LinkEnded(link.index, link.start, end, state, code), now=end)


def fresh(**kind) -> ChainRecord:
    return ChainRecord(chain(**kind))


def test_a_new_chain_needs_its_first_link_at_once() -> None:
    assert machine.need(fresh(), 0, SETTLE) == Successor(None)


def test_a_running_link_needs_a_successor_and_a_waiting_one_nothing() -> None:
    record = running(fresh())
    assert machine.need(record, 0, SETTLE) == Successor(record.links[0])
    record = submitted(record, HOUR)
    assert isinstance(machine.need(record, HOUR, SETTLE), NoAction)


def test_a_link_that_was_sent_and_never_seen_is_sent_again_after_a_while() -> None:
    record = after(fresh(), LinkPlanned("test"), now=1_000)
    assert isinstance(machine.need(record, 1_000 + SETTLE - 1, SETTLE), NoAction)
    assert machine.need(record, 1_000 + SETTLE, SETTLE) == Resubmit(record.links[0])


def test_work_that_a_later_link_finished_is_done_whatever_stopped_the_chain_before() -> None:
    """A user cancels a link while no daemon runs; its successor waited for its end, and finishes."""
    record = submitted(running(fresh()), HOUR)
    stopped = after(record, LinkEnded(1, 0, HOUR, JobState.CANCELLED, 0), now=3 * HOUR)
    assert stopped.status is ChainStatus.STOPPED
    done = after(stopped, LinkEnded(2, HOUR, 2 * HOUR, JobState.COMPLETED, 0), now=3 * HOUR)
    assert (done.status, done.reason) == (ChainStatus.DONE, "link 2 ended with exit code 0")
    for state, code in ((JobState.FAILED, 1), (JobState.TIMEOUT, 0), (JobState.CANCELLED, 0)):
        assert after(stopped, LinkEnded(2, HOUR, 2 * HOUR, state, code)).status is ChainStatus.STOPPED
    own = after(record, CancelAsked(), LinkEnded(1, 0, HOUR, JobState.CANCELLED, 0), now=HOUR)
    assert after(own, LinkEnded(2, HOUR, 2 * HOUR, JobState.COMPLETED, 0)).status is ChainStatus.STOPPED


def test_reaching_the_limit_is_no_failure() -> None:
    record = ended(running(fresh()), LIMIT)
    assert (record.status, record.failures) == (ChainStatus.ACTIVE, 0)
    assert machine.need(record, LIMIT, SETTLE) == Successor(record.links[0])


@pytest.mark.parametrize(
    ("wanted", "state", "code", "status"),
    [
        (0, JobState.COMPLETED, 0, ChainStatus.DONE),
        (None, JobState.COMPLETED, 0, ChainStatus.ACTIVE),
        (42, JobState.FAILED, 42, ChainStatus.DONE),
        (42, JobState.FAILED, 1, ChainStatus.ACTIVE),
        (0, JobState.TIMEOUT, 0, ChainStatus.ACTIVE),
        (0, JobState.CANCELLED, 0, ChainStatus.STOPPED),
    ],
)
def test_the_exit_code_that_ends_a_chain(wanted, state, code, status) -> None:
    record = ended(running(fresh(done=DoneCondition(exit_code=wanted))), HOUR, state, code)
    assert record.status is status


@pytest.mark.parametrize(("code", "status"), [(0, ChainStatus.ACTIVE), (3, ChainStatus.DONE)])
def test_only_zero_means_that_a_warning_was_obeyed(code: int, status: ChainStatus) -> None:
    kind = chain(done=DoneCondition(exit_code=code))
    warned = replace(kind, request=replace(kind.request, warn=WarnSignal("USR1", HOUR)))
    state = JobState.FAILED if code else JobState.COMPLETED
    assert ended(running(ChainRecord(warned)), LIMIT - MIN, state, code).status is status


@pytest.mark.parametrize(("lasts", "status"), [(5, ChainStatus.PAUSED), (10 * MIN, ChainStatus.ACTIVE)])
def test_links_that_are_warned_as_they_start_pause_the_chain(lasts: int, status: ChainStatus) -> None:
    kind = chain()
    record = ChainRecord(replace(kind, request=replace(kind.request, warn=WarnSignal("USR1", LIMIT))))
    for start in (0, HOUR, 2 * HOUR):
        assert record.status is ChainStatus.ACTIVE
        record = ended(running(record, start), start + lasts, JobState.COMPLETED, 0)
    assert record.status is status


def test_done_cancels_what_waits_and_what_still_runs() -> None:
    record = submitted(running(fresh()), HOUR)
    record = after(record, LinkEnded(1, 0, HOUR, JobState.COMPLETED, 0), now=HOUR)
    assert [link.index for link in handover.to_cancel(record)] == [2]
    record = after(submitted(running(fresh()), HOUR), CancelAsked())
    assert [link.index for link in handover.to_cancel(record)] == [1, 2]
    record = after(submitted(running(fresh(done=DoneCondition(file="x"))), HOUR), DoneFileSeen())
    assert [link.index for link in handover.to_cancel(record)] == [2], "the link that wrote the file may finish"


def test_so_many_links_and_no_more() -> None:
    record = running(fresh(done=DoneCondition(links=2)))
    assert machine.need(record, 0, SETTLE) == Successor(record.links[0])
    record = running(ended(record, LIMIT), LIMIT)
    assert isinstance(machine.need(record, LIMIT, SETTLE), NoAction)
    assert ended(record, 2 * LIMIT).status is ChainStatus.DONE


def test_total_time_counts_what_ran() -> None:
    record = running(fresh(done=DoneCondition(total_time=3 * LIMIT // 2)))
    assert machine.need(record, 0, SETTLE) == Successor(record.links[0])
    record = running(ended(record, LIMIT), LIMIT)
    assert isinstance(machine.need(record, LIMIT, SETTLE), NoAction), "the second link reaches the total"
    assert ended(record, LIMIT + LIMIT // 2).status is ChainStatus.DONE


def test_retries_back_off_and_then_stop() -> None:
    policies = FailurePolicies(exit=FailurePolicy(FailureAction.RETRY, retries=2, backoff=60))
    record, waits = fresh(failures=policies), []
    for _ in range(3):
        record = ended(running(record, record.not_before), record.not_before + 10, JobState.FAILED, 1)
        waits.append(record.not_before - record.links[-1].end)
    assert waits[:2] == [60, 120]
    assert record.status is ChainStatus.STOPPED
    assert "failure 3 in a row" in record.reason


def test_a_good_link_forgives_earlier_failures() -> None:
    record = ended(running(fresh()), 10, JobState.FAILED, 1)
    assert record.failures == 1
    assert ended(running(record, 100), 100 + LIMIT).failures == 0


WARNED = WarnSignal("USR1", 10 * MIN)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize(("ended_at", "goes_on"), [(15 * MIN, True), (5 * MIN, False)])
def test_link_whose_start_is_lost_may_have_been_warned(seen: bool, ended_at: int, goes_on: bool) -> None:
    """Accounting lacks the start where slurmdbd was away then: exit code 0 alone is no end of the work."""
    request = replace(chain(limit=20 * MIN).request, warn=WARNED)
    record = submitted(ChainRecord(replace(chain(), request=request)))
    if seen:
        record = after(record, LinkStarted(1, 0, 20 * MIN, 20 * MIN))
    record = after(record, LinkEnded(1, ABSENT, ended_at, JobState.COMPLETED, 0, 20 * MIN), now=HOUR)
    assert record.status is (ChainStatus.ACTIVE if goes_on or not seen else ChainStatus.DONE)
    assert record.links[0].start == (0 if seen else ABSENT)


def test_lost_link_whose_limit_is_not_known_was_not_ended_by_it() -> None:
    record = after(submitted(fresh()), LinkStarted(1, 0, ABSENT))
    assert "-1" not in str(LinkStarted(1, 0, ABSENT))
    record = after(record, LinkLost(1), now=LIMIT)
    assert (record.links[0].state, record.links[0].job_state) == (LinkState.LOST, JobState.RUNNING)


@pytest.mark.parametrize(
    ("code", "recovery"), [(138, FailureAction.RETRY), (1, FailureAction.RETRY), (143, FailureAction.STOP)]
)
def test_failed_exit_after_the_warning_is_no_failure(code: int, recovery: FailureAction) -> None:
    policies = FailurePolicies(exit=FailurePolicy(recovery, retries=0))
    request = replace(chain(limit=20 * MIN).request, warn=WARNED)
    record = ChainRecord(replace(chain(failures=policies), request=request))
    for _ in range(6):
        start = record.links[-1].end if record.links else 0
        record = submitted(record, start)
        record = after(record, LinkStarted(len(record.links), start, start + 20 * MIN), now=start)
        record = ended(record, start + 11 * MIN, JobState.FAILED, code)
        assert (record.status, record.failures, record.not_before) == (ChainStatus.ACTIVE, 0, 0)


@pytest.mark.parametrize(
    ("limit", "ran", "progress"),
    [(LIMIT, HOUR, True), (LIMIT, HOUR - 1, False), (HOUR, HOUR // 2, True), (HOUR, HOUR // 2 - 1, False)],
)
def test_failure_after_progress_resets_the_count(limit: int, ran: int, progress: bool) -> None:
    record = ChainRecord(chain(limit=limit))
    for _ in range(2):
        record = ended(running(record, record.not_before), record.not_before + 10, JobState.FAILED, 1)
    assert record.failures == 2
    start = record.not_before
    record = ended(running(record, start), start + ran, JobState.FAILED, 1)
    assert record.failures == (0 if progress else 3)
    assert record.not_before == start + ran + (60 if progress else 240)


def test_failure_after_progress_stops_a_chain_that_asks_for_it() -> None:
    policies = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    assert ended(running(fresh(failures=policies)), 40 * HOUR, JobState.FAILED, 1).status is ChainStatus.STOPPED


@pytest.mark.parametrize("state", [JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.PREEMPTED])
def test_the_clusters_faults_are_followed_at_once(state: JobState) -> None:
    record = ended(running(fresh()), 10, state)
    assert (record.status, record.not_before) == (ChainStatus.ACTIVE, 10)


def test_cancelled_pending_link_pauses_the_chain_or_continues() -> None:
    cancelled = LinkEnded(2, ABSENT, HOUR, JobState.CANCELLED, 0)
    paused = after(submitted(running(fresh()), HOUR), cancelled)
    assert (paused.status, paused.failures) == (ChainStatus.PAUSED, 0)
    assert handover.to_cancel(paused) == (), "the running link continues"
    assert machine.need(after(paused, ResumeAsked()), HOUR, SETTLE) == Successor(paused.links[0])
    policies = FailurePolicies(cancelled=FailurePolicy(FailureAction.CONTINUE))
    record = after(submitted(running(fresh(failures=policies)), HOUR), cancelled)
    assert machine.need(record, HOUR, SETTLE) == Successor(record.links[0])


def test_a_chain_that_is_done_by_links_that_failed_says_so() -> None:
    policies = FailurePolicies(exit=FailurePolicy(FailureAction.CONTINUE))
    record = fresh(failures=policies, done=DoneCondition(links=2))
    for start in (0, HOUR):
        record = ended(running(record, start), start + 5, JobState.FAILED, 1)
    assert record.status is ChainStatus.DONE
    assert "2 of them failed" in record.reason


def test_a_chain_whose_jobs_the_cluster_loses_one_by_one_waits_for_its_owner() -> None:
    record = fresh(failures=FailurePolicies(node=FailurePolicy(FailureAction.CONTINUE)))
    for lost in range(3):
        assert record.status is ChainStatus.ACTIVE
        record = submitted(record, lost * HOUR)
        event = LinkEnded(len(record.links), ABSENT, lost * HOUR, JobState.NODE_FAIL, 0)
        record = after(record, event, now=lost * HOUR)
    assert (record.status, record.failures) == (ChainStatus.PAUSED, 3)


def test_submissions_whose_answer_is_lost_pause_no_chain() -> None:
    record = fresh(failures=FailurePolicies(node=FailurePolicy(FailureAction.CONTINUE)))
    for lost in range(5):
        record = after(record, LinkPlanned("test"), LinkLost(record.next_index), now=lost * HOUR)
    assert record.status is ChainStatus.ACTIVE


def test_requeued_run_is_a_link_and_its_job_the_next() -> None:
    record = after(running(fresh()), LinkRequeued(1, HOUR, HOUR), now=HOUR)
    first, second = record.links
    assert (first.final, first.start, first.end, end_name(first)) == (True, 0, HOUR, "REQUEUED")
    assert record.waiting is second
    assert second.job_id == first.job_id


@pytest.mark.parametrize("ran", [False, True])
def test_requeued_job_of_a_chain_with_a_successor_is_retired(ran: bool) -> None:
    """Also where it runs again before it is cancelled: its one run is the link's."""
    record = after(submitted(running(fresh()), HOUR), LinkRequeued(1, 2 * HOUR, 2 * HOUR), now=2 * HOUR)
    assert record.waiting is record.links[1]
    if ran:
        record = after(record, LinkStarted(1, 3 * HOUR, 3 * HOUR + LIMIT), now=3 * HOUR)
    assert handover.to_end(record, 3 * HOUR) == (record.links[0],)
    record = after(record, LinkEnded(1, ABSENT, 3 * HOUR, JobState.CANCELLED, 0), now=3 * HOUR)
    first = record.links[0]
    assert (first.final, first.start, first.end, end_name(first)) == (True, 0, 2 * HOUR, "REQUEUED")
    assert (record.status, record.failures) == (ChainStatus.ACTIVE, 0)


def test_job_that_requeues_itself_at_its_start_pauses_the_chain() -> None:
    record = running(fresh())
    for index in (1, 2, 3):
        at = record.links[-1].start + 10
        record = after(record, LinkRequeued(index, at, at), now=at)
        if index < 3:
            record = after(record, LinkQueued(index + 1), LinkStarted(index + 1, at + 60, at + 60 + LIMIT), now=at)
    assert record.status is ChainStatus.PAUSED


@pytest.mark.parametrize(
    ("runs", "end", "submit"),
    [
        (((0, 0, HOUR),), HOUR, 2 * HOUR),
        ((), 2 * HOUR, 2 * HOUR),
        (((0, 7, HOUR),), 2 * HOUR, 2 * HOUR),
        (((0, 0, 9 * HOUR),), 2 * HOUR, 2 * HOUR),
        (((0, 0, HOUR), (HOUR + 9, HOUR + 60, 2 * HOUR - 60)), HOUR, HOUR + 9),
    ],
    ids=["known", "unknown", "another-run", "in-the-future", "requeued-twice"],
)
def test_requeued_run_ends_when_accounting_says(runs, end: int, submit: int) -> None:
    again = replace(job(1, JobState.PENDING), submit=2 * HOUR, past_runs=tuple(PastRun(*run) for run in runs))
    assert link_events(running(fresh()), seen(4 * HOUR, again)) == (LinkRequeued(1, end, submit),)


def test_requeue_between_two_snapshots_is_seen_by_the_submit_time() -> None:
    record = running(fresh())
    again = replace(job(1, JobState.RUNNING, 3 * HOUR, 3 * HOUR + LIMIT), submit=2 * HOUR)
    assert link_events(record, seen(4 * HOUR, again)) == (LinkRequeued(1, 2 * HOUR, 2 * HOUR, 3 * HOUR),)


def test_job_on_its_way_to_the_queue_keeps_its_start() -> None:
    """Slurm shows it as completing, with a start and an end that it never had."""
    leaving = job(1, JobState.RUNNING, 2 * HOUR, 2 * HOUR + LIMIT)
    assert link_events(running(fresh()), seen(2 * HOUR, leaving)) == ()


def test_a_refused_link_leaves_no_trace_but_the_count() -> None:
    record = after(fresh(), LinkPlanned("test"), LinkRejected(1, "QOSMaxSubmit", 300), now=50)
    assert (record.links, record.refusals, record.not_before) == ((), 1, 350)
    assert submitted(record, 400).refusals == 0


def test_pause_and_resume() -> None:
    record = after(running(fresh()), PauseAsked("maintenance"))
    assert machine.need(record, 0, SETTLE) == NoAction("paused: maintenance")
    assert isinstance(machine.need(after(record, ResumeAsked()), 0, SETTLE), Successor)


def test_only_events_are_applied() -> None:
    with pytest.raises(TypeError, match="not an event"):
        machine.apply(fresh(), "boom", 0)


def seen(time: int, *jobs: Job, stale_since: int = ABSENT) -> Snapshot:
    none = JobColumns.none()
    return Snapshot(time, none, none, (), (), (), (), {job.tag: job for job in jobs}, stale_since=stale_since)


def job(index: int, state: JobState, start: int = ABSENT, end: int = ABSENT) -> Job:
    tag = f"mirage:svc:{index}"
    return Job(JobId(index), "svc", "alice", "p", 1, LIMIT, state, 0, start, end, tag=tag)


def test_a_job_that_came_and_went_between_two_looks_is_told_in_order() -> None:
    record = after(fresh(), LinkPlanned("test"))
    events = link_events(record, seen(500, job(1, JobState.FAILED, 100, 200)))
    assert events == (LinkSubmitted(1, JobId(1), 0), LinkEnded(1, 100, 200, JobState.FAILED, 0, LIMIT))
    assert after(record, *events, now=500).links[0].end == 200


def test_nothing_is_read_from_a_stale_snapshot() -> None:
    assert link_events(running(fresh()), seen(500, stale_since=400)) == ()


def test_looking_twice_tells_nothing_new() -> None:
    record = submitted(running(fresh()), HOUR)
    snapshot = seen(2 * HOUR, job(1, JobState.RUNNING, 0, LIMIT), job(2, JobState.PENDING))
    record = after(record, *link_events(record, snapshot), now=2 * HOUR)
    assert link_events(record, snapshot) == ()
