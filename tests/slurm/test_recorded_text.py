"""The parsers of the cli backend on what real Slurms of each version printed.

What is expected comes from elsewhere: other commands recorded next to it, and what the jobs were made to be.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, NEVER, UNLIMITED, Job, JobId, JobState
from mirage.slurm import accounting, duration, error_messages, node_text, queuetext, sbatch
from mirage.slurm.error_messages import is_permanent
from mirage.slurm.rows import CELL

ASSETS = Path(__file__).resolve().parents[1] / "assets"
VERSIONS = sorted(path.name for path in ASSETS.iterdir() if (path / "squeue.mirage.epoch.txt").exists())
LINK_TAGS = {"running-link": "mirage:abc:1", "held-link": "mirage:abc:2"}


class Recordings:
    """The output of one version of Slurm."""

    def __init__(self, version: str) -> None:
        self.directory = ASSETS / version
        index = json.loads((self.directory / "index.json").read_text())
        self.mark: str = index["mark"]
        self.ids = {name: JobId(int(job_id)) for name, job_id in index["jobs"].items()}
        self.commands: dict[str, Any] = index["recordings"]

    def text(self, name: str) -> str:
        return (self.directory / name).read_bytes().decode("utf-8", "surrogateescape")

    def squeue(self) -> str:
        return self.text("squeue.mirage.epoch.txt")

    def queue(self) -> queuetext.Queue:
        return queuetext.read_queue(self.squeue(), self.mark, set(self.ids.values()))

    def ours(self) -> dict[str, queuetext.QueueRow]:
        """Every job of the zoo, as if each were a link, by its name there."""
        by_id = {found.job.job_id: found for found in self.queue().ours}
        return {name: by_id[job_id] for name, job_id in self.ids.items() if job_id in by_id}

    def shown(self) -> dict[JobId, dict[str, str]]:
        """What ``scontrol`` showed of each job at about the same time, by its words."""
        lines = re.findall(r"(?ms)^JobId=(\d+) (.*?)(?=^JobId=|\Z)", self.text("scontrol.jobs-oneline.epoch.txt"))
        return {JobId(int(job_id)): dict(re.findall(r"(\w+)=(\S*)", rest)) for job_id, rest in lines}


@pytest.fixture(params=VERSIONS)
def recorded(request: pytest.FixtureRequest) -> Recordings:
    return Recordings(request.param)


def test_there_is_something_to_test_on() -> None:
    assert "22.05.8" in VERSIONS


# What was requested


def test_what_was_recorded_is_what_we_ask(recorded: Recordings) -> None:
    mark = recorded.mark
    ids = set(recorded.ids.values())
    asked = {
        "squeue.mirage.epoch.txt": (["squeue", *queuetext.ARGUMENTS], queuetext.queue_settings(mark)),
        "sinfo.mirage.txt": (["sinfo", *node_text.ARGUMENTS], node_text.node_settings(mark)),
        "sacct.mirage-fate.epoch.txt": (["sacct", *accounting.fate_arguments(ids)], accounting.settings(mark)),
        "sacct.mirage-recent.epoch.txt": (["sacct", *accounting.recent_arguments(2)], accounting.settings(mark)),
        "sacct.mirage-history.epoch.txt": (
            ["sacct", *accounting.history_arguments(1_000_000_000, 4_000_000_000)],
            accounting.settings(mark),
        ),
    }
    for name, (argv, settings) in asked.items():
        there = recorded.commands[name]
        assert there["argv"] == argv, f"{name}: asked otherwise now; record again (slurm-testbed/testbed capture)"
        assert settings.items() <= there["environment"].items(), name
        assert (there["exit"], there["stderr"]) == (0, ""), name


# squeue


def test_every_row_is_understood(recorded: Recordings) -> None:
    queue = recorded.queue()
    assert queue.unreadable == ()
    assert recorded.ours().keys() == recorded.ids.keys()


def test_jobs_are_as_scontrol_shows_them(recorded: Recordings) -> None:
    shown = recorded.shown()
    for name, found in recorded.ours().items():
        job, other = found.job, shown[found.job.job_id]
        assert job.user == other["UserId"].partition("(")[0], name
        assert job.submit == int(other["SubmitTime"]), name
        assert job.limit == duration.parse(other["TimeLimit"]), name
        assert job.nodes == int(other["NumNodes"].partition("-")[0]), name
        assert job.partition == other["Partition"], name
        assert job.nice == int(other["Nice"]), name
        state = "RUNNING" if found.completing else other["JobState"]
        assert job.state.name == state, name


def test_names_and_accounts_are_scontrols(recorded: Recordings) -> None:
    queue, shown = recorded.queue(), recorded.shown()
    waiting = {*queue.pending.job_id.tolist(), *queue.running.job_id.tolist()}
    labels = queue.labels.of(waiting)
    assert labels.keys() == waiting
    for job_id, (name, account) in labels.items():
        assert account == shown[JobId(job_id)]["Account"], job_id
        assert name.split()[:1] == [shown[JobId(job_id)]["JobName"]][: len(name.split())], job_id
    assert len({account for _, account in labels.values()}) > 1


def test_gres_are_scontrols(recorded: Recordings) -> None:
    queue, shown = recorded.queue(), recorded.shown()
    labels = queue.labels
    kinds = set()
    for row, job_id in enumerate(labels.job_id.tolist()):
        told = shown[JobId(job_id)]
        if told["JobState"] != "RUNNING":
            continue
        tres = dict(item.split("=") for item in told.get("AllocTRES", told.get("TRES", "")).split(","))
        typed = {name[5:]: int(count) for name, count in tres.items() if name.startswith("gres/") and ":" in name}
        npus = {"npu": int(tres["gres/npu"])} if "gres/npu" in tres else {}
        expected = ",".join(sorted(typed | npus)) or "none"
        assert labels.gres[row] == expected, told
        assert labels.gres_per_node[row] == sum((typed | npus).values()) // int(told["NumNodes"]), told
        kinds.add(expected)
    assert kinds >= {"none", "gpu:a100"}


def test_running_jobs_have_a_start_and_the_end_of_their_limit(recorded: Recordings) -> None:
    shown = recorded.shown()
    for name, found in recorded.ours().items():
        if found.job.state is JobState.RUNNING and not found.completing:
            other = shown[found.job.job_id]
            assert found.job.start == int(other["StartTime"]), name
            end = found.job.start + UNLIMITED if other["EndTime"] == "Unknown" else int(other["EndTime"])
            assert found.job.end == end, name


def test_how_jobs_ended(recorded: Recordings) -> None:
    ours = recorded.ours()
    ended = {name: (found.job.state.name, found.job.exit_code) for name, found in ours.items()}
    assert ended["completed"] == ("COMPLETED", 0)
    assert ended["failed"] == ("FAILED", 3)
    assert ended["killed-by-signal"] == ("FAILED", 128 + 9)
    assert ended["timeout"][0] == "TIMEOUT"
    assert ended["cancelled-running"][0] == ended["cancelled-pending"][0] == "CANCELLED"
    assert ended["node-fail"][0] == "NODE_FAIL"
    assert ended["deadline"][0] == "DEADLINE"
    assert ours["cancelled-pending"].job.start == ABSENT < ours["cancelled-running"].job.start
    for name in ("completed", "failed", "timeout", "node-fail"):
        job = ours[name].job
        assert job.submit <= job.start < job.end, name


def test_a_requeued_job_pends_and_a_completing_one_still_holds_its_nodes(recorded: Recordings) -> None:
    ours = recorded.ours()
    assert ours["requeued"].job.state is JobState.PENDING
    assert ours["requeued"].job.start == ABSENT
    completing = ours["completing"]
    assert (completing.completing, completing.job.state) == (True, JobState.RUNNING)
    assert completing.job.job_id in recorded.queue().running.job_id


def test_who_is_held_and_who_cannot_start(recorded: Recordings) -> None:
    ours = recorded.ours()
    assert {name for name, found in ours.items() if found.job.held} == {"held-by-user", "held-link"}
    pending = recorded.queue().pending
    never = set(pending.job_id[pending.eligible == NEVER].tolist())
    barred = ("held-by-user", "held-by-admin", "held-link", "dependency", "dependencies", "dependency-never")
    assert {recorded.ids[name] for name in (*barred, "singleton")} <= never
    assert not {recorded.ids[name] for name in ("resources", "priority", "begin-time", "limit-jobs")} & never


def test_only_jobs_with_a_plan_have_an_expected_start(recorded: Recordings) -> None:
    ours = recorded.ours()
    assert ours["resources"].job.expected_start > ours["resources"].job.submit
    for name in ("begin-time", "held-by-user", "dependency"):
        assert ours[name].job.expected_start == ABSENT, name


def test_arrays_count_each_waiting_task(recorded: Recordings) -> None:
    queue = recorded.queue()
    pending = Counter(queue.pending.job_id.tolist())
    assert pending[recorded.ids["array-pending"]] == 100
    assert pending[recorded.ids["running-array"]] == 3
    running = set(queue.running.job_id.tolist())
    assert len(running) == len(queue.running)


def test_only_tagged_jobs_are_links(recorded: Recordings) -> None:
    queue = queuetext.read_queue(recorded.squeue(), recorded.mark)
    assert {found.job.tag: found.job.job_id for found in queue.ours} == {
        tag: recorded.ids[name] for name, tag in LINK_TAGS.items()
    }


def test_what_users_write_comes_through(recorded: Recordings) -> None:
    ours = recorded.ours()
    assert ours["name-with-newline"].job.name == "two\nlines"
    assert ours["name-unicode"].job.name == "größe→日本 🚀"
    assert ours["name-with-marks"].job.tag == "x | y; z"
    assert len(ours["name-long"].job.tag) == 300
    assert ours["name-empty"].job.name == ""


def test_columns_are_in_order(recorded: Recordings) -> None:
    queue = recorded.queue()
    assert (queue.pending.priority[:-1] >= queue.pending.priority[1:]).all()
    ends = queue.running.start + queue.running.limit
    assert (ends[:-1] <= ends[1:]).all()
    by_id = {found.job.job_id: found.job for found in queue.ours}
    for columns in (queue.pending, queue.running):
        for k, job_id in enumerate(columns.job_id.tolist()):
            job = by_id.get(JobId(job_id))
            if job is not None:
                assert queue.users[columns.user[k]] == job.user
                assert queue.partitions[columns.partition[k]] == job.partition.partition(",")[0]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_an_answer_that_is_cut_off_is_never_read(recorded: Recordings, share: float) -> None:
    text = recorded.squeue()
    cut = text[: int(len(text) * share)]
    if not cut.endswith(f"{recorded.mark}\n"):
        with pytest.raises(queuetext.BadSpelling):
            queuetext.read_queue(cut, recorded.mark)


# sinfo


def test_partitions_count_the_nodes_that_scontrol_lists(recorded: Recordings) -> None:
    nodes = re.findall(
        r"^NodeName=\S+ .* State=(\S+) .* Partitions=(\S+)",
        recorded.text("scontrol.nodes-oneline.epoch.txt"),
        re.M,
    )
    total = Counter(name for _, partitions in nodes for name in partitions.split(","))
    found, _ = node_text.read_partitions(recorded.text("sinfo.mirage.txt"), recorded.mark)
    assert {p.name: p.total for p in found} == dict(total)
    busy = Counter(
        name
        for state, names in nodes
        for name in names.split(",")
        if state.startswith(("ALLOC", "MIX")) or "COMPLETING" in state
    )
    assert {p.name: p.allocated for p in found} == {name: busy[name] for name in total}
    for p in found:
        assert p.idle + p.allocated + p.down == p.total


# sacct


def fates(recorded: Recordings) -> dict[JobId, Job]:
    runs, unreadable = accounting.read_runs(recorded.text("sacct.mirage-fate.epoch.txt"), recorded.mark)
    assert not unreadable
    return {job.job_id: job for job in runs}


def test_accounting_tells_the_same_ends_as_the_queue(recorded: Recordings) -> None:
    found = fates(recorded)
    for name in ("completed", "failed", "killed-by-signal", "timeout", "cancelled-running"):
        queued, told = recorded.ours()[name].job, found[recorded.ids[name]]
        assert (told.state, told.user, told.partition) == (queued.state, queued.user, queued.partition), name
        assert (told.submit, told.start, told.end) == (queued.submit, queued.start, queued.end), name
        assert (told.nodes, told.limit) == (queued.nodes, queued.limit), name
        if queued.state is JobState.FAILED:
            assert told.exit_code == queued.exit_code, name


def test_who_asks_for_all_jobs_is_told_the_same_of_those_that_were_eligible(recorded: Recordings) -> None:
    """sacct does not list by time what never was: jobs held, or ended before their dependency was met."""
    runs, _ = accounting.read_runs(recorded.text("sacct.mirage-recent.epoch.txt"), recorded.mark)
    everybody, named = {job.job_id: job for job in runs}, fates(recorded)
    assert everybody.items() <= named.items()
    silent = {name for name, job_id in recorded.ids.items() if job_id in named.keys() - everybody.keys()}
    assert {"cancelled-pending", "held-by-user", "dependency", "reservation"} <= silent
    assert all(named[recorded.ids[name]].start == ABSENT for name in silent)


# What Slurm says


def said(recorded: Recordings, name: str) -> str:
    command = recorded.commands[name]
    assert isinstance(command["stderr"], str)
    return command["stderr"]


@pytest.mark.parametrize(
    ("recording", "reason", "permanent"),
    [
        ("account", "InvalidAccount", True),
        ("user", "InvalidAccount", True),
        ("gres", "BadConstraints", True),
        ("limit", "PartitionTimeLimit", True),
        ("nodes", "PartitionNodeLimit", True),
        ("partition", "PartitionInvalid", True),
        ("qos", "InvalidQOS", True),
        ("reservation", "ReservationInvalid", False),
        ("submit-limit", "AssocMaxSubmitJobLimit", False),
    ],
)
def test_refusals_have_one_word(recorded: Recordings, recording: str, reason: str, permanent: bool) -> None:
    error = error_messages.refusal(said(recorded, f"refused.{recording}.txt"), "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert error.reason == reason
    assert is_permanent(reason) == permanent
    assert "sbatch" not in str(error)


@pytest.mark.parametrize(
    ("recording", "error"),
    [
        ("ended-job.hold", UnknownJob),
        ("ended-job.update", UnknownJob),
        ("unknown-job.hold", UnknownJob),
        ("unknown-job.squeue", UnknownJob),
        ("unknown-job.scontrol", UnknownJob),
        ("foreign-job.release", NotPermitted),
        ("foreign-job.scancel", NotPermitted),
        ("foreign-job.update", NotPermitted),
        ("own-job.nice-below-zero", NotPermitted),
    ],
)
def test_acts_refused_say_what_to_do(recorded: Recordings, recording: str, error: type[Exception]) -> None:
    assert type(error_messages.refused_act(said(recorded, f"{recording}.txt"), "it")) is error


@pytest.mark.parametrize(
    ("text", "permanent"),
    [
        ("Invalid node name specified", True),
        ("Invalid feature specification", True),
        ("Memory required by task is not available", True),
        ("Pathname of a file, directory or other parameter too long", True),
        ("AssocMaxWallDurationPerJobLimit: Job violates accounting/QOS policy", True),
        ("QOSMaxGRESPerJob: Job violates accounting/QOS policy", True),
        ("QOSMinCpuNotSatisfied: Job violates accounting/QOS policy", True),
        ("QOSMaxSubmitJobPerUserLimit: Job violates accounting/QOS policy", False),
        ("AssocGrpSubmitJobsLimit: Job violates accounting/QOS policy", False),
        ("Required node not available (down, drained or reserved)", False),
        ("Required partition not available (inactive or drain)", False),
        ("Job dependency problem", False),
        ("System submissions disabled, maintenance", False),
        ("The moon is too full", False),
    ],
)
def test_rejections_that_pass_are_told_from_those_that_stay(text: str, permanent: bool) -> None:
    error = error_messages.refusal(f"sbatch: error: Batch job submission failed: {text}", "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert is_permanent(error.reason) == permanent


def test_job_ids_of_submissions(recorded: Recordings) -> None:
    assert sbatch.read_job_id(recorded.text("submitted.parsable.txt")) > 0
    with pytest.raises(queuetext.BadSpelling):
        sbatch.read_job_id(recorded.text("submitted.parsable.txt").rstrip("\n"))


def test_planned_starts(recorded: Recordings) -> None:
    text = said(recorded, "test-only.epoch.txt")
    assert str(sbatch.read_planned_start(text)) in text
    assert sbatch.read_planned_start("") == ABSENT


@pytest.mark.parametrize(
    "text",
    [
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying.\n",
        "sbatch: error: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed\n",
        "/usr/bin/sbatch: error while loading shared libraries: libslurmfull.so: cannot open\n",
        "",
        "Segmentation fault\n",
    ],
)
def test_no_answer_is_no_refusal(text: str) -> None:
    assert isinstance(error_messages.refusal(text, "sbatch"), ClusterUnavailable)


def test_an_unheard_of_refusal_is_one(recorded: Recordings) -> None:
    error = error_messages.refusal("sbatch: error: Batch job submission failed: The moon is too full\n", "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert (error.reason, "The moon is too full" in str(error)) == ("Refused", True)
    assert CELL not in str(error)
