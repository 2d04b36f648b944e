"""What every adapter to Slurm must do: one suite, run over each of them.

An adapter's test module subclasses ``Contract`` as ``TestSomething`` and provides the fixture ``world``: a
separate ``World`` on an idle cluster without jobs of other tests. What an adapter cannot do it
states in ``Facts``; the tests about that skip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from backends.contract_world import HOUR, MINUTE, Doing, Facts, World

from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.job import (
    ABSENT,
    NEVER,
    Dependency,
    DependencyKind,
    Job,
    JobChange,
    JobId,
    JobState,
    SignalReach,
)
from mirage.domain.link import NO_JOB, LinkIdentity

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.snapshot import JobColumns, Snapshot

__all__ = ["HOUR", "MINUTE", "Contract", "Doing", "Facts", "World"]


def row_of(columns: JobColumns, job_id: JobId) -> dict[str, int]:
    """The one row of this job."""
    (row,) = [k for k, found in enumerate(columns.job_id.tolist()) if found == job_id]
    return {name: int(getattr(columns, name)[row]) for name in columns.__dataclass_fields__}


class Contract:
    """Subclass it with a fixture ``world``."""

    # What is submitted is seen

    def test_a_submission_is_seen_at_once_as_it_was_asked_for(self, world: World) -> None:
        world.fill()
        request, job_id = world.submit(limit=90 * MINUTE, nodes=2)
        snapshot = world.cluster.snapshot()
        job = snapshot.links[request.tag]
        assert (job.job_id, job.name, job.user) == (job_id, "link", world.facts.user)
        assert (job.partition, job.nodes, job.limit) == (world.facts.partition, 2, 90 * MINUTE)
        assert (job.state, job.tag, job.held, job.nice) == (JobState.PENDING, request.tag, False, 0)
        assert abs(job.submit - snapshot.time) <= world.facts.slack
        assert (job.start, job.end) == (ABSENT, ABSENT)

    def test_the_reason_for_waiting_is_slurms(self, world: World) -> None:
        world.fill()
        request, _ = world.submit()
        job = world.when(request, lambda job: job.reason in ("Resources", "Priority"))
        assert job.state is JobState.PENDING

    def test_the_columns_hold_what_was_submitted(self, world: World) -> None:
        facts = world.facts
        filler = world.fill()
        request, job_id = world.submit(limit=90 * MINUTE, nodes=2)
        snapshot = world.cluster.snapshot()
        row = row_of(snapshot.pending, job_id)
        assert (row["nodes"], row["limit"]) == (2, 90 * MINUTE)
        assert snapshot.users[row["user"]] == facts.user
        assert snapshot.partition_names[row["partition"]] == facts.partition
        assert row["submit"] == snapshot.links[request.tag].submit
        assert row["eligible"] <= snapshot.time + facts.slack
        running = row_of(snapshot.running, filler)
        assert (running["nodes"], running["limit"]) == (facts.nodes, 2 * HOUR)
        assert running["submit"] <= running["start"] <= snapshot.time + facts.slack
        assert filler not in snapshot.pending.job_id
        assert job_id not in snapshot.running.job_id

    def test_partitions_count_their_nodes(self, world: World) -> None:
        def of_partition(snapshot: Snapshot) -> tuple[int, int, int, int]:
            (found,) = [p for p in snapshot.partitions if p.name == world.facts.partition]
            return found.total, found.idle, found.allocated, found.down

        nodes = world.facts.nodes
        assert of_partition(world.cluster.snapshot()) == (nodes, nodes, 0, 0)
        world.until(world.submit(nodes=2)[0], JobState.RUNNING)
        assert of_partition(world.cluster.snapshot()) == (nodes, nodes - 2, 2, 0)

    def test_without_the_queue_the_links_are_there(self, world: World) -> None:
        request, job_id = world.submit()
        assert world.cluster.snapshot(queue=False).links[request.tag].job_id == job_id

    def test_a_running_job_has_a_start_and_the_end_its_limit_sets(self, world: World) -> None:
        request, _ = world.submit(limit=90 * MINUTE)
        job = world.until(request, JobState.RUNNING)
        now = world.cluster.snapshot().time
        assert job.submit <= job.start <= now + world.facts.slack
        assert job.end == job.start + job.limit == job.start + 90 * MINUTE

    # How it ends

    def test_a_job_completes(self, world: World) -> None:
        request, _ = world.submit(Doing(runs=5 * MINUTE))
        job = world.until(request, JobState.COMPLETED)
        assert job.exit_code == 0
        assert abs(job.end - job.start - 5 * MINUTE) <= world.facts.slack

    def test_a_job_fails_with_its_exit_code(self, world: World) -> None:
        request, _ = world.submit(Doing(runs=MINUTE, exit_code=3))
        job = world.until(request, JobState.FAILED)
        assert job.exit_code == 3
        assert job.start < job.end

    def test_a_job_runs_into_its_limit(self, world: World) -> None:
        request, _ = world.submit(limit=2 * MINUTE)
        job = world.until(request, JobState.TIMEOUT)
        assert 2 * MINUTE <= job.end - job.start <= 2 * MINUTE + world.facts.slack

    def test_a_job_that_has_ended_is_found_long_after(self, world: World) -> None:
        if not world.facts.accounting:
            pytest.skip("no accounting here")
        request, job_id = world.submit(Doing(runs=MINUTE, exit_code=4))
        before = world.until(request, JobState.FAILED)
        world.forget(job_id)
        after = world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag]
        assert (after.job_id, after.user, after.tag) == (job_id, world.facts.user, request.tag)
        assert (after.state, after.exit_code) == (JobState.FAILED, 4)
        assert (after.submit, after.start, after.end) == (before.submit, before.start, before.end)
        assert (after.partition, after.nodes, after.limit) == (before.partition, before.nodes, before.limit)

    def test_what_was_never_submitted_is_not_there(self, world: World) -> None:
        tag = world.tag()
        assert tag not in world.cluster.snapshot(expected={tag: NO_JOB}).links

    # Job IDs that were given again

    def test_job_with_the_tag_of_another_link_is_not_the_link(self, world: World) -> None:
        request, job_id = world.submit()
        tag = world.tag()
        links = world.cluster.snapshot(expected={tag: job_id}).links
        assert (links[request.tag].job_id, tag in links) == (job_id, False)

    def test_job_without_a_tag_is_the_link_by_its_submit_time(self, world: World) -> None:
        if not world.facts.by_id:
            pytest.skip("links are found by their tags alone")
        _, job_id = world.submit(Doing(runs=MINUTE), tag="")
        link = LinkIdentity("", world.facts.user, "link", world.facts.partition)

        def shown(known: LinkIdentity) -> Job | None:
            tag = world.tag()  # what was last seen of a link is of no help here
            identities = {tag: replace(known, tag=tag)}
            return world.cluster.snapshot(expected={tag: job_id}, identities=identities).link(tag, link.owner)

        job = shown(link)
        assert job is not None
        known = replace(link, submit=job.submit)
        assert shown(replace(known, name="renamed")) is not None
        foreign = replace(known, submit=job.submit - HOUR, name="another")
        older = replace(known, submit=job.submit + HOUR)
        assert shown(foreign) is shown(older) is None
        if world.facts.accounting:
            while (job := shown(known)) is not None and not job.state.finished:
                world.pass_time()
            world.forget(job_id)
            assert shown(known) is not None
            assert shown(foreign) is shown(older) is None

    # Cancelling

    def test_a_pending_job_is_cancelled(self, world: World) -> None:
        world.fill()
        request, job_id = world.submit()
        world.actuator.cancel(job_id, world.facts.user)
        job = world.until(request, JobState.CANCELLED)
        assert job.start == ABSENT

    def test_a_running_job_is_cancelled(self, world: World) -> None:
        request, job_id = world.submit()
        start = world.until(request, JobState.RUNNING).start
        world.actuator.cancel(job_id, world.facts.user)
        job = world.until(request, JobState.CANCELLED)
        assert job.start == start <= job.end <= world.cluster.snapshot().time + world.facts.slack

    def test_cancelling_what_has_ended_does_nothing(self, world: World) -> None:
        request, job_id = world.submit(Doing(runs=MINUTE))
        before = world.until(request, JobState.COMPLETED)
        world.actuator.cancel(job_id, world.facts.user)
        after = world.job(request)
        assert after is not None
        assert replace(after, completing=before.completing) == before, "its nodes may be clean by now"

    def test_unknown_jobs_are_said_to_be(self, world: World) -> None:
        user, unknown = world.facts.user, JobId(60_000_000)
        with pytest.raises(UnknownJob, match="60000000"):
            world.actuator.cancel(unknown, user)
        with pytest.raises(UnknownJob, match="60000000"):
            world.actuator.update(unknown, user, JobChange(nice=1))
        with pytest.raises(UnknownJob, match="60000000"):
            world.actuator.signal(unknown, user, "USR1", reach=SignalReach.BATCH)

    def test_others_jobs_are_not_touched(self, world: World) -> None:
        other = world.facts.other_user
        if not other:
            pytest.skip("no other users here")
        job_id = world.foreign_job()
        with pytest.raises(NotPermitted):
            world.actuator.cancel(job_id, other)
        with pytest.raises(NotPermitted):
            world.actuator.update(job_id, other, JobChange(held=True))
        with pytest.raises(NotPermitted):
            world.actuator.submit(world.request(user=other))
        with pytest.raises(NotPermitted):
            world.actuator.cancel(job_id, world.facts.user)
        assert job_id in world.cluster.snapshot().pending.job_id

    # Changing what pends

    def test_held_until_released(self, world: World) -> None:
        request, job_id = world.submit(held=True)
        assert world.job(request).held
        snapshot = world.cluster.snapshot()
        assert row_of(snapshot.pending, job_id)["eligible"] == NEVER
        world.update(job_id, JobChange(held=False))
        world.until(request, JobState.RUNNING)

    def test_a_pending_job_can_be_held(self, world: World) -> None:
        filler = world.fill()
        request, job_id = world.submit()
        world.update(job_id, JobChange(held=True))
        world.actuator.cancel(filler, world.facts.user)
        first = world.cluster.snapshot().time
        while world.cluster.snapshot().time < first + 10 * MINUTE:
            world.pass_time()
        job = world.job(request)
        assert (job.state, job.held) == (JobState.PENDING, True)

    def test_nice_goes_up_and_down(self, world: World) -> None:
        world.fill()
        request, job_id = world.submit(nice=50)
        seen = [world.job(request).nice]
        for nice in (10_000, 0):
            world.update(job_id, JobChange(nice=nice))
            seen.append(world.job(request).nice)
        assert seen == [50, 10_000, 0]

    def test_nice_lowers_the_priority(self, world: World) -> None:
        world.fill()
        _, plain = world.submit()
        _, nice = world.submit(nice=5_000)

        def priorities() -> tuple[int, int]:
            pending = world.cluster.snapshot().pending
            return row_of(pending, plain)["priority"], row_of(pending, nice)["priority"]

        world.pass_time()
        high, low = priorities()
        assert high - 5_000 <= low + 1_000
        assert low < high or high == 0

    def test_a_begin_time_is_kept_and_can_be_moved(self, world: World) -> None:
        now = world.cluster.snapshot().time
        begin = now + 30 * MINUTE
        request, job_id = world.submit(begin=begin)
        row = row_of(world.cluster.snapshot().pending, job_id)
        assert row["eligible"] >= begin
        world.update(job_id, JobChange(begin=now + 10 * MINUTE))
        job = world.until(request, JobState.RUNNING)
        assert now + 10 * MINUTE <= job.start <= now + 10 * MINUTE + world.facts.slack

    def test_a_begin_time_can_be_dropped(self, world: World) -> None:
        now = world.cluster.snapshot().time
        request, job_id = world.submit(begin=now + 20 * HOUR)
        world.update(job_id, JobChange(begin=0))
        assert world.until(request, JobState.RUNNING).start <= now + HOUR

    def test_what_runs_or_has_ended_cannot_be_changed(self, world: World) -> None:
        request, job_id = world.submit(Doing(runs=5 * MINUTE))
        world.until(request, JobState.RUNNING)
        for change in (JobChange(nice=5), JobChange(held=True), JobChange(begin=NEVER >> 30)):
            with pytest.raises(UnknownJob, match=str(job_id)):
                world.actuator.update(job_id, world.facts.user, change)
        world.until(request, JobState.COMPLETED)
        with pytest.raises(UnknownJob, match=str(job_id)):
            world.actuator.update(job_id, world.facts.user, JobChange(nice=5))

    # Signals

    @pytest.mark.parametrize("reach", SignalReach)
    def test_a_signal_reaches_the_batch_script_unless_it_is_for_the_steps(
        self, world: World, reach: SignalReach
    ) -> None:
        if not world.facts.signals:
            pytest.skip("no real processes here")
        request, job_id = world.submit(Doing(runs=5 * MINUTE, on_usr1=7))
        job = world.until(request, JobState.RUNNING)
        while world.cluster.snapshot().time < job.start + 2 * MINUTE:  # the shell must have set its trap
            world.pass_time()
        world.actuator.signal(job_id, world.facts.user, "USR1", reach=reach)
        state, code = (JobState.COMPLETED, 0) if reach is SignalReach.STEPS else (JobState.FAILED, 7)
        assert world.until(request, state).exit_code == code

    def test_only_running_jobs_can_be_signalled(self, world: World) -> None:
        world.fill()
        _, job_id = world.submit()
        with pytest.raises(UnknownJob, match=str(job_id)):
            world.actuator.signal(job_id, world.facts.user, "USR1", reach=SignalReach.BATCH)

    # Rejections

    @pytest.mark.parametrize(
        "wish",
        [
            pytest.param(lambda facts: {"limit": facts.longest + HOUR}, id="limit"),
            pytest.param(lambda facts: {"partition": "nowhere"}, id="partition"),
            pytest.param(lambda facts: {"nodes": facts.nodes + 1}, id="nodes"),
            pytest.param(lambda facts: {"features": ("nothing-has-this",)}, id="feature"),
            pytest.param(lambda facts: {"gres_per_node": (("gpu:nothing-has-this", 1),)}, id="gres"),
            pytest.param(lambda facts: {"reservation": "nobody-made-this"}, id="reservation"),
        ],
    )
    def test_a_refusal_has_slurms_reason(self, world: World, wish: Callable[[Facts], dict[str, Any]]) -> None:
        request = world.request(**wish(world.facts))
        with pytest.raises(SubmissionRejected) as refused:
            world.actuator.submit(request)
        assert refused.value.reason.isalnum()
        assert request.tag not in world.cluster.snapshot(expected={request.tag: NO_JOB}).links

    def test_unknown_accounts_are_refused(self, world: World) -> None:
        if not world.facts.accounts:
            pytest.skip("any account is taken here")
        with pytest.raises(SubmissionRejected) as refused:
            world.actuator.submit(world.request(account="nobodys"))
        assert refused.value.reason == "InvalidAccount"

    # What else a request can say

    def test_a_dependent_job_waits(self, world: World) -> None:
        first, first_id = world.submit(Doing(runs=10 * MINUTE))
        request, job_id = world.submit(dependencies=(Dependency(DependencyKind.AFTERANY, first_id),))
        job = world.when(request, lambda job: job.reason == "Dependency")
        assert job.state is JobState.PENDING
        assert row_of(world.cluster.snapshot().pending, job_id)["eligible"] == NEVER
        end = world.until(first, JobState.COMPLETED).end
        assert end <= world.until(request, JobState.RUNNING).start <= end + 2 * world.facts.slack

    def test_gres_bound_who_runs_at_once(self, world: World) -> None:
        if not world.facts.gres:
            pytest.skip("no GRES here")
        name, count = world.facts.gres
        wish = {"partition": world.facts.gres_partition, "gres_per_node": ((name, count),)}
        nodes = {p.name: p.total for p in world.cluster.snapshot().partitions}[world.facts.gres_partition]
        filler, _ = world.submit(nodes=nodes, **wish)
        world.until(filler, JobState.RUNNING)
        request, _ = world.submit(**wish)
        assert world.when(request, lambda job: job.reason in ("Resources", "Priority")).start == ABSENT

    def test_an_estimate_for_idle_nodes_is_soon(self, world: World) -> None:
        if world.estimator is None:
            pytest.skip("gives no estimates")
        now = world.cluster.snapshot().time
        assert abs(world.estimator.estimate_start(world.request()) - now) <= world.facts.slack
        with pytest.raises(SubmissionRejected):
            world.estimator.estimate_start(world.request(partition="nowhere"))
        assert len(world.cluster.snapshot().pending) == 0

    def test_an_estimate_waits_for_what_runs(self, world: World) -> None:
        if world.estimator is None:
            pytest.skip("gives no estimates")
        world.fill()
        now = world.cluster.snapshot().time
        start = world.estimator.estimate_start(world.request())
        assert now + HOUR <= start <= now + 2 * HOUR + 2 * world.facts.slack

    # While no process answers

    def test_an_unreachable_controller_is_never_an_empty_queue(self, world: World) -> None:
        request, job_id = world.submit()
        user = world.facts.user
        with world.controller_down():
            questions: list[Callable[[], object]] = [
                world.cluster.snapshot,
                lambda: world.cluster.snapshot(queue=False, expected={request.tag: job_id}),
                lambda: world.actuator.submit(world.request()),
                lambda: world.actuator.cancel(job_id, user),
                lambda: world.actuator.update(job_id, user, JobChange(nice=1)),
                lambda: world.actuator.signal(job_id, user, "USR1", reach=SignalReach.BATCH),
            ]
            if world.estimator is not None:
                estimator = world.estimator
                questions.append(lambda: estimator.estimate_start(world.request()))
            for question in questions:
                with pytest.raises(ClusterUnavailable):
                    question()
        assert world.job(request).job_id == job_id
