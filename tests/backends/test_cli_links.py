"""The state of links that complete, vanish, or that accounting reports late."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirage.backends.cli_links import GRACE, LinkTracker
from mirage.backends.jobquery import MOST_PARTS, Fates
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.link import NO_JOB, LinkIdentity
from mirage.domain.snapshot import JobColumns
from mirage.domain.tags import owned_id
from mirage.slurm.queuetext import Queue, QueueRow

if TYPE_CHECKING:
    from collections.abc import Collection

TAG, ID, NOW = "mirage:svc:1", JobId(7), 1_000_000
RUNS = Job(ID, "svc", "alice", "cpu", 1, 3_600, JobState.RUNNING, NOW - 100, NOW - 50, NOW + 3_550, tag=TAG)


def queue(*jobs: QueueRow) -> Queue:
    return Queue(JobColumns.none(), JobColumns.none(), (), (), (), jobs, ())


class Accounting:
    """Reports for each job what the test set."""

    def __init__(self, *jobs: Job, **how: bool) -> None:
        self.fates = Fates({job.job_id: job for job in jobs}, **how)
        self.asked: list[set[JobId]] = []

    def __call__(self, ids: Collection[JobId]) -> Fates:
        self.asked.append(set(ids))
        return self.fates


def completing(exit_code: int = 0) -> QueueRow:
    return QueueRow(replace(RUNS, end=NOW), completing=True, exit_code=exit_code)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT, JobState.CANCELLED])
def test_a_completing_link_has_ended_as_accounting_says(state: JobState) -> None:
    told = replace(RUNS, state=state, exit_code=3, end=NOW - 1)
    job = LinkTracker().account(queue(completing()), {TAG: ID}, Accounting(told), NOW)[TAG]
    assert (job.state, job.exit_code, job.end) == (state, 3, NOW - 1)


def test_where_accounting_tells_no_exit_code_the_queue_does() -> None:
    """Like slurmrestd before v0.0.40; the queue may have forgotten the job by the next poll."""
    told = replace(RUNS, state=JobState.FAILED, exit_code=ABSENT, end=NOW - 1)
    memory = LinkTracker()
    assert memory.account(queue(completing(4)), {TAG: ID}, Accounting(told), NOW)[TAG].exit_code == 4


@pytest.mark.parametrize(
    "accounting",
    [
        Accounting(),
        Accounting(RUNS),
        Accounting(answered=False),
        Accounting(lagging=False),
        Accounting(replace(RUNS, state=JobState.PREEMPTED)),
        Accounting(replace(RUNS, state=JobState.NODE_FAIL)),
    ],
    ids=["unknown", "lagging", "down", "none", "requeued", "node-fail"],
)
def test_a_completing_link_runs_until_its_end_is_certain(accounting: Accounting) -> None:
    """COMPLETING alone does not distinguish a success from a time-out or a requeue."""
    job = LinkTracker().account(queue(completing()), {TAG: ID}, accounting, NOW)[TAG]
    assert job.state is JobState.RUNNING
    assert accounting.asked == [{ID}]


def seen_running() -> LinkTracker:
    memory = LinkTracker()
    memory.account(queue(QueueRow(RUNS, completing=False)), {TAG: ID}, Accounting(), NOW)
    return memory


@pytest.mark.parametrize("accounting", [Accounting(), Accounting(replace(RUNS, end=-1))], ids=["unknown", "runs"])
def test_accounting_may_lag_for_a_while(accounting: Accounting) -> None:
    memory = seen_running()
    for later in (0, GRACE):
        assert memory.account(queue(), {TAG: ID}, accounting, NOW + 60 + later)[TAG] == RUNS
    assert memory.account(queue(), {TAG: ID}, accounting, NOW + 61 + GRACE) == {}


def test_what_was_never_accounted_for_is_gone_at_once() -> None:
    assert seen_running().account(queue(), {TAG: ID}, Accounting(lagging=False), NOW + 60) == {}


def test_nothing_is_asked_while_every_link_is_in_the_queue() -> None:
    accounting = Accounting()
    LinkTracker().account(queue(QueueRow(RUNS, completing=False)), {TAG: ID}, accounting, NOW)
    assert accounting.asked == []


def test_what_is_expected_no_more_is_forgotten() -> None:
    memory = seen_running()
    assert memory.account(queue(), {}, Accounting(), NOW + 60) == {}
    assert (memory.last, memory.missing_since) == ({}, {})


def test_a_job_that_another_chain_claims_stays_its_owners_link() -> None:
    """A user's own process says which job it has submitted; it may name any."""
    claimed = "mirage:mallorys:1"
    for expected in ({TAG: ID, claimed: ID}, {claimed: ID, TAG: ID}):
        memory = LinkTracker()
        for seen in (queue(QueueRow(RUNS, completing=False)), queue(completing())):
            links = memory.account(seen, expected, Accounting(replace(RUNS, state=JobState.COMPLETED)), NOW)
            snapshot = memory.snapshot(NOW, seen, (), links)
            found = snapshot.link(TAG, "alice")
            assert found is not None
            assert found.job_id == ID
            assert snapshot.link(claimed, "mallory") is None


# Rows that cannot be read

UNREAD = [f"{ID}\x1fwhat is this?", "\x1fwhat is this?", "no id\x1f"]


@pytest.mark.parametrize("row", UNREAD)
@pytest.mark.parametrize("source", ["queue", "accounting"])
@pytest.mark.parametrize("lagging", [True, False])
def test_unreadable_row_keeps_its_link(row: str, source: str, lagging: bool) -> None:
    memory = seen_running()
    seen = replace(queue(), unreadable=(row,)) if source == "queue" else queue()
    accounting = Accounting(lagging=lagging)
    if source == "accounting":
        accounting.fates = replace(accounting.fates, unreadable=[row])
    for later in (60, 61 + GRACE, 10 * GRACE):
        assert memory.account(seen, {TAG: ID}, accounting, NOW + later) == {TAG: RUNS}


def test_unreadable_row_keeps_its_link_where_the_list_is_asked_in_parts() -> None:
    def ask(ids: Collection[JobId]) -> Fates:
        if len(ids) > 1:
            return Fates({}, answered=False, rejected="too long")
        return Fates({}, lagging=False, unreadable=[f"{ID}\x1fwhat is this?"] if ID in ids else [])

    expected = {TAG: ID, "mirage:other:2": JobId(8)}
    assert seen_running().account(queue(), expected, ask, NOW + 60) == {TAG: RUNS}


def test_unreadable_row_of_another_job_keeps_no_link() -> None:
    seen = replace(queue(), unreadable=("8\x1fwhat is this?",))
    assert seen_running().account(seen, {TAG: ID}, Accounting(lagging=False), NOW + 60) == {}


@pytest.mark.parametrize("row", [f"9\x1f{TAG}\x1fwhat is this?", "\x1fwhat is this?"])
def test_unreadable_row_keeps_a_link_without_id_unaccounted(row: str) -> None:
    memory = LinkTracker()
    for _ in range(2):
        assert memory.account(replace(queue(), unreadable=(row,)), {TAG: NO_JOB}, Accounting(), NOW) == {}
        assert memory.unaccounted == {TAG}
    memory.account(queue(), {TAG: NO_JOB}, Accounting(), NOW)
    assert memory.unaccounted == set()


OTHER = "mirage:other:1"


def test_a_link_without_an_id_is_unaccounted_until_it_was_asked_for() -> None:
    """After a crash it may have run to its end unseen; that other links are asked for says nothing of it."""
    told = replace(RUNS, job_id=JobId(8), state=JobState.COMPLETED, end=NOW - 1, tag=OTHER)
    memory, accounting = LinkTracker(), Accounting(told, lagging=False)
    expected = {TAG: ID, OTHER: NO_JOB}
    assert OTHER not in memory.account(queue(), expected, lambda ids: Fates({}, lagging=False), NOW)
    assert memory.unaccounted == {OTHER}
    assert memory.account(queue(), expected, accounting, NOW + 60)[OTHER].job_id == 8
    assert accounting.asked == [set()]
    assert memory.unaccounted == {TAG}, "it was not asked for this time"


OWN = f"mirage:{owned_id('svc', 'alice')}:1"


@pytest.mark.parametrize("forged", [JobId(3), JobId(9)])
def test_a_forged_tag_does_not_hide_that_a_link_without_an_id_has_ended(forged: JobId) -> None:
    """The answer to its submission was lost, and it ran and ended before the next poll."""
    lives = QueueRow(replace(RUNS, job_id=forged, user="mallory", tag=OWN), completing=False)
    ended = replace(RUNS, state=JobState.TIMEOUT, end=NOW - 1, tag=OWN)
    also = replace(ended, job_id=JobId(forged + 1), user="mallory", state=JobState.FAILED)
    for told in ((ended, also), (also, ended)):
        jobs = LinkTracker().account(queue(lives), {OWN: NO_JOB}, Accounting(*told), NOW)
        assert (jobs[OWN].user, jobs[OWN].state) == ("alice", JobState.TIMEOUT)


@pytest.mark.parametrize("forged", [JobId(3), JobId(9)])
def test_a_forged_tag_does_not_hide_a_link_that_waits(forged: JobId) -> None:
    waits = replace(RUNS, state=JobState.PENDING, start=ABSENT, end=ABSENT, tag=OWN)
    lives = replace(RUNS, job_id=forged, user="mallory", tag=OWN)
    memory, accounting = LinkTracker(), Accounting()
    jobs = memory.account(
        queue(QueueRow(lives, completing=False), QueueRow(waits, completing=False)),
        {OWN: NO_JOB},
        accounting,
        NOW,
    )
    assert (jobs[OWN].user, memory.unaccounted, accounting.asked) == ("alice", frozenset(), [])


def test_a_link_without_an_id_is_unaccounted_while_accounting_is_away() -> None:
    memory, away = LinkTracker(), Accounting(answered=False)
    for later in (0, 60, 100 * GRACE):
        assert memory.account(queue(), {OTHER: NO_JOB}, away, NOW + later) == {}
        assert memory.unaccounted == {OTHER}
    assert memory.account(queue(), {OTHER: NO_JOB}, Accounting(lagging=False), NOW + 101 * GRACE) == {}
    assert memory.unaccounted == frozenset(), "accounting knows of none: it was never submitted"


def test_a_link_never_seen_is_unaccounted_while_accounting_may_lag() -> None:
    memory, lagging = LinkTracker(), Accounting()
    assert memory.account(queue(), {TAG: ID}, lagging, NOW) == {}
    assert memory.unaccounted == {TAG}
    assert memory.account(queue(), {TAG: ID}, lagging, NOW + 1 + GRACE) == {}
    assert memory.unaccounted == frozenset()


MANY = {f"mirage:svc{k}:1": JobId(k) for k in range(1, 101)}


class Picky(Accounting):
    """Rejects each list that names one of these jobs, as sacct does with IDs that it does not accept."""

    def __init__(self, *rejected: int) -> None:
        ended = replace(RUNS, state=JobState.COMPLETED, end=NOW - 1)
        super().__init__(*(replace(ended, job_id=job_id, tag=tag) for tag, job_id in MANY.items()))
        self.rejected = set(rejected)

    def __call__(self, ids: Collection[JobId]) -> Fates:
        super().__call__(ids)
        if self.rejected & set(ids):
            return Fates({}, answered=False, rejected="Bad job/step specified")
        return Fates({job_id: self.fates.jobs[job_id] for job_id in ids})


@pytest.mark.parametrize("rejected", [(1,), (50,), (100,), (3, 4, 97), tuple(range(1, 101, 11))])
def test_rejected_job_hides_no_other(rejected: tuple[int, ...]) -> None:
    memory, accounting = LinkTracker(), Picky(*rejected)
    good = {tag for tag, job_id in MANY.items() if job_id not in rejected}
    found: set[str] = set()
    for cycle in range(60):
        before = len(accounting.asked)
        found |= memory.account(queue(), MANY, accounting, NOW + cycle).keys()
        assert len(accounting.asked) - before <= 1 + MOST_PARTS
    assert found == good
    assert memory.account(queue(), MANY, accounting, NOW + 60).keys() <= good
    assert memory.unaccounted >= MANY.keys() - good, "of these nothing is known, however long they are missing"


def test_rejected_job_is_held_and_others_are_given_up_in_time() -> None:
    """A job without an answer is not taken for one that accounting does not know."""
    memory, accounting = LinkTracker(), Picky(1)
    accounting.fates = Fates(dict.fromkeys(accounting.fates.jobs, RUNS))
    expected = {"mirage:svc1:1": JobId(1), "mirage:svc2:1": JobId(2)}
    for later in (0, GRACE + 1):
        memory.account(queue(), expected, accounting, NOW + later)
    assert memory.unaccounted == {"mirage:svc1:1"}


def test_jobs_are_asked_for_at_once_when_the_rejection_is_over() -> None:
    memory, accounting = LinkTracker(), Picky(1)
    memory.account(queue(), MANY, accounting, NOW)
    accounting.rejected, accounting.asked = set(), []
    assert memory.account(queue(), MANY, accounting, NOW + 60).keys() == MANY.keys()
    assert accounting.asked == [set(MANY.values())]


def test_accounting_that_is_away_is_asked_once() -> None:
    accounting = Accounting(answered=False)
    LinkTracker().account(queue(), MANY, accounting, NOW)
    assert len(accounting.asked) == 1


# Job IDs that were given again

KNOWN = {TAG: LinkIdentity(TAG, "alice", "svc", "cpu", submit=RUNS.submit)}
OWN16 = replace(RUNS, name="own16", submit=NOW - 10, start=NOW - 10, tag="")
"""A job of the same owner that was given the link's number."""
ENDED = replace(RUNS, state=JobState.NODE_FAIL, end=NOW - 20)


def shown(job: Job, *, is_completing: bool = False) -> Queue:
    return queue(QueueRow(job, completing=is_completing, exit_code=0))


@pytest.mark.parametrize("comment", ["", "mine", "mirage:other:1", "mirage:svc:2"])
@pytest.mark.parametrize("is_completing", [False, True])
def test_reused_id_in_the_queue_is_not_the_link(comment: str, is_completing: bool) -> None:
    seen, accounting = shown(replace(OWN16, tag=comment), is_completing=is_completing), Accounting(lagging=False)
    assert TAG not in LinkTracker().account(seen, {TAG: ID}, accounting, NOW, KNOWN)
    assert ID in accounting.asked[0]


@pytest.mark.parametrize("tag", [TAG, ""])
def test_reused_id_link_ended_as_its_own_row_says(tag: str) -> None:
    """Accounting keeps comments or does not; the newer job's row comes first or last."""
    rows = [replace(ENDED, tag=tag), replace(OWN16, state=JobState.COMPLETED, end=NOW - 1)]
    for runs in (rows, rows[::-1]):
        accounting = Accounting()
        accounting.fates = Fates.of_runs(runs, ())
        for seen in (shown(OWN16), queue()):
            found = LinkTracker().account(seen, {TAG: ID}, accounting, NOW, KNOWN)
            assert found == {TAG: ENDED}


def test_reused_id_link_of_which_nothing_is_known_is_lost_in_time() -> None:
    memory, accounting = LinkTracker(), Accounting(replace(OWN16, state=JobState.COMPLETED, end=NOW - 1))
    assert memory.account(shown(OWN16), {TAG: ID}, accounting, NOW, KNOWN) == {}
    assert memory.unaccounted == {TAG}, "accounting may not know of its end yet"
    assert memory.account(shown(OWN16), {TAG: ID}, accounting, NOW + GRACE + 1, KNOWN) == {}
    assert memory.unaccounted == frozenset()


def test_older_job_with_the_number_is_not_the_fate_of_the_link() -> None:
    older = replace(RUNS, name="svc", submit=NOW - 9_000, state=JobState.COMPLETED, end=NOW - 8_000, tag="")
    memory, accounting = seen_running(), Accounting(older)
    assert memory.account(queue(), {TAG: ID}, accounting, NOW + 60, KNOWN) == {TAG: RUNS}
    assert memory.account(queue(), {TAG: ID}, accounting, NOW + 61 + GRACE, KNOWN) == {}


def test_reused_id_of_a_link_of_another_chain_shows_that_link() -> None:
    """Both chains lost their jobs; the second chain's next link has the job ID of the first chain's."""
    other = replace(RUNS, name="other", submit=NOW - 10, tag=OTHER)
    known = KNOWN | {OTHER: LinkIdentity(OTHER, "alice", "other")}
    for expected in ({TAG: ID, OTHER: ID}, {OTHER: ID, TAG: ID}, {TAG: ID, OTHER: NO_JOB}):
        found = LinkTracker().account(shown(other), expected, Accounting(lagging=False), NOW, known)
        assert found == {OTHER: other}


def test_edited_comment_loses_no_link() -> None:
    edited = replace(RUNS, tag="mine: do not touch")
    requeued = replace(edited, state=JobState.PENDING, submit=NOW, start=ABSENT, end=ABSENT)
    accounting = Accounting()
    for job in (edited, replace(edited, name="renamed"), requeued):
        assert LinkTracker().account(shown(job), {TAG: ID}, accounting, NOW, KNOWN) == {TAG: replace(job, tag=TAG)}
    assert accounting.asked == [{ID}], "only for the run that the requeue ended"


def test_other_job_of_accounting_has_all_runs_asked_for_once() -> None:
    """Like sacct: the last job with an ID, unless all are requested."""
    other = replace(OWN16, state=JobState.COMPLETED, end=NOW - 1)
    last, every = Accounting(other), Accounting()
    every.fates = Fates.of_runs([replace(ENDED, tag=""), other], ())
    found = LinkTracker().account(shown(OWN16), {TAG: ID, OTHER: JobId(8)}, last, NOW, KNOWN, every)
    assert found[TAG] == ENDED
    assert (last.asked, every.asked) == ([{ID, JobId(8)}], [{ID}])


def test_other_job_of_accounting_keeps_the_link_while_no_more_is_told() -> None:
    other = Accounting(replace(OWN16, state=JobState.COMPLETED, end=NOW - 1), lagging=False)
    memory, away = seen_running(), Accounting(answered=False)
    for later in (60, 10 * GRACE):
        assert memory.account(queue(), {TAG: ID}, other, NOW + later, KNOWN, away) == {TAG: RUNS}
    assert memory.account(queue(), {TAG: ID}, other, NOW + 11 * GRACE, KNOWN, other) == {}


def test_run_that_cannot_be_read_leaves_no_older_one_in_its_place() -> None:
    row = f"{ID}\x1fwhat is this?"
    assert Fates.of_runs([ENDED, replace(ENDED, job_id=JobId(8))], [row]).jobs.keys() == {8}


def test_parts_of_a_rejected_list_keep_every_run() -> None:
    rows = Fates.of_runs([ENDED, replace(OWN16, state=JobState.COMPLETED, end=NOW - 1)], ())

    def ask(ids: Collection[JobId]) -> Fates:
        return Fates({}, answered=False, rejected="too long") if len(ids) > 1 else rows if ID in ids else Fates({})

    expected = {TAG: ID, OTHER: JobId(8)}
    assert LinkTracker().account(queue(), expected, ask, NOW, KNOWN)[TAG] == ENDED
