"""Slurm's planned starts: how often they are read, for which job, and the forecast where there is no plan."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from fakes import FakeCluster

from mirage.control.observations import ObservationBuilder
from mirage.control.startplans import PlanBudget, StartPlans, class_of_plan
from mirage.domain.decision import PlannedStart, PlanStatus, Wants
from mirage.domain.errors import ClusterUnavailable, MirageError, NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT, BatchScript, Job, JobId, JobRequest, JobState
from mirage.domain.snapshot import Snapshot

ASKED = JobRequest("train", "alice", 3_600, 1, "gpu", tag="mirage:train:2")
BUDGET = PlanBudget(per_cycle=1, period=600, kept=3_600)


@dataclass
class Estimator:
    """Answers an hour after each query, or raises."""

    raises: MirageError | None = None
    gives: int | None = None
    asked: list[JobRequest] = field(default_factory=list)

    def estimate_start(self, request: JobRequest) -> int:
        self.asked.append(request)
        if self.raises is not None:
            raise self.raises
        return 10_000 + len(self.asked) if self.gives is None else self.gives


def of_users(count: int) -> list[JobRequest]:
    return [replace(ASKED, user=f"u{number}", tag=f"mirage:c{number}:2") for number in range(count)]


def cycles(plans: StartPlans, requests: list[JobRequest], count: int, every: int = 30) -> list[list[PlannedStart]]:
    found = []
    for number in range(count):
        plans.next_cycle(number * every)
        found.append([plans.of(request, number * every) for request in requests])
    return found


def test_31_chains_of_one_class_are_one_question() -> None:
    estimator = Estimator()
    requests = [replace(ASKED, name=f"c{n}", tag=f"mirage:c{n}:2") for n in range(31)]
    found = cycles(StartPlans(estimator, BUDGET), requests, 5)
    assert len(estimator.asked) == 1
    assert {plan for cycle in found for plan in cycle} == {PlannedStart.known(10_001, 0)}


def test_31_classes_have_one_question_a_cycle_in_turn() -> None:
    estimator = Estimator()
    requests = of_users(31)
    found = cycles(StartPlans(estimator, BUDGET), requests, 62)
    assert len(estimator.asked) == 62
    assert set(Counter(request.user for request in estimator.asked).values()) == {2}
    assert [plan.status for plan in found[0]].count(PlanStatus.NOT_ASKED) == 30
    assert all(plan.is_known for cycle in found[31:] for plan in cycle)
    assert max(62 * 30 - plan.asked_at for plan in found[-1]) <= 32 * 30


def test_answer_is_asked_for_again_after_the_period() -> None:
    estimator = Estimator()
    cycles(StartPlans(estimator, BUDGET), [ASKED], 41)
    assert len(estimator.asked) == 3, "at 0, 600 and 1,200 seconds"


def test_forgotten_answer_is_not_used() -> None:
    plans = StartPlans(Estimator(), BUDGET)
    first, second = of_users(2)
    plans.next_cycle(0)
    plans.of(first, 0)
    plans.next_cycle(3_970)
    plans.next_cycle(4_000)
    plans.of(second, 4_000)
    assert plans.of(first, 4_000).status is PlanStatus.NOT_ASKED


def test_questions_of_people_take_no_turn_of_a_chain() -> None:
    estimator = Estimator()
    plans = StartPlans(estimator, BUDGET)
    first, second, other = of_users(3)
    cycles(plans, [first, second], 1)
    plans.next_cycle(30)
    assert plans.of(other, 30, queued=False).status is PlanStatus.NOT_ASKED
    assert plans.of(second, 30).is_known
    plans.next_cycle(60)
    assert plans.of(other, 60, queued=False).is_known, "no chain has a turn now"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotPermitted("not yours"), PlanStatus.NOT_PERMITTED),
        (SubmissionRejected("InvalidQOS"), PlanStatus.REJECTED),
        (ClusterUnavailable("timed out"), PlanStatus.UNAVAILABLE),
    ],
)
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_each_fact_has_its_own_status(error: MirageError, status: PlanStatus, budget: PlanBudget | None) -> None:
    plans = StartPlans(Estimator(error), budget)
    plans.next_cycle(0)
    assert plans.of(ASKED, 0) == PlannedStart(status, ABSENT, 0)


def test_no_start_is_beyond_the_window() -> None:
    assert StartPlans(Estimator(gives=ABSENT)).of(ASKED, 7).status is PlanStatus.BEYOND_WINDOW


def test_owner_for_whom_nobody_may_ask_costs_no_turn() -> None:
    estimator = Estimator(NotPermitted("not yours"))
    plans = StartPlans(estimator, BUDGET)
    first, second = of_users(2)
    plans.next_cycle(0)
    plans.of(first, 0)
    estimator.raises = None
    assert plans.of(second, 0).is_known


def test_controller_that_could_not_be_asked_is_asked_again() -> None:
    estimator = Estimator(ClusterUnavailable("timed out"))
    plans = StartPlans(estimator, BUDGET)
    cycles(plans, [ASKED], 2)
    assert len(estimator.asked) == 2
    estimator.raises = None
    plans.next_cycle(60)
    assert plans.of(ASKED, 60).is_known


def test_class_is_what_sbatch_is_told() -> None:
    batch = BatchScript("#!/bin/sh\n#SBATCH -L a\n# text\necho\n#SBATCH -L b\n", ("--mem=1",), (("A", "1"),), "/x")
    asked = replace(ASKED, batch=batch)
    same = replace(batch, text="#!/bin/bash\n#SBATCH -L a\n\nother\n", environment=(("A", "2"),), directory="/y")
    assert class_of_plan(asked) == class_of_plan(replace(asked, name="n", tag="t", batch=same))
    for other in (
        replace(asked, user="bob"),
        replace(asked, qos="high"),
        replace(asked, gres_per_node=(("gpu", 1),)),
        replace(asked, batch=replace(batch, options=("--mem=2",))),
        replace(asked, batch=replace(batch, text="#SBATCH -L c\n")),
        replace(asked, batch=replace(batch, environment=(("SBATCH_QOS", "low"),))),
    ):
        assert class_of_plan(asked) != class_of_plan(other)


def test_observer_asks_within_the_budget() -> None:
    cluster, wants = FakeCluster(plan=500), Wants(plan=True)
    observer = ObservationBuilder(cluster, cluster, budget=BUDGET)
    job = Job(JobId(1), "s", "alice", "gpu", 1, 3_600, JobState.RUNNING, 0, 0, 3_600)
    snapshot = replace(Snapshot.unseen(100), stale_since=ABSENT)
    observer.seen(snapshot, wants)
    seen = [observer.observe(snapshot, job, request, wants).planned_start for request in of_users(3)]
    assert seen == [PlannedStart.known(500, 100), PlannedStart(), PlannedStart()]
    assert observer.observe(snapshot, job, ASKED, Wants()).planned_start.status is PlanStatus.NOT_ASKED
