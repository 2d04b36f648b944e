"""Which pending jobs start by waiting in the queue, and which running ones stand still."""

from __future__ import annotations

import numpy as np
import pytest
from test_queue_text import read
from test_recorded_text import VERSIONS, Recordings

from mirage.domain.job import ABSENT
from mirage.domain.jobtable import JobLabels
from mirage.slurm.queuelabels import ends_of, jobs_kept_pending, suspended_jobs, waits_its_turn

STARTED, END = 1_795_275_134, 1_795_447_934
RUNS = {"State": "RUNNING", "StartTime": str(STARTED), "EndTime": str(END), "Reason": "None"}


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "None",
        "Priority",
        "Resources",
        "Reservation",
        "ReqNodeNotAvail",
        "ReqNodeNotAvail, UnavailableNodes:c[1-3]",
        "ReqNodeNotAvail,_UnavailableNodes:c[1-3]",
        "ReqNodeNotAvail(Unavailable:c1)",
        "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
        "Cleaning",
    ],
)
def test_reason_of_the_queue_lets_a_job_start(reason: str) -> None:
    assert waits_its_turn(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "AssocGrpCPUMinutesLimit",
        "AssocMaxJobsLimit",
        "QOSMaxJobsPerUserLimit",
        "JobHeldUser",
        "JobHeldAdmin",
        "Dependency",
        "DependencyNeverSatisfied",
        "BeginTime",
        "PartitionDown",
        "PartitionInactive",
        "PartitionTimeLimit",
        "InvalidAccount",
        "InvalidQOS",
        "JobArrayTaskLimit",
        "Licenses",
        "launch failed requeued held",
        "SomethingNew",
    ],
)
def test_other_reasons_keep_a_job_pending(reason: str) -> None:
    assert not waits_its_turn(reason)


def test_labels_tell_the_jobs_that_are_kept_pending() -> None:
    """By a limit, or for nodes that they name."""
    limited, waiting = {"JobID": "1", "Reason": "AssocGrpCPUMinutesLimit"}, {"JobID": "2", "Reason": "Resources"}
    named = waiting | {"JobID": "4", "ReqNodes": "n1"}
    running = RUNS | {"JobID": "3", "Reason": "AssocGrpCPUMinutesLimit"}
    labels = read(limited, waiting, running, named).labels
    assert jobs_kept_pending(labels, np.array([1, 2, 3, 4])) == {1, 4}
    assert jobs_kept_pending(labels, np.array([2, 3])) == set()


def test_labels_tell_suspended_jobs_and_the_ends_of_others() -> None:
    labels = read(RUNS | {"JobID": "1", "State": "SUSPENDED"}, RUNS | {"JobID": "2"}).labels
    both = np.array([1, 2])
    assert suspended_jobs(labels, both) == {1}
    assert ends_of(labels, both) == {1: ABSENT, 2: END}


@pytest.mark.parametrize("version", VERSIONS)
def test_labels_of_recorded_queues(version: str) -> None:
    recorded = Recordings(version)
    labels, ids = recorded.queue().labels, recorded.ids
    kept = jobs_kept_pending(labels, np.array(list(ids.values())))
    names = ("limit-jobs", "limit-nodes", "held-by-user", "dependency", "begin-time", "partition-down")
    assert {ids[name] for name in names} <= kept
    assert not {ids[name] for name in ("resources", "priority", "reservation", "running", "suspended")} & kept
    assert suspended_jobs(labels, labels.job_id) == {ids["suspended"]}


def test_labels_without_marks_tell_nothing() -> None:
    labels, jobs = JobLabels.of_texts(np.array([1]), ["a"], ["b"]), np.array([1])
    assert (jobs_kept_pending(labels, jobs), suspended_jobs(labels, jobs), ends_of(labels, jobs)) == (
        set(),
        set(),
        {},
    )
