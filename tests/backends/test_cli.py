"""The cli backend on fake executables: the contract of every adapter, and everything that can go wrong."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from backends.contract import HOUR, Contract, Doing, Facts, World
from fake_slurm.fake import CPU, FakeSlurm, Fault

from mirage.backends.cli import CliCluster, past_jobs
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import BatchScript, JobChange, JobId, JobRequest, JobState
from mirage.domain.link import NO_JOB
from mirage.slurm.error_messages import is_permanent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FakeWorld(World):
    facts = Facts(
        "alice",
        "cpu",
        len(CPU),
        48 * HOUR,
        gres=("gpu:v100", 4),
        gres_partition="v100",
        other_user="bob",
        accounts=False,
        signals=False,
    )

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        commands = CommandRunner(slurm.environment("alice"))
        self.cluster = CliCluster(commands, slurm)
        self.actuator = self.estimator = CliActuator(commands, "alice")

    def arrange(self, request: JobRequest, doing: Doing) -> JobRequest:
        runs = "" if doing.runs is None else f"#FAKE runs={doing.runs} exit={doing.exit_code}\n"
        return replace(request, batch=BatchScript(f"#!/bin/sh\n{runs}sleep infinity\n"))

    def pass_time(self) -> None:
        self.slurm.advance(30)

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        self.slurm.down = True
        yield
        self.slurm.down = False

    def foreign_job(self) -> JobId:
        commands = CommandRunner(self.slurm.environment("bob"))
        return CliActuator(commands, "bob").submit(self.request(user="bob", held=True))

    def forget(self, job_id: JobId) -> None:
        self.slurm.advance(self.slurm.min_job_age + 1)


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    with FakeSlurm(tmp_path / "slurm") as running:
        yield running


class TestCliOnFakes(Contract):
    @pytest.fixture
    def world(self, slurm: FakeSlurm) -> World:
        return FakeWorld(slurm)


@pytest.fixture
def world(slurm: FakeSlurm) -> FakeWorld:
    return FakeWorld(slurm)


def impatient(world: FakeWorld) -> FakeWorld:
    """With time limits of half a second, for commands that never end."""
    commands = CommandRunner(world.slurm.environment("alice"), timeout=0.5)
    world.cluster = CliCluster(commands, world.slurm)
    world.actuator = CliActuator(commands, "alice")
    return world


# Bad answers


@pytest.mark.parametrize("command", ["squeue", "sinfo"])
@pytest.mark.parametrize("kind", [Fault.CUT_OFF, Fault.GARBAGE, Fault.EMPTY, Fault.UNREACHABLE, Fault.KILLED])
def test_a_bad_answer_is_no_snapshot(world: FakeWorld, command: str, kind: Fault) -> None:
    request, job_id = world.submit()
    world.slurm.fault(command, kind)
    with pytest.raises(ClusterUnavailable, match=command):
        world.cluster.snapshot()
    assert world.job(request).job_id == job_id


@pytest.mark.parametrize("command", ["squeue", "sinfo"])
def test_a_command_that_hangs_is_given_up(world: FakeWorld, command: str) -> None:
    impatient(world).slurm.fault(command, Fault.HANG)
    with pytest.raises(ClusterUnavailable, match=rf"{command}: no answer within 0.5 s"):
        world.cluster.snapshot()
    assert world.slurm.count("squeue") == 1


def test_a_slow_answer_is_waited_for(world: FakeWorld) -> None:
    world.slurm.fault("squeue", Fault.SLOW)
    assert world.cluster.snapshot().time == world.slurm.now()


def test_without_slurm_the_error_says_where_it_was_looked_for(slurm: FakeSlurm, tmp_path: Path) -> None:
    cluster = CliCluster(CommandRunner({"PATH": str(tmp_path)}), slurm)
    with pytest.raises(ClusterUnavailable, match=rf"squeue: not found in PATH={tmp_path}"):
        cluster.snapshot()


# Submissions whose answer is lost, or is a no


@pytest.mark.parametrize("kind", [Fault.LOSE_ANSWER, Fault.LOSE_ANSWER_AND_HANG, Fault.CUT_OFF])
def test_a_submission_whose_answer_is_lost_is_found_by_its_tag(world: FakeWorld, kind: Fault) -> None:
    request = impatient(world).request()
    world.slurm.fault("sbatch", kind)
    with pytest.raises(ClusterUnavailable, match="sbatch"):
        world.actuator.submit(request)
    found = world.cluster.snapshot(expected={request.tag: NO_JOB}).links[request.tag]
    assert [found.job_id] == [job.job_id for job in world.slurm.jobs()]


@pytest.mark.parametrize("kind", [Fault.HANG, Fault.KILLED, Fault.UNREACHABLE])
def test_a_submission_that_never_arrived_leaves_nothing(world: FakeWorld, kind: Fault) -> None:
    request = impatient(world).request()
    world.slurm.fault("sbatch", kind)
    with pytest.raises(ClusterUnavailable):
        world.actuator.submit(request)
    assert world.cluster.snapshot(expected={request.tag: NO_JOB}).links == {}


def test_a_refused_submission_says_why(world: FakeWorld) -> None:
    world.slurm.fault("sbatch", Fault.REFUSE)
    with pytest.raises(SubmissionRejected, match="Invalid account or account/partition combination") as refused:
        world.actuator.submit(world.request())
    assert refused.value.reason == "InvalidAccount"


def test_nothing_is_submitted_without_a_script(world: FakeWorld) -> None:
    with pytest.raises(SubmissionRejected, match="no batch script"):
        world.actuator.submit(replace(world.request(), batch=None))


def test_text_that_no_command_line_can_hold_is_refused(world: FakeWorld) -> None:
    with pytest.raises(SubmissionRejected, match="NUL"):
        world.actuator.submit(replace(world.request(), name="a\0b"))


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "#!/bin/sh\n\ud800"},
        {"environment": (("A", "\ud800"),)},
        {"arguments": ("\ud800",)},
        {"arguments": ("\0",)},
        {"arguments": ("x" * 131_072,)},
        {"environment": (("A", "x" * 131_072),)},
        {"environment": tuple((f"A{number}", "x" * 100_000) for number in range(100))},
        {"environment": (("A=B", "1"),)},
        {"options": ("--mail-user=" + "x" * 131_072,)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_submission_that_no_process_can_make_is_rejected_for_good(
    world: FakeWorld, changes: dict[str, Any]
) -> None:
    batch = replace(BatchScript("#!/bin/sh\n"), **changes)
    with pytest.raises(SubmissionRejected) as rejected:
        world.actuator.submit(replace(world.request(), batch=batch))
    assert is_permanent(rejected.value.reason)
    assert not world.slurm.batches


def test_submission_hands_script_and_arguments_to_sbatch(world: FakeWorld) -> None:
    text = "#!/bin/bash\n# \udcff\n"
    batch = BatchScript(text, directory="/", arguments=("a b", "-p", "", "\udcff"))
    job_id = world.actuator.submit(replace(world.request(), batch=batch))
    call = world.slurm.batches[job_id]
    assert call.stdin == text
    assert call.arguments[-5:] == ["/dev/fd/3", "a b", "-p", "", "\udcff"]


def test_submission_passes_umask_limits_and_functions(world: FakeWorld) -> None:
    function = ("BASH_FUNC_module%%", "() {  :\n}")
    batch = BatchScript(
        "#!/bin/sh\n", environment=(function,), directory="/", umask=0o077, resource_limits=(("NOFILE", 512),)
    )
    job_id = world.actuator.submit(replace(world.request(), batch=batch))
    call = world.slurm.batches[job_id]
    passed = {function, ("SLURM_UMASK", "0077"), ("SLURM_RLIMIT_NOFILE", "512")}
    assert passed <= set(call.environment.items())
    assert "--propagate=NONE" in call.arguments
    assert not [word for word in call.arguments if "requeue" in word]


# What the job gets


def test_the_job_gets_the_users_environment_and_no_secret(world: FakeWorld) -> None:
    captured = (
        ("PATH", "/opt/tools:/usr/bin"),
        ("HOME", "/home/alice"),
        ("MIRAGE_CHAIN_ID", "svc"),
        ("MIRAGE_STORE__URL", "postgresql://mirage:hidden@db/mirage"),
        ("MIRAGE_API_TOKEN", "hidden"),
        ("SLURM_JWT", "hidden"),
        ("SLURM_CONF", "/somewhere/else/slurm.conf"),
        ("SBATCH_ACCOUNT", "physics"),
        ("SBATCH_WAIT", "1"),
        ("ODD", "not \udcff UTF-8"),
    )
    request = world.request()
    assert request.batch is not None
    batch = replace(request.batch, environment=captured, directory="/scratch/alice", options=("--mincpus=2",))
    job_id = world.actuator.submit(replace(request, batch=batch))
    call = world.slurm.batches[job_id]
    assert call.stdin == batch.text
    assert {name: value for name, value in call.environment.items() if name not in ("LC_CTYPE", "SLURM_CONF")} == {
        "PATH": "/opt/tools:/usr/bin",
        "HOME": "/home/alice",
        "MIRAGE_CHAIN_ID": "svc",
        "SBATCH_ACCOUNT": "physics",
        "ODD": "not \udcff UTF-8",
    }
    assert call.environment["SLURM_CONF"] == world.slurm.environment("alice")["SLURM_CONF"]
    assert {"--chdir=/scratch/alice", "--mincpus=2", f"--comment={request.tag}"} <= set(call.arguments)


# Links that the queue does not show


def ended(world: FakeWorld, exit_code: int = 0) -> tuple[str, JobId]:
    """A link that has ended and that the controller has forgotten, after a snapshot that saw it run."""
    request, job_id = world.submit(Doing(runs=600, exit_code=exit_code))
    world.until(request, JobState.RUNNING)
    world.slurm.advance(600 + world.slurm.min_job_age + 100)
    return request.tag, job_id


def test_what_runs_stays_as_it_was_seen_while_accounting_is_down(world: FakeWorld) -> None:
    tag, job_id = ended(world, 3)
    world.slurm.accounting_down = True
    for _ in range(3):
        assert world.cluster.snapshot(expected={tag: job_id}).links[tag].state is JobState.RUNNING
        world.slurm.advance(2 * HOUR)
    world.slurm.accounting_down = False
    job = world.cluster.snapshot(expected={tag: job_id}).links[tag]
    assert (job.state, job.exit_code, job.tag) == (JobState.FAILED, 3, tag)


def test_the_end_of_a_link_never_seen_is_unaccounted_while_accounting_is_away(world: FakeWorld) -> None:
    tag, job_id = ended(world)
    other, _ = world.submit()
    world.slurm.accounting_down = True
    fresh = CliCluster(CommandRunner(world.slurm.environment("alice")), world.slurm)
    snapshot = fresh.snapshot(expected={tag: job_id})
    assert (snapshot.links.keys(), snapshot.unaccounted) == ({other.tag}, {tag})
    world.slurm.advance(100 * HOUR)
    snapshot = fresh.snapshot(expected={tag: job_id})
    assert (snapshot.links.keys() & {tag}, snapshot.unaccounted) == (set(), {tag})
    world.slurm.accounting_down = False
    snapshot = fresh.snapshot(expected={tag: job_id})
    assert (snapshot.links[tag].state.finished, snapshot.unaccounted) == (True, frozenset())


def test_without_accounting_what_the_controller_has_forgotten_is_gone(world: FakeWorld) -> None:
    world.slurm.accounting = False
    tag, job_id = ended(world)
    assert tag not in world.cluster.snapshot(expected={tag: job_id}).links


def test_a_link_whose_id_was_never_learnt_is_found_after_its_end(world: FakeWorld) -> None:
    tag, job_id = ended(world)
    assert world.cluster.snapshot(expected={tag: NO_JOB}).links[tag].job_id == job_id


def test_job_that_sacct_rejects_hides_no_other(world: FakeWorld) -> None:
    gone = dict([ended(world), ended(world), ended(world, 3)])
    snapshot = world.cluster.snapshot(expected=gone | {"mirage:liar:1": JobId(-5)})
    assert gone.keys() <= snapshot.links.keys()
    assert snapshot.unaccounted == {"mirage:liar:1"}


def test_list_too_long_for_a_command_is_asked_in_parts(world: FakeWorld) -> None:
    gone = dict([ended(world)])
    many = {f"mirage:many:{k}": JobId(4_000_000_000 + k) for k in range(1, 20_000)}
    assert gone.keys() <= world.cluster.snapshot(expected=gone | many).links.keys()


def test_a_snapshot_asks_three_questions_at_most(world: FakeWorld) -> None:
    gone = dict([ended(world), ended(world), ended(world)])
    never = world.tag()
    world.submit()
    world.slurm.calls.clear()
    snapshot = world.cluster.snapshot(expected=gone | {never: NO_JOB})
    assert gone.keys() <= snapshot.links.keys()
    assert sorted(call.command for call in world.slurm.calls) == ["sacct", "sinfo", "squeue"]
    world.slurm.calls.clear()
    world.cluster.snapshot(queue=False)
    assert [call.command for call in world.slurm.calls] == ["squeue"]


def test_an_edited_comment_does_not_lose_the_link(world: FakeWorld) -> None:
    request, job_id = world.submit()
    world.slurm.set_comment(job_id, "mine, all mine")
    assert world.cluster.snapshot().links == {}
    found = world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag]
    assert (found.job_id, found.tag) == (job_id, request.tag)


def test_of_two_jobs_with_one_tag_the_expected_one_counts(world: FakeWorld) -> None:
    request, first = world.submit()
    second = world.actuator.submit(request)
    for expected in (first, second):
        snapshot = world.cluster.snapshot(expected={request.tag: expected})
        assert snapshot.links[request.tag].job_id == expected
        (rival,) = snapshot.rivals
        assert {snapshot.links[request.tag].job_id, rival.job_id} == {first, second}
    world.actuator.cancel(first, "alice")
    assert world.cluster.snapshot(expected={request.tag: NO_JOB}).links[request.tag].job_id == second


def test_a_job_that_forges_rows_is_one_job(world: FakeWorld) -> None:
    request, job_id = world.submit()
    _, forger = world.submit()
    world.slurm.set_comment(forger, "x\n\x1f" + "\x1f".join(["1"] * 17) + f"\x1f{request.tag}")
    snapshot = world.cluster.snapshot()
    assert snapshot.links[request.tag].job_id == job_id
    shown = [*snapshot.pending.job_id.tolist(), *snapshot.running.job_id.tolist()]
    assert sorted(shown) == [job_id, forger]


def test_a_requeued_link_pends_again(world: FakeWorld) -> None:
    request, job_id = world.submit(nodes=len(CPU))
    world.until(request, JobState.RUNNING)
    world.slurm.node(CPU[0], "down")
    job = world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag]
    assert (job.job_id, job.state, job.start) == (job_id, JobState.PENDING, -1)


def test_whoever_else_asks_is_told_to_become_the_user(world: FakeWorld) -> None:
    with pytest.raises(NotPermitted, match=r"for bob: Mirage runs as alice"):
        world.actuator.update(JobId(1), "bob", JobChange(nice=1))


# History


def test_the_jobs_of_the_past_are_asked_for_at_once(world: FakeWorld) -> None:
    first = world.slurm.now()
    for _ in range(6):
        world.submit(Doing(runs=8 * HOUR), nodes=3)
    world.slurm.advance(60 * HOUR)
    commands = CommandRunner(world.slurm.environment("alice"))
    table = past_jobs(commands, first, world.slurm.now())
    assert world.slurm.count("sacct") == 1
    rows = zip(table.job_id, table.submit, table.start, table.end, table.state, table.limit, strict=True)
    expected = {(j.job_id, j.submit, j.start, j.end, j.state, j.limit) for j in world.slurm.jobs()}
    assert {tuple(int(cell) for cell in row) for row in rows} == expected
    assert set(table.user.decode()) == {"alice"}
    assert table.name.decode() == [job.name for job in world.slurm.jobs()]


def test_history_that_cannot_be_had_is_said(world: FakeWorld) -> None:
    world.slurm.accounting_down = True
    with pytest.raises(ClusterUnavailable, match="sacct: exit 1: Problem talking to the database"):
        past_jobs(CommandRunner(world.slurm.environment("alice")), 0, HOUR)


# A row of squeue that cannot be read


def test_a_row_that_cannot_be_read_is_told_once(
    world: FakeWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, job_id = world.submit()
    known = world.job(request)
    monkeypatch.setattr("fake_slurm.answers._limit", lambda seconds: "how long?")
    for _ in range(3):
        assert world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag] == known
        world.slurm.advance(20 * 60)
    assert caplog.text.count("event=unreadable_rows source=queue rows=1") == 1
