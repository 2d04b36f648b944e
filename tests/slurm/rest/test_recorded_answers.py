"""Answers of real slurmrestds, every version of each recorded Slurm, against the squeue and sinfo of that time."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from backends.recorded_squeue import PENDING, RUNNING, links_seen, links_told, recorded_squeue, seen, told

from mirage.backends.jobquery import Fates
from mirage.backends.restactuator import _errors
from mirage.backends.restclient import RestResponse
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, NEVER, UNLIMITED, JobState
from mirage.domain.link import NO_JOB
from mirage.domain.tags import split_tag
from mirage.slurm import accounting, node_text
from mirage.slurm.queuelabels import ends_of, jobs_kept_pending, suspended_jobs
from mirage.slurm.rest.answers import RestErrors
from mirage.slurm.rest.history import read_history, read_past_links, read_past_runs
from mirage.slurm.rest.queue import read_partitions, read_queue
from mirage.slurm.rest.versions import Kind, lift, with_partitions
from mirage.slurm.tres import gres_class_of, sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.slurm.queuetext import Queue
    from mirage.slurm.rest.answers import Record

ASSETS = Path(__file__).resolve().parents[2] / "assets"
RECORDED = sorted(ASSETS.glob("*/rest/v0.0.*"))


@pytest.fixture(params=RECORDED, ids=lambda folder: f"{folder.parts[-3]}-{folder.name}")
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


def answer(folder: Path, name: str) -> Record:
    found: Record = json.loads((folder / f"{name}.json").read_text())
    return found


def number(folder: Path) -> int:
    return int(folder.name.rpartition(".")[2])


def shaped(folder: Path, kind: Kind) -> Callable[[Record], Record]:
    return partial(lift, kind, number(folder))


def index(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder.parents[1] / "index.json").read_text())
    return found


def id_of(folder: Path, name: str) -> int:
    return int(index(folder)["jobs"][name])


def queue(folder: Path, *wanted: int) -> Queue:
    return read_queue(answer(folder, "jobs")["jobs"], partial(lift, Kind.JOB, number(folder)), str, wanted)


def squeue(folder: Path) -> list[dict[str, str]]:
    return recorded_squeue(folder.parents[1] / "squeue.mirage.epoch.txt")


def test_there_are_recordings() -> None:
    assert RECORDED


@pytest.mark.parametrize(("which", "states"), [("pending", PENDING), ("running", RUNNING)])
def test_the_queue_is_squeues(folder: Path, which: str, states: tuple[str, ...]) -> None:
    """But for what the recorder submitted and cancelled between the two."""
    last = max(int(job_id) for job_id in index(folder)["jobs"].values())
    cancelled = id_of(folder, "name-empty")
    ours, theirs = (
        {row for row in rows if row[0] <= last and row[0] != cancelled}
        for rows in (seen(queue(folder), which), told(squeue(folder), states))
    )
    assert ours == theirs
    assert len(ours) > 10


def test_names_and_accounts_are_squeues(folder: Path) -> None:
    """But for the job that the recorder renames between the two, in some versions."""
    table = {
        int(row["JOBID"]): (row["NAME"], row["ACCOUNT"])
        for row in squeue(folder)
        if row["STATE"] in (*PENDING, *RUNNING)
    }
    table.pop(id_of(folder, "held-by-user"))
    ours = queue(folder).labels.of(table)
    assert ours.items() <= table.items()
    assert len(ours) > 20


def test_gres_of_running_jobs_are_squeues(folder: Path) -> None:
    """But for what the recorder submitted and cancelled between the two."""
    last = max(int(job_id) for job_id in index(folder)["jobs"].values())
    table = {
        int(row["JOBID"]): gres_class_of(row["TRES_ALLOC"], int(row["NODES"]))
        for row in squeue(folder)
        if row["STATE"] in RUNNING
    }
    labels = queue(folder).labels
    rows = [row for row, job in enumerate(labels.job_id.tolist()) if job in table and job <= last]
    ours = {int(labels.job_id[row]): (labels.gres[row], int(labels.gres_per_node[row])) for row in rows}
    assert ours.items() <= table.items()
    assert len(ours) > 10


def test_cpus_and_memory_of_running_jobs_are_squeues(folder: Path) -> None:
    last = max(int(job_id) for job_id in index(folder)["jobs"].values())
    table = {int(row["JOBID"]): sizes_of(row["TRES_ALLOC"]) for row in squeue(folder) if row["STATE"] in RUNNING}
    labels = queue(folder).labels
    rows = [row for row, job in enumerate(labels.job_id.tolist()) if job in table and job <= last]
    ours = {int(labels.job_id[row]): (int(labels.cpus[row]), int(labels.memory_mb[row])) for row in rows}
    assert ours.items() <= table.items()
    assert len({cpus for cpus, _ in ours.values()}) > 1


def test_a_pending_array_counts_for_its_tasks(folder: Path) -> None:
    pending = queue(folder).pending
    assert (pending.job_id == id_of(folder, "array-pending")).sum() == 100
    assert (pending.job_id == id_of(folder, "running-array")).sum() == 3


def test_who_may_not_start_yet(folder: Path) -> None:
    pending = queue(folder).pending
    barred = set(pending.job_id[pending.eligible == NEVER].tolist())
    names = (
        "dependency",
        "dependencies",
        "dependency-never",
        "singleton",
        "held-by-user",
        "held-by-admin",
        "held-link",
    )
    assert barred >= {id_of(folder, name) for name in names}
    assert not barred & {id_of(folder, name) for name in ("resources", "priority", "begin-time", "limit-jobs")}


def test_which_jobs_more_than_the_queue_keeps_pending(folder: Path) -> None:
    labels = queue(folder).labels
    kept = jobs_kept_pending(labels, labels.job_id)
    names = ("limit-jobs", "limit-nodes", "held-by-user", "dependency", "begin-time", "partition-down")
    assert {id_of(folder, name) for name in names} <= kept
    assert not {id_of(folder, name) for name in ("resources", "priority", "reservation", "suspended")} & kept
    assert suspended_jobs(labels, labels.job_id) == {id_of(folder, "suspended")}
    running = id_of(folder, "running")
    (job,) = (each.job for each in queue(folder, running).ours if each.job.job_id == running)
    assert ends_of(labels, np.array([running])) == {running: job.end}


def test_the_links_are_squeues(folder: Path) -> None:
    ours = links_seen(queue(folder))
    ours.pop("mirage:abc:3", None)  # submitted by the recorder in between
    assert ours == links_told(squeue(folder))
    assert set(ours) >= {"mirage:abc:1", "mirage:abc:2"}


def test_the_nodes_of_a_link(folder: Path) -> None:
    lists = {found.job.tag: found.job.node_list for found in queue(folder).ours}
    assert (lists["mirage:abc:1"], lists["mirage:abc:2"]) == ("cpu-003", "")


def test_names_of_partitions_and_qos(folder: Path) -> None:
    found, table = queue(folder), [row for row in squeue(folder) if row["STATE"] in (*PENDING, *RUNNING)]
    assert set(found.partitions) == {row["PARTITION"].partition(",")[0] for row in table}
    assert set(found.qos) == {row["QOS"] for row in table}
    assert found.unreadable == ()


@pytest.mark.parametrize(
    ("name", "state", "exit_code"),
    [
        ("completed", JobState.COMPLETED, 0),
        ("failed", JobState.FAILED, 3),
        ("killed-by-signal", JobState.FAILED, 137),
        ("timeout", JobState.TIMEOUT, 143),
        ("cancelled-pending", JobState.CANCELLED, 0),
        ("node-fail", JobState.NODE_FAIL, 0),
        ("requeued", JobState.PENDING, 0),
        ("suspended", JobState.SUSPENDED, 0),
    ],
)
def test_what_became_of_a_job(folder: Path, name: str, state: JobState, exit_code: int) -> None:
    job_id = id_of(folder, name)
    (job,) = [found.job for found in queue(folder, job_id).ours if found.job.job_id == job_id]
    assert (job.state, job.name) == (state, name)
    if name not in ("timeout", "node-fail"):  # the signal differs between releases
        assert job.exit_code == exit_code
    assert (job.start == ABSENT) == (name in ("cancelled-pending", "requeued"))


def test_a_completing_job_holds_its_nodes(folder: Path) -> None:
    job_id = id_of(folder, "completing")
    assert job_id in queue(folder).running.job_id
    (found,) = [found for found in queue(folder, job_id).ours if found.job.job_id == job_id]
    assert found.completing or found.job.state.finished


def test_no_limit_is_unlimited(folder: Path) -> None:
    running = queue(folder).running
    (limit,) = running.limit[running.job_id == id_of(folder, "running-unlimited")]
    assert limit == UNLIMITED


def test_partitions_are_sinfos(folder: Path) -> None:
    records = answer(folder, "nodes")["nodes"]
    if number(folder) == 36:
        records = with_partitions(records, answer(folder, "partitions")["partitions"])
    found, unreadable = read_partitions(records, shaped(folder, Kind.NODE))
    assert not unreadable
    ours = {part.name: part for part in found}
    text = (folder.parents[1] / "sinfo.mirage.txt").read_text()
    theirs = {part.name: part for part in node_text.read_partitions(text, index(folder)["mark"])[0] if part.total}
    assert {name: part.total for name, part in ours.items()} == {name: part.total for name, part in theirs.items()}
    if number(folder) >= 37:  # before, a node's state comes without its flags
        assert ours == theirs


@pytest.mark.parametrize("name", ["completed", "failed", "killed-by-signal", "node-fail"])
def test_the_accounting_agrees_with_the_controller(folder: Path, name: str) -> None:
    job_id = id_of(folder, name)
    (now,) = [found.job for found in queue(folder, job_id).ours if found.job.job_id == job_id]
    if "jobs" not in answer(folder, "db.jobs"):
        pytest.skip("the recorder's question was rejected")
    past, unreadable = read_past_runs(answer(folder, "db.jobs")["jobs"], shaped(folder, Kind.PAST_JOB))
    then = Fates.of_runs(past, unreadable).jobs[now.job_id]
    assert not unreadable
    assert (then.state, then.submit, then.end, then.limit) == (now.state, now.submit, now.end, now.limit)
    assert (then.partition, then.name) == (now.partition, now.name)
    assert then.start == now.start
    assert name == "node-fail" or then.exit_code in (
        (now.exit_code,) if number(folder) >= 40 else (now.exit_code, ABSENT)
    )


def test_past_links_are_those_of_the_accounting_with_a_tag_or_id(folder: Path) -> None:
    if "jobs" not in answer(folder, "db.jobs"):
        pytest.skip("the recorder's question was rejected")
    records, shape = answer(folder, "db.jobs")["jobs"], shaped(folder, Kind.PAST_JOB)
    runs, _ = read_past_runs(records, shape)
    assert set(read_past_links(records, shape, {job.job_id for job in runs}).jobs) == set(runs)
    tagged = {job for job in runs if split_tag(job.tag) is not None}
    assert set(read_past_links(records, shape, ()).jobs) == tagged


def test_the_history_is_the_one_that_sacct_tells(folder: Path) -> None:
    """Every job that had ended when both were queried; of one with several runs sacct's last."""
    if "jobs" not in answer(folder, "db.jobs"):
        pytest.skip("the recorder's question was rejected")
    table, left_out = read_history(answer(folder, "db.jobs")["jobs"], shaped(folder, Kind.PAST_JOB))
    text = (folder.parents[1] / "sacct.mirage-history.epoch.txt").read_bytes().decode("utf-8", "surrogateescape")
    told, _ = accounting.read_history(text, index(folder)["mark"])
    assert left_out == 0
    theirs = {str(told.job_id[k]): k for k in np.lexsort((told.start, told.submit)) if told.end[k] != ABSENT}
    common = [(k, theirs[str(name)]) for k, name in enumerate(table.job_id) if str(name) in theirs]
    ours = [(k, other) for k, other in common if table.submit[k] == told.submit[other] and table.end[k] != ABSENT]
    assert len(ours) > 10
    for k, other in ours:
        for name in ("user", "account", "partition", "qos", "name", "constraint"):
            assert getattr(table, name)[k] == getattr(told, name)[other], (table.job_id[k], name)
        for name in ("submit", "end", "limit", "nodes", "cpus", "memory_mb", "state"):
            assert getattr(table, name)[k] == getattr(told, name)[other], (table.job_id[k], name)
        gres = dict(zip(table.gres_names, table.gres[k].tolist(), strict=True))
        assert gres == dict(zip(told.gres_names, told.gres[other].tolist(), strict=True))
        assert abs(int(table.start[k] - told.start[other])) <= 1, "worked out from how long it ran, up to v0.0.37"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("account", "InvalidAccount"),
        ("gres", "BadConstraints"),
        ("limit", "PartitionTimeLimit"),
        ("partition", "PartitionInvalid"),
        ("field", "Refused"),
    ],
)
def test_refusals_have_a_reason(folder: Path, name: str, reason: str) -> None:
    error = RestErrors.read(answer(folder, f"error.submit-{name}")["errors"]).of_submission("submission")
    assert isinstance(error, SubmissionRejected)
    assert error.reason == reason


def test_acts_on_others_jobs_and_on_none(folder: Path) -> None:
    if number(folder) in (40, 41):
        pytest.skip("does not tell")
    foreign, unknown = (
        _errors(RestResponse(200, answer(folder, f"error.cancel-{whose}"))) for whose in ("foreign", "unknown")
    )
    foreign = RestErrors.read(foreign).of_act("cancel job 40")
    unknown = RestErrors.read(unknown).of_act("cancel job 999999")
    assert isinstance(foreign, NotPermitted)
    assert isinstance(unknown, UnknownJob)
    assert "999999" in str(unknown)


@pytest.mark.parametrize("name", ["bad-token", "expired-token"])
def test_a_refused_token_is_nobodys_fault_but_the_tokens(folder: Path, name: str) -> None:
    text = (folder / f"error.{name}.json").read_text()
    if not text.startswith("{"):
        pytest.skip("said by the status alone")
    error = RestErrors.read(json.loads(text)["errors"]).of_act("look at job 1")
    assert isinstance(error, ClusterUnavailable)


def test_no_id_is_no_job() -> None:
    assert read_queue([], dict, str, {NO_JOB}).ours == ()


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("launch failed requeued held", "launch failed requeued held"),
        ("job requeued in held state", "JobHeldUser"),
    ],
)
def test_hold_of_a_failed_launch_is_told_from_that_of_the_owner(
    folder: Path, description: str, reason: str
) -> None:
    held = id_of(folder, "held-by-user")

    def described(source: Record) -> Record:
        record = lift(Kind.JOB, number(folder), source)
        return record | {"state_description": description} if record["job_id"] == held else record

    found = read_queue(answer(folder, "jobs")["jobs"], described, str, [held])
    (job,) = (queued.job for queued in found.ours if queued.job.job_id == held)
    assert (job.reason, job.held) == (reason, True)


def test_held_job_with_a_begin_time_has_no_planned_start(folder: Path) -> None:
    """The state that ``scontrol requeuehold`` leaves; pyslurm has Slurm's description in place of its reason."""
    held = id_of(folder, "held-by-user")

    def requeued(source: Record) -> Record:
        record = lift(Kind.JOB, number(folder), source)
        if record["job_id"] != held:
            return record
        start = record["start_time"] | {"set": True, "infinite": False, "number": 2_000_000_000}
        return record | {"start_time": start, "state_reason": "job_requeued_in_held_state"}

    found = read_queue(answer(folder, "jobs")["jobs"], requeued, str, [held])
    (job,) = (queued.job for queued in found.ours if queued.job.job_id == held)
    assert (job.expected_start, job.held) == (ABSENT, True)
    assert found.pending.start[found.pending.job_id == held].tolist() == [ABSENT]
