"""Text of squeue, sinfo and sacct in our formats: anything users write, anything that is cut off, any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, UNLIMITED, BatchScript, JobId, JobRequest, JobState, WarnSignal
from mirage.domain.snapshot import JobColumns
from mirage.slurm import node_text, queuetext, rows, sbatch
from mirage.slurm.job_state import exit_code_of_status, parse_exit_code
from mirage.slurm.rows import CELL

MARK = "\x1e0123456789ab"
ANYTHING = st.text(st.characters(exclude_categories=()), max_size=40)
ROW = {
    "JobID": "7",
    "JobArrayID": "7",
    "State": "PENDING",
    "UserName": "alice",
    "SubmitTime": "1795275134",
    "EligibleTime": "1795275134",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "TimeLimit": "2-00:00:00",
    "NumNodes": "2",
    "Partition": "cpu",
    "QOS": "normal",
    "PriorityLong": "100",
    "Nice": "0",
    "exit_code": "0",
    "ReqNodes": "",
    "NodeList": "",
    "tres-alloc": "cpu=2,mem=500G,node=2,billing=2",
    "Reason": "Priority",
    "Name": "svc",
    "Account": "research",
    "Comment": "mirage:svc:1",
}


def answer(*changes: dict[str, str]) -> str:
    heading = CELL.join(name.upper() for name in queuetext.FIELDS)
    lines = [CELL.join((ROW | change)[name] for name in queuetext.FIELDS) for change in changes]
    return "".join(f"{line}{MARK}\n" for line in (heading, *lines))


def read(*changes: dict[str, str], wanted: tuple[int, ...] = ()) -> queuetext.Queue:
    return queuetext.read_queue(answer(*changes), MARK, {JobId(job_id) for job_id in wanted})


def only(**change: str) -> queuetext.QueueRow:
    (found,) = read(change).ours
    return found


def test_rows_that_are_known_change_nothing() -> None:
    known, other = queuetext.KnownRows(), {"JobID": "8", "Comment": "mirage:svc:2"}
    for changes in [({}, other), ({"Nice": "5"}, other), ({"State": "RUNNING"},), ({}, other), ()]:
        assert queuetext.read_queue(answer(*changes), MARK, known=known).ours == read(*changes).ours


_WAITS = {"State": "PENDING", "StartTime": "1795276134"}


@pytest.mark.parametrize(
    ("reason", "priority", "held"),
    [("JobHeldUser", "0", True), ("JobHeldAdmin", "0", False), ("job requeued in held state", "0", True)],
)
def test_held_job_with_a_begin_time_has_no_planned_start(reason: str, priority: str, held: bool) -> None:
    job = only(**_WAITS, Reason=reason, PriorityLong=priority).job
    assert (job.expected_start, job.held) == (ABSENT, held)
    assert read(_WAITS | {"Reason": reason, "PriorityLong": priority}).pending.start[0] == ABSENT


def test_waiting_job_that_slurm_planned_has_a_planned_start() -> None:
    assert only(**_WAITS).job.expected_start == 1795276134


def test_the_format_names_every_field_once() -> None:
    shape = queuetext.queue_settings(MARK)["SQUEUE_FORMAT2"]
    assert shape == ",".join(f"{f}:{CELL}" for f in queuetext.FIELDS).removesuffix(CELL) + MARK


def test_an_empty_queue_has_a_heading() -> None:
    assert (len(read().pending), len(read().running)) == (0, 0)
    with pytest.raises(BadSpelling):
        queuetext.read_queue("", MARK)


@given(name=ANYTHING, comment=ANYTHING)
def test_what_users_write_spoils_no_other_row(name: str, comment: str) -> None:
    queue = read({"JobID": "1"}, {"JobID": "2", "Name": name, "Comment": comment}, {"JobID": "3"})
    assert (sorted(queue.pending.job_id.tolist()), queue.unreadable) == ([1, 2, 3], ())
    assert {found.job.job_id: found.job.tag for found in queue.ours}.items() >= {
        (1, ROW["Comment"]),
        (3, ROW["Comment"]),
    }


def test_ends_of_cells_in_a_name_make_no_tag() -> None:
    queue = read({"Name": f"x{CELL}mirage:other:1", "Comment": "mirage:svc:1"}, wanted=(7,))
    assert [(found.job.user, found.job.tag) for found in queue.ours] == [("alice", "")]


@given(st.integers(0, 600))
def test_every_cut_is_noticed(length: int) -> None:
    text = answer({}, {"JobID": "8"}, {"JobID": "9"})
    whole = [k for k in range(len(text) + 1) if text[:k].endswith(f"{MARK}\n")]
    if length not in whole and length < len(text):
        with pytest.raises(BadSpelling):
            queuetext.read_queue(text[:length], MARK)


@given(st.text(max_size=200))
def test_garbage_is_never_an_answer(text: str) -> None:
    with pytest.raises(BadSpelling):
        queuetext.read_queue(text, MARK)


@given(st.sampled_from(list(ROW)), ANYTHING.filter(lambda text: CELL not in text))
def test_a_cell_that_is_not_slurms_costs_only_its_row(field: str, text: str) -> None:
    queue = read({"JobID": "1"}, ROW | {"JobID": "2"} | {field: text}, {"JobID": "3"})
    assert {1, 3} <= {*queue.pending.job_id.tolist(), *queue.running.job_id.tolist()}
    assert len(queue.ours) + len(queue.unreadable) >= 2


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("JobID", "seven"),
        ("JobID", "1_000"),
        ("JobID", "99999999999999999999"),
        ("State", "DANCING"),
        ("SubmitTime", "2026-11-21T15:32:14"),
        ("TimeLimit", "soon"),
        ("NumNodes", "few"),
        ("PriorityLong", "0.5"),
        ("JobArrayID", "7_[x]"),
    ],
)
def test_a_row_of_ours_is_never_guessed(field: str, text: str) -> None:
    queue = read({field: text}, {"JobID": "8", "Comment": "(null)"})
    assert (queue.ours, len(queue.unreadable)) == ((), 1)
    assert queue.pending.job_id.tolist() == [8]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7", 1),
        ("7_3", 1),
        ("7_[3]", 1),
        ("7_[0-99%5]", 100),
        ("7_[1,4-6,10-20:5]", 7),
        ("7+0", 1),
        ("7_[1-2,...]", 2),
    ],
)
def test_tasks_that_wait(text: str, count: int) -> None:
    assert len(read({"JobArrayID": text}).pending) == count


@given(st.sets(st.integers(0, 200), min_size=1))
def test_tasks_are_counted_as_listed(tasks: set[int]) -> None:
    assert queuetext.count_tasks(f"7_[{','.join(map(str, sorted(tasks)))}%3]") == len(tasks)


@pytest.mark.parametrize("comment", ["mirage:svc", "mirage:svc:x", " mirage:svc:1", "mirage:a b:1", "(null)"])
def test_other_comments_are_no_tags(comment: str) -> None:
    assert read({"Comment": comment}).ours == ()
    assert [found.job.tag for found in read({"Comment": comment}, wanted=(7,)).ours] != []


def test_what_is_left_of_a_refused_submission_is_no_job() -> None:
    end = {"State": "FAILED", "Reason": "BadConstraints", "exit_code": "256"}
    at = dict.fromkeys(("StartTime", "EndTime"), ROW["SubmitTime"])
    assert read(end | at).ours == ()
    assert only(**end, StartTime="1795275140", EndTime="1795275150").job.exit_code == 1


def test_a_running_job_without_limit() -> None:
    job = only(State="RUNNING", StartTime="1795275140", EndTime="NONE", TimeLimit="UNLIMITED").job
    assert (job.limit, job.end) == (UNLIMITED, 1795275140 + UNLIMITED)


@pytest.mark.parametrize("state", ["COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"])
def test_states_that_hold_nodes(state: str) -> None:
    queue = read({"State": state, "StartTime": "1795275140", "EndTime": "1795275150"})
    assert (len(queue.running), len(queue.pending)) == (1, 0)
    assert not queue.ours[0].job.state.finished


@pytest.mark.parametrize("state", ["REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"])
def test_states_that_wait(state: str) -> None:
    assert len(read({"State": state}).pending) == 1


def test_large_node_counts_are_read_with_their_unit() -> None:
    assert only(NumNodes="2K").job.nodes == 2_048
    assert only(NumNodes="3-5").job.nodes == 3


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.booleans()), max_size=30))
def test_lean_reading_finds_the_same_links(jobs: list[tuple[int, int, bool]]) -> None:
    changes = [
        {
            "JobID": str(k),
            "PriorityLong": str(priority),
            "SubmitTime": str(at),
            "Comment": ours * "mirage:a:1" or "x",
        }
        for k, (priority, at, ours) in enumerate(jobs, start=1)
    ]
    full = queuetext.read_queue(answer(*changes), MARK, {JobId(1)})
    lean = queuetext.read_queue(answer(*changes), MARK, {JobId(1)}, columns=False)
    assert lean.ours == full.ours
    assert len(lean.pending) == 0


def test_fifty_thousand_jobs_are_read_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No object for each job: what is built for the links alone does not grow with the queue."""
    built: list[object] = []
    real = queuetext._queued_job
    monkeypatch.setattr(queuetext, "_queued_job", lambda *args: built.append(1) or real(*args))
    foreign = {"Comment": "(null)", "Partition": "gpu"}
    queue = read(*(ROW | foreign | {"JobID": str(k), "PriorityLong": str(k)} for k in range(10, 50_010)), ROW)
    assert (len(queue.pending), len(built)) == (50_001, 1)
    assert (np.diff(queue.pending.priority) <= 0).all()
    assert all(getattr(queue.pending, name).dtype == np.int64 for name in JobColumns.__dataclass_fields__)


def test_pending_jobs_have_the_nodes_they_must_have_and_others_those_they_have() -> None:
    nodes = {"ReqNodes": "n[1-2]", "NodeList": "n[3-4]"}
    assert only(**nodes).job.node_list == "n[1-2]"
    assert only(**nodes, State="RUNNING", StartTime="1795275140").job.node_list == "n[3-4]"


# sinfo


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("idle", "idle"),
        ("idle~", "idle"),
        ("idle#", "idle"),
        ("idle*", "down"),
        ("planned", "idle"),
        ("mixed-", "allocated"),
        ("allocated+", "allocated"),
        ("allocated*", "allocated"),
        ("completing", "allocated"),
        ("draining", "allocated"),
        ("draining@", "allocated"),
        ("drained", "down"),
        ("drained*", "down"),
        ("down*", "down"),
        ("down$", "down"),
        ("maint", "down"),
        ("reserved", "idle"),
        ("fail", "down"),
        ("failing", "allocated"),
        ("unknown*", "down"),
        ("inval", "down"),
        ("reboot^", "down"),
        ("something new", "down"),
    ],
)
def test_node_states(state: str, kind: str) -> None:
    assert node_text.kind_of(state) == kind


def test_a_partition_without_nodes_is_there() -> None:
    heading = CELL.join(("PARTITION", "STATE", "NODES"))
    text = f"{heading}{MARK}\n{CELL.join(('empty', 'n/a', '0'))}{MARK}\n"
    ((partition,), _) = node_text.read_partitions(text, MARK)
    assert (partition.name, partition.total, partition.down) == ("empty", 0, 0)


# sacct


SACCT = ("id", "start", "state", "name", "comment", "submit")


def printed_by_sacct(table: list[tuple[str, ...]]) -> str:
    lines = [SACCT, *table]
    return "".join("".join(f"{cell}{CELL}" for cell in row) + "\n" for row in lines)


@given(st.lists(st.tuples(ANYTHING, ANYTHING), max_size=5))
def test_rows_of_sacct_hold_whatever_users_write(texts: list[tuple[str, str]]) -> None:
    table = [(str(k), f"7{MARK}", "RUNNING", *pair, f"5{MARK}") for k, pair in enumerate(texts)]
    text = printed_by_sacct(table)
    found = rows.cut_parsable(text, SACCT, MARK, 2)
    told = [(cells[0], cells[1], cells[5]) for cells in zip(*found.columns, strict=True)]
    assert (told, found.broken) == ([(str(k), "7", "5") for k in range(len(texts))], ())
    for (name, comment), row in zip(texts, zip(*found.columns, strict=True), strict=True):
        assert row[3:5] == ((name, comment) if CELL not in name + comment else (f"{name}{CELL}{comment}", ""))
    for length in range(len(text)):
        cut_at_a_row = length and text[:length].endswith(f"{CELL}\n")
        if not cut_at_a_row:
            with pytest.raises(BadSpelling):
                rows.cut_parsable(text[:length], SACCT, MARK, 2)


def test_sacct_job_that_waits_has_times_without_a_mark() -> None:
    table = [("1", "Unknown", "", "a", "b", f"5{MARK}"), ("2", f"6{MARK}", "", "c", "", f"6{MARK}")]
    found = rows.cut_parsable(printed_by_sacct(table), SACCT, MARK, 2)
    assert found.columns[1] == ("Unknown", "6")


# sbatch


def test_every_field_of_a_request_becomes_an_option() -> None:
    request = JobRequest(
        "svc",
        "alice",
        90 * 60 + 1,
        nodes=2,
        partition="v100",
        account="physics",
        qos="long",
        cpus_per_node=8,
        memory_mb_per_node=4_000,
        gres_per_node=(("gpu:v100", 4), ("npu", 1)),
        features=("a", "b"),
        exclusive=True,
        begin=1_795_275_134,
        held=True,
        nice=5,
        reservation="today",
        node_list="n[1-2]",
        requeue=False,
        warn=WarnSignal("USR1", 300, batch_only=True),
        tag="mirage:svc:1",
    )
    assert set(sbatch.sbatch_arguments(request)) == {
        *("--nodes=2", "--time=01:31:00", "--mincpus=8", "--mem=4000M", "--gres=gpu:v100:4,npu:1", "--exclusive"),
        *("--partition=v100", "--account=physics", "--qos=long", "--reservation=today", "--constraint=a&b"),
        "--nodelist=n[1-2]",
        *("--begin=uts1795275134", "--hold", "--nice=5", "--no-requeue", "--signal=B:USR1@300"),
        *("--parsable", "--job-name=svc", "--comment=mirage:svc:1"),
    }
    plain = replace(JobRequest("svc", "alice", 60))
    assert sbatch.sbatch_arguments(plain) == [
        *("--time=00:01:00", "--parsable", "--job-name=svc"),
    ]


@given(st.integers(0, 255), st.integers(0, 64))
def test_wait_statuses_are_read_as_shells_do(code: int, signal: int) -> None:
    assert exit_code_of_status(str(code << 8)) == code
    assert exit_code_of_status(str(signal)) == (128 + signal if signal else 0)
    assert exit_code_of_status("4021") == parse_exit_code("0:53"), "as scontrol shows a job that was not started"


def test_times_not_known_are_absent() -> None:
    job = only(State="CANCELLED", StartTime="1795275140", EndTime="1795275140").job
    assert (job.state, job.start, job.end) == (JobState.CANCELLED, ABSENT, 1795275140)


def test_devices_beside_gpus_are_kept_where_options_say_the_gpus() -> None:
    batch = BatchScript("#!/bin/sh\n", options=("--gpus=4",))
    request = JobRequest("svc", "alice", 60, gres_per_node=(("npu", 2), ("gpu:a100", 2)), batch=batch)
    arguments = sbatch.sbatch_arguments(request)
    assert "--gres=npu:2" in arguments
    assert "--gpus=4" in arguments


def test_sbatch_runs_where_its_user_was() -> None:
    batch = BatchScript("", environment=(("PWD", "/scratch/alice"),), directory="/home/alice")
    assert sbatch.submission_folder(JobRequest("svc", "alice", 60, batch=batch)) == "/scratch/alice"
    bare = replace(batch, environment=())
    assert sbatch.submission_folder(JobRequest("svc", "alice", 60, batch=bare)) == "/home/alice"
    assert sbatch.submission_folder(JobRequest("svc", "alice", 60)) == "/"


@pytest.mark.parametrize("number", ["0", "-5", "4294967294", "4294967296", "4611686018427387904"])
def test_row_with_impossible_job_id_is_left_out(number: str) -> None:
    queue = queuetext.read_queue(answer({"JobID": number}, {}), MARK)
    assert [found.job.job_id for found in queue.ours] == [7]
    assert len(queue.unreadable) == 1


@pytest.mark.parametrize("printed", ["0\n", "-5\n", f"{2**32}\n", "4294967294\n"])
def test_impossible_job_id_of_sbatch_is_rejected(printed: str) -> None:
    with pytest.raises(BadSpelling):
        sbatch.read_job_id(printed)
