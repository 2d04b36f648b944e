"""The pyslurm backend on objects recorded from pyslurm, against the squeue and sinfo of the same time.

The contract runs on a real pyslurm only where one is installed (tests/live/test_pyslurm_backend.py).
"""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from backends.recorded_squeue import MARK, PENDING, RUNNING, links_seen, links_told, recorded_squeue, seen, told

from mirage.backends import libslurm_records
from mirage.backends.libslurm import Libslurm, LibslurmActuator, LibslurmCluster
from mirage.backends.links_only import JobIdentity
from mirage.domain.errors import (
    ClusterUnavailable,
    ConfigError,
    MissingExtra,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.job import (
    ABSENT,
    NEVER,
    BatchScript,
    JobChange,
    JobId,
    JobRequest,
    JobState,
    SignalReach,
    WarnSignal,
)
from mirage.slurm import node_text
from mirage.slurm.rest.queue import read_queue

ASSETS = Path(__file__).resolve().parents[1] / "assets"
RECORDED = sorted(ASSETS.glob("*/pyslurm"))
REQUEST = JobRequest("link", "alice", 3_601, tag="mirage:c:1", batch=BatchScript("#!/bin/sh\nsleep 1\n"))


SENTENCES = {
    -1: "Unspecified error",
    1800: "Unable to contact slurm controller (connect failure)",
    2002: "Access/permission denied",
    2017: "Invalid job id specified",
    2021: "Job/step already completing or completed",
    2045: "Invalid account or account/partition combination specified",
}


class RPCError(Exception):
    """Takes its text from the number, as pyslurm's does."""

    def __init__(self, errno: int) -> None:
        super().__init__(SENTENCES[errno])
        self.errno = errno


class FakePyslurm:
    """The parts of pyslurm that are used, over recorded objects."""

    RPCError = RPCError

    def __init__(self, objects: dict[str, Any]) -> None:
        self.jobs, self.nodes, self.past = (
            [SimpleNamespace(**fields) for fields in objects[name]] for name in ("jobs", "nodes", "past_jobs")
        )
        self.done: list[Any] = []
        self.trouble: RPCError | None = None
        self.Jobs = SimpleNamespace(load=lambda: self._answer(self.jobs))
        self.Nodes = SimpleNamespace(load=lambda: self._answer(self.nodes))
        self.db = SimpleNamespace(Jobs=SimpleNamespace(load=self._past), JobFilter=SimpleNamespace)
        self.Job = type(
            "Job",
            (),
            {
                "load": staticmethod(self._load),
                "__init__": lambda job, job_id: None,
                "modify": lambda job, wish: self.done.append(wish),
            },
        )

    def _answer(self, found: list[Any]) -> dict[int, Any]:
        if self.trouble:
            raise self.trouble
        return {job.id if hasattr(job, "id") else job.name: job for job in found}

    def _past(self, wish: Any) -> dict[int, Any]:
        ids = getattr(wish, "ids", None)
        return self._answer([job for job in self.past if ids is None or job.id in ids])

    def _load(self, job_id: int) -> Any:
        found = self._answer(self.jobs)
        if job_id not in found:
            raise RPCError(2017)
        return found[job_id]

    def slurm_kill_job(self, job_id: int, number: int, flags: int) -> int:
        if self.trouble:
            raise ValueError(str(self.trouble), self.trouble.errno)
        self.done.append((job_id, number, flags))
        return 0

    def JobSubmitDescription(self, **wishes: Any) -> Any:  # noqa: N802 - pyslurm calls it so
        def submit() -> int:
            if self.trouble:
                raise self.trouble
            self.done.append(wishes | {"script": Path(wishes["script"]).read_text()})
            return 77

        return SimpleNamespace(**wishes, submit=submit)


class Noon:
    def now(self) -> int:
        return 1_795_500_000


@pytest.fixture(params=RECORDED, ids=lambda folder: folder.parent.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def fake(folder: Path) -> FakePyslurm:
    return FakePyslurm(json.loads((folder / "objects.json").read_text()))


@pytest.fixture
def cluster(fake: FakePyslurm) -> LibslurmCluster:
    return LibslurmCluster(Libslurm(fake, (22, 5)), Noon())


@pytest.fixture
def actuator(fake: FakePyslurm) -> LibslurmActuator:
    return LibslurmActuator(Libslurm(fake, (22, 5)), "alice", Noon())


def named(fake: FakePyslurm, name: str) -> JobId:
    return JobId(next(job.id for job in fake.jobs if job.name == name))


def test_the_queue_is_squeues(folder: Path, fake: FakePyslurm) -> None:
    table = recorded_squeue(folder / "squeue.txt")
    queue = read_queue(fake.jobs, libslurm_records.job_record, str)
    assert seen(queue, "pending") == told(table, PENDING)
    assert seen(queue, "running") == told(table, RUNNING)
    assert links_seen(queue) == links_told(table)
    assert (queue.pending.job_id == named(fake, "array-pending")).sum() == 11
    assert (queue.pending.eligible[queue.pending.job_id == named(fake, "dependency")] == NEVER).all()


def test_words_that_pyslurm_cannot_decode_harm_no_snapshot(fake: FakePyslurm, cluster: LibslurmCluster) -> None:
    class Undecodable:
        def __getattr__(self, name: str) -> Any:
            if name in ("name", "comment", "account", "user_name"):
                return b"x\xff".decode()
            return getattr(job, name)

    count = len(cluster.snapshot().pending)
    job = fake.jobs[place := next(k for k, job in enumerate(fake.jobs) if job.state == "PENDING")]
    fake.jobs[place] = Undecodable()
    assert len(cluster.snapshot().pending) == count


def test_odd_record_of_accounting_costs_itself_alone(
    fake: FakePyslurm, cluster: LibslurmCluster, caplog: pytest.LogCaptureFixture
) -> None:
    expected = {"mirage:c:1": JobId(10**6)}
    before = cluster.snapshot(expected=expected)
    assert before.unaccounted == {"mirage:c:1"}
    fake.past.append(SimpleNamespace(**{**vars(fake.past[0]), "id": 10**6, "state": "DREAMING"}))
    assert cluster.snapshot(expected=expected).unaccounted == {"mirage:c:1"}
    assert "source=accounting" in caplog.text


def test_partitions_are_sinfos(folder: Path, cluster: LibslurmCluster) -> None:
    told, _ = node_text.read_partitions((folder / "sinfo.txt").read_text(), MARK)
    assert {part.name: part for part in cluster.snapshot().partitions} == {part.name: part for part in told}


@pytest.mark.parametrize(
    ("name", "state", "exit_code"),
    [
        ("failed", JobState.FAILED, 3),
        ("killed-by-signal", JobState.FAILED, 137),
        ("cancelled-pending", JobState.CANCELLED, 0),
    ],
)
def test_queue_and_accounting_agree_on_an_end(
    fake: FakePyslurm, cluster: LibslurmCluster, name: str, state: JobState, exit_code: int
) -> None:
    job_id = named(fake, name)
    now = cluster.snapshot(expected={"mirage:x:1": job_id}).links["mirage:x:1"]
    assert (now.state, now.exit_code, now.tag) == (state, exit_code, "mirage:x:1")
    fake.jobs = [job for job in fake.jobs if job.id != job_id]
    then = cluster.snapshot(expected={"mirage:x:1": job_id}).links["mirage:x:1"]
    assert (then.state, then.exit_code, then.start, then.end) == (now.state, now.exit_code, now.start, now.end)
    assert (then.start == ABSENT) == (name == "cancelled-pending")


def test_no_answer_is_no_empty_queue(fake: FakePyslurm, cluster: LibslurmCluster) -> None:
    fake.trouble = RPCError(1800)
    with pytest.raises(ClusterUnavailable, match="connect failure"):
        cluster.snapshot()


def test_what_is_submitted(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    text = "#!/bin/sh\n#SBATCH --open-mode=append\n" + "true\n" * 2_000
    batch = BatchScript(text, ("--exclude=a1",), (("PATH", "/bin"), ("SLURM_JWT", "secret")), "/home/alice")
    request = replace(
        REQUEST, nodes=2, cpus_per_node=4, gres_per_node=(("gpu:a100", 4), ("npu", 1)), held=True, batch=batch
    )
    assert actuator.submit(request) == 77
    assert fake.done == [
        {
            "name": "link",
            "nodes": "2-2",
            "ntasks": 2,
            "ntasks_per_node": 1,
            "cpus_per_task": 4,
            "time_limit": 61,
            "priority": 0,
            "gres_per_node": {"gpu:a100": 4, "npu": 1},
            "log_files_open_mode": "append",
            "excluded_nodes": "a1",
            "comment": "mirage:c:1",
            "working_directory": "/home/alice",
            "environment": {
                "PATH": "/bin",
                "SLURM_SUBMIT_DIR": "/home/alice",
                "SLURM_SUBMIT_HOST": socket.gethostname(),
            },
            "script": text,
        }
    ]


def test_a_warning_that_pyslurm_would_forget_is_refused(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    request = replace(REQUEST, warn=WarnSignal("USR1", 60, batch_only=True))
    with pytest.raises(SubmissionRejected, match="--signal"):
        actuator.submit(request)
    LibslurmActuator(Libslurm(fake, (24, 11)), "alice", Noon()).submit(request)
    assert fake.done[-1]["signal"] == "B:10@60"


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (RPCError(2045), SubmissionRejected),
        (RPCError(1800), ClusterUnavailable),
        (RPCError(-1), ClusterUnavailable),
    ],
)
def test_submissions_that_fail(
    fake: FakePyslurm, actuator: LibslurmActuator, trouble: RPCError, error: Any
) -> None:
    fake.trouble = trouble
    with pytest.raises(error):
        actuator.submit(REQUEST)


def test_changes_to_a_pending_job(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    job_id = named(fake, "held-link")
    actuator.update(job_id, "alice", JobChange(held=False, nice=0, begin=0))
    wish = fake.done[-1]
    assert (wish.priority, wish.nice, wish.begin_time) == (0xFFFFFFFF, "0", 1_000_000)
    with pytest.raises(UnknownJob, match="RUNNING"):
        actuator.update(named(fake, "running"), "alice", JobChange(nice=1))
    with pytest.raises(UnknownJob, match="60000000"):
        actuator.update(JobId(60_000_000), "alice", JobChange(nice=1))


def test_signals(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    job_id = named(fake, "running")
    actuator.signal(job_id, "alice", "USR1", reach=SignalReach.BATCH)
    actuator.signal(job_id, "alice", "TERM", reach=SignalReach.ALL)
    actuator.cancel(job_id, "alice")
    assert fake.done == [(job_id, 10, 1), (job_id, 15, 8), (job_id, 9, 0)]
    with pytest.raises(UnknownJob, match="PENDING"):
        actuator.signal(named(fake, "held-link"), "alice", "USR1", reach=SignalReach.BATCH)


def test_cancelling_what_has_ended_is_no_error(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    fake.trouble = RPCError(2021)
    actuator.cancel(JobId(1), "alice")
    fake.trouble = RPCError(2002)
    with pytest.raises(NotPermitted):
        actuator.cancel(JobId(1), "alice")


def test_identity_is_the_jobs_own(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    job = fake.jobs[0]
    job.user_name, job.comment, job.submit_time = "alice", "mirage:c:1", 1_790_000_000
    assert actuator.identify(JobId(job.id), "alice") == JobIdentity("alice", "mirage:c:1", 1_790_000_000)
    with pytest.raises(UnknownJob):
        actuator.identify(JobId(99_999_999), "alice")
    with pytest.raises(NotPermitted):
        actuator.identify(JobId(job.id), "bob")


def test_others_are_not_acted_for(fake: FakePyslurm, actuator: LibslurmActuator) -> None:
    with pytest.raises(NotPermitted, match="bob"):
        actuator.submit(replace(REQUEST, user="bob"))
    assert fake.done == []


def test_import_is_not_tried_without_a_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none.conf"))
    with pytest.raises(ConfigError, match="SLURM_CONF"):
        Libslurm.load()


def test_a_token_in_the_environment_is_not_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setenv("SLURM_JWT", "secret")
    with pytest.raises(ConfigError, match="SLURM_JWT"):
        Libslurm.load()


def test_without_pyslurm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    monkeypatch.setitem(__import__("sys").modules, "pyslurm", None)
    with pytest.raises(MissingExtra, match="pyslurm"):
        Libslurm.load()


@pytest.mark.parametrize(
    ("state", "read"),
    [
        ("IDLE", "IDLE"),
        ("MIXED+DRAIN", "ALLOCATED"),
        ("IDLE+DRAIN", "DOWN"),
        ("DOWN*", "DOWN"),
        ("IDLE+NOT_RESPONDING", "DOWN"),
    ],
)
def test_node_states(state: str, read: str) -> None:
    node = SimpleNamespace(name="n", state=state, partitions=["p"])
    assert libslurm_records.node_record(node)["state"] == [read]
