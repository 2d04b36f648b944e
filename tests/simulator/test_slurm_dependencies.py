"""Dependencies, begin times, holds and cancellation by sbatch(1) and scontrol(1)."""

from __future__ import annotations

import pytest
from small_clusters import HOUR, PROMPT, T0, after, ask, cluster, node_names, partition, simulate, start, weights

from mirage.domain.errors import UnknownJob
from mirage.domain.job import Dependency, DependencyKind, JobId, JobState

LATE = PROMPT.sched_interval
"""Most seconds between a job's becoming eligible and the next scheduling pass."""


def waits_for(kind: DependencyKind, job: int, delay: int = 0) -> tuple[Dependency, ...]:
    return (Dependency(kind, JobId(job), delay),)


@pytest.mark.parametrize(
    ("kind", "outcome", "begins"),
    [
        (DependencyKind.AFTERANY, JobState.COMPLETED, True),
        (DependencyKind.AFTERANY, JobState.FAILED, True),
        (DependencyKind.AFTEROK, JobState.COMPLETED, True),
        (DependencyKind.AFTEROK, JobState.FAILED, False),
        (DependencyKind.AFTERNOTOK, JobState.COMPLETED, False),
        (DependencyKind.AFTERNOTOK, JobState.FAILED, True),
    ],
)
def test_dependencies_on_the_end(kind: DependencyKind, outcome: JobState, begins: bool) -> None:
    sim = simulate(cluster())
    first = sim.submit(ask(), 500, outcome, int(outcome is JobState.FAILED))
    second = sim.submit(ask(dependencies=waits_for(kind, first)), 500)
    after(sim, 499)
    assert start(sim, second) == -1
    assert sim.job(second).reason == "Dependency"
    after(sim, HOUR)
    if begins:
        assert 500 <= start(sim, second) <= 500 + LATE
    else:
        assert sim.job(second).state is JobState.PENDING
        assert sim.job(second).reason == "DependencyNeverSatisfied"


def test_a_timeout_is_not_ok() -> None:
    sim = simulate(cluster())
    first = sim.submit(ask(limit=100), 500)
    ok = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTEROK, first)), 500)
    not_ok = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTERNOTOK, first)), 500)
    after(sim, HOUR)
    assert start(sim, ok) == -1
    assert 100 <= start(sim, not_ok) <= 100 + LATE


def test_after_waits_for_the_start() -> None:
    sim = simulate(cluster(nodes=2))
    sim.submit(ask(nodes=2), 300)
    first = sim.submit(ask(), 500)
    second = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTER, first)), 500)
    after(sim, HOUR)
    assert start(sim, first) == 300
    assert 300 <= start(sim, second) <= 300 + LATE


def test_a_job_that_waits_for_a_start_misses_the_pass_of_that_start() -> None:
    """slurmctld tests dependencies as it builds a pass's queue: seen on 22.05.8."""
    sim = simulate(cluster(nodes=2))
    sim.submit(ask(nodes=2), 500)
    first = sim.submit(ask(), HOUR)
    second = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTER, first)), HOUR)
    third = sim.submit(ask(), 1000)
    after(sim, HOUR)
    assert start(sim, first) == start(sim, third) == 500
    assert start(sim, second) == 1500


def test_a_begin_time_that_has_come_is_noticed_by_the_next_regular_pass() -> None:
    sim = simulate(cluster())
    job = sim.submit(ask(begin=T0 + 401), 100)
    after(sim, HOUR)
    assert start(sim, job) == 420


def test_a_begin_time_that_has_come_is_noticed_by_a_pass_that_another_job_causes() -> None:
    sim = simulate(cluster())
    job = sim.submit(ask(begin=T0 + 401), 100)
    after(sim, 405)
    sim.submit(ask(), 100)
    after(sim, HOUR)
    assert start(sim, job) == 405


def test_after_with_minutes_counts_them_from_the_start() -> None:
    sim = simulate(cluster())
    first = sim.submit(ask(), 3000)
    second = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTER, first, 600)), 500)
    after(sim, HOUR)
    assert 600 <= start(sim, second) <= 600 + LATE


def test_every_condition_must_hold() -> None:
    """Comma-separated conditions."""
    sim = simulate(cluster())
    one = sim.submit(ask(), 500)
    two = sim.submit(ask(), 900)
    both = waits_for(DependencyKind.AFTERANY, one) + waits_for(DependencyKind.AFTEROK, two)
    third = sim.submit(ask(dependencies=both), 100)
    assert 900 <= start(after(sim, HOUR), third) <= 900 + LATE


def test_singleton_waits_for_earlier_jobs_of_the_same_name_and_user() -> None:
    sim = simulate(cluster())
    sim.submit(ask(user="ann"), 500)
    alone = (Dependency(DependencyKind.SINGLETON),)
    second = sim.submit(ask(user="ann", dependencies=alone), 500)
    third = sim.submit(ask(user="ann", dependencies=alone), 500)
    other = sim.submit(ask(user="bob", dependencies=alone), 500)
    after(sim, HOUR)
    assert start(sim, other) in range(LATE + 1)
    assert 500 <= start(sim, second) <= 500 + LATE
    assert start(sim, second) + 500 <= start(sim, third) <= start(sim, second) + 500 + LATE


def test_cancelling_ends_a_dependency() -> None:
    sim = simulate(cluster())
    first = sim.submit(ask(limit=HOUR), HOUR)
    any_end = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTERANY, first)), 100)
    good_end = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTEROK, first)), 100)
    after(sim, 200)
    sim.cancel(first)
    after(sim, HOUR)
    assert sim.job(first).state is JobState.CANCELLED
    assert sim.job(first).end == T0 + 200
    assert 200 <= start(sim, any_end) <= 200 + LATE
    assert start(sim, good_end) == -1


def test_a_job_waits_for_its_begin_time() -> None:
    sim = simulate(cluster())
    job = sim.submit(ask(begin=T0 + 400), 100)
    after(sim, 300)
    assert sim.job(job).reason == "BeginTime"
    assert 400 <= start(after(sim, HOUR), job) <= 400 + LATE


def test_a_begin_time_can_be_changed() -> None:
    sim = simulate(cluster())
    sooner, later = (sim.submit(ask(begin=T0 + 1000), 100) for _ in range(2))
    after(sim, 50)
    sim.set_begin(sooner, T0 + 200)
    sim.set_begin(later, T0 + 2000)
    after(sim, HOUR)
    assert 200 <= start(sim, sooner) <= 200 + LATE
    assert 2000 <= start(sim, later) <= 2000 + LATE


def test_a_held_job_waits_for_its_release() -> None:
    sim = simulate(cluster())
    at_submission = sim.submit(ask(held=True), 100)
    after_submission = sim.submit(ask(begin=T0 + 100), 100)
    after(sim, 50)
    sim.hold(after_submission)
    after(sim, 500)
    assert [sim.job(job).reason for job in (at_submission, after_submission)] == ["JobHeldUser"] * 2
    sim.release(at_submission)
    sim.release(after_submission)
    after(sim, HOUR)
    for job in (at_submission, after_submission):
        assert 500 <= start(sim, job) <= 500 + LATE


def test_nice_reorders_the_queue() -> None:
    parts = (partition("main", node_names(1)),)
    sim = simulate(cluster(nodes=1, partitions=parts, priority=weights(partition=5000)))
    sim.submit(ask(), 100)
    first, second = (sim.submit(ask(limit=100), 100) for _ in range(2))
    sim.set_nice(first, 100)
    after(sim, HOUR)
    assert 0 < start(sim, second) < start(sim, first)


def test_cancelled_pending_jobs_never_start() -> None:
    sim = simulate(cluster(nodes=1))
    sim.submit(ask(), 500)
    job = sim.submit(ask(), 500)
    after(sim, 100)
    sim.cancel(job)
    after(sim, HOUR)
    assert sim.job(job).state is JobState.CANCELLED
    assert start(sim, job) == -1


def test_cancelling_a_running_job_frees_its_nodes() -> None:
    sim = simulate(cluster(nodes=1))
    running = sim.submit(ask(), HOUR)
    waiting = sim.submit(ask(), 100)
    after(sim, 100)
    sim.cancel(running)
    assert 100 <= start(after(sim, HOUR), waiting) <= 100 + LATE


def test_cancelling_a_finished_job_does_nothing() -> None:
    sim = simulate(cluster())
    job = sim.submit(ask(), 100)
    after(sim, 200)
    sim.cancel(job)
    assert sim.job(job).state is JobState.COMPLETED


def test_unknown_jobs_are_named() -> None:
    sim = simulate(cluster())
    for act in (sim.cancel, sim.hold, sim.release, sim.job):
        with pytest.raises(UnknownJob, match="987654"):
            act(JobId(987654))


def test_an_array_runs_no_more_tasks_at_once_than_its_throttle() -> None:
    """sbatch(1), --array=0-4%2."""
    sim = simulate(cluster(nodes=4))
    tasks = sim.submit_array(ask(limit=300), [300] * 5, most_at_once=2)
    after(sim, HOUR)
    begun = sorted(start(sim, task) for task in tasks)
    assert begun[:2] == [0, 0]
    assert all(later >= earlier + 300 for earlier, later in zip(begun, begun[2:], strict=False))
    assert begun[4] <= 600 + 2 * LATE


def test_a_throttled_array_lets_others_pass() -> None:
    sim = simulate(cluster(nodes=2))
    sim.submit_array(ask(limit=300), [300] * 3, most_at_once=1)
    other = sim.submit(ask(user="bob"), 100)
    assert start(after(sim, HOUR), other) in range(LATE)


def test_an_array_without_throttle_fills_the_nodes() -> None:
    sim = simulate(cluster(nodes=4))
    tasks = sim.submit_array(ask(limit=300), [300, 200, 100, 50, 300])
    after(sim, HOUR)
    assert [start(sim, task) for task in tasks] == [0, 0, 0, 0, 50]


def test_after_with_minutes_counts_them_from_a_cancellation() -> None:
    """sbatch(1): after the specified jobs "start or are cancelled and 'time' in minutes" from then has passed."""
    sim = simulate(cluster())
    never_run = sim.submit(ask(held=True), 100)
    second = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTER, never_run, 600)), 100)
    after(sim, 200)
    sim.cancel(never_run)
    assert 800 <= start(after(sim, HOUR), second) <= 800 + LATE


def test_after_with_minutes_counts_them_from_the_start_of_a_job_that_has_ended() -> None:
    sim = simulate(cluster())
    first = sim.submit(ask(), 100)
    after(sim, 200)
    second = sim.submit(ask(dependencies=waits_for(DependencyKind.AFTER, first, 600)), 100)
    assert 600 <= start(after(sim, HOUR), second) <= 600 + LATE


def test_singleton_waits_for_whatever_runs_under_the_same_name() -> None:
    """sbatch(1): "only one job by that name and owned by that user can be running at any point in time"."""
    sim = simulate(cluster())
    sim.submit(ask(), 100)
    singleton = sim.submit(ask(dependencies=(Dependency(DependencyKind.SINGLETON),)), 100)
    later = sim.submit(ask(), 500)
    after(sim, HOUR)
    assert start(sim, later) == 0
    assert 500 <= start(sim, singleton) <= 500 + LATE
