"""Chains that look after themselves: what is queued so that none of them is forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fakes import HOUR
from hypothesis import given
from hypothesis import strategies as st
from provisioner.test_machine import fresh, running, submitted

from mirage.control.self_driven import CALL, CallJobs, SelfDriven
from mirage.control.status import Status
from mirage.domain.chain import ChainStatus
from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import BatchScript, JobId
from mirage.domain.jobtable import JobLabels
from mirage.domain.snapshot import JobColumns, Snapshot

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import JobRequest

OWNER = fresh().chain.owner
CONTROLLER = Path("/home/a b/shared/controller")


class Queue:
    """Slurm's queue of calls."""

    def __init__(self) -> None:
        self.requests: list[JobRequest] = []
        self.full = False
        self.refused = 0

    def submit(self, request: JobRequest) -> JobId:
        if self.full:
            self.refused += 1
            raise SubmissionRejected("QOSMaxSubmitJobPerUserLimit", "too many jobs")
        self.requests.append(request)
        return JobId(100 + len(self.requests))

    @property
    def names(self) -> list[str]:
        return [request.name for request in self.requests]

    def shown(self, *, of: str = OWNER, gone: tuple[str, ...] = ()) -> Snapshot:
        names = [name for name in self.names if name not in gone]
        ids = np.arange(100, 100 + len(names))
        columns = {name: np.zeros(len(names), dtype=np.int64) for name in JobColumns.__dataclass_fields__}
        pending = JobColumns(**(columns | {"job_id": ids}))
        labels = JobLabels.of_texts(ids, names, ["" for _ in names])
        return Snapshot(0, pending, JobColumns.none(), (), (of,), (), (), labels=labels)


def status(snapshot: Snapshot, *records: ChainRecord) -> Status:
    return Status(HOUR, "", snapshot, records)


def test_each_running_link_has_a_call_for_its_end() -> None:
    queue = Queue()
    calls = CallJobs(queue, OWNER, CONTROLLER)
    record = running(fresh())
    (link,) = record.links
    for _ in range(3):
        calls.keep(status(queue.shown(), record))
    (request,) = queue.requests
    assert request.name == f"{CALL}-{link.job_id}"
    assert request.batch is not None
    assert f"--dependency=afterany:{link.job_id}" in request.batch.options
    assert "'/home/a b/shared/controller'" in request.batch.text


def test_what_slurm_shows_counts_in_a_new_process() -> None:
    queue, record = Queue(), running(fresh())
    for _ in range(3):
        CallJobs(queue, OWNER, CONTROLLER).keep(status(queue.shown(), record))
    assert len(queue.names) == 1
    CallJobs(queue, OWNER, CONTROLLER).keep(status(queue.shown(gone=tuple(queue.names)), record))
    assert len(queue.names) == 2, "it was cancelled"
    CallJobs(queue, OWNER, CONTROLLER).keep(status(queue.shown(of="mallory"), record))
    assert len(queue.names) == 3, "another user's jobs count for nothing"


def test_where_no_link_runs_a_call_waits_for_a_time() -> None:
    queue, record = Queue(), submitted(fresh(), 0)
    for _ in range(3):
        CallJobs(queue, OWNER, CONTROLLER).keep(status(queue.shown(), record))
    (request,) = queue.requests
    assert (request.name, request.begin > HOUR) == (CALL, True)


def test_no_call_for_chains_that_do_not_go_on() -> None:
    queue, record = Queue(), running(fresh())
    calls = CallJobs(queue, OWNER, CONTROLLER)
    for ended in (ChainStatus.DONE, ChainStatus.STOPPED, ChainStatus.PAUSED):
        calls.keep(status(queue.shown(), replace(record, status=ended)))
    calls.keep(status(replace(queue.shown(), stale_since=5), record))
    assert queue.names == []


def test_a_call_that_slurm_refuses_is_tried_again() -> None:
    queue, record = Queue(), running(fresh())
    calls = CallJobs(queue, OWNER, CONTROLLER)
    queue.full = True
    other = replace(record, links=(replace(record.links[0], job_id=JobId(77)),))
    calls.keep(status(queue.shown(), record, other))
    assert queue.refused == 1, "once a cycle, however many links run"
    queue.full = False
    calls.keep(status(queue.shown(), record))
    assert len(queue.names) == 1


@given(text=st.sampled_from(["#!/bin/sh\ntrue\n", "#!/usr/bin/env python3\n", ""]), tag=st.booleans())
def test_each_link_carries_the_controller_or_is_as_it_was(text: str, tag: bool) -> None:
    queue = Queue()
    options = ("--container=/image",) if tag else ()
    request = replace(fresh().chain.link_request(1), batch=BatchScript(text, options))
    SelfDriven(queue, CONTROLLER).submit(request)
    (sent,) = queue.requests
    assert sent.batch is not None
    carried = "'/home/a b/shared/controller'" in sent.batch.text
    assert carried is (bool(text) and not tag)
    assert carried or sent == request
