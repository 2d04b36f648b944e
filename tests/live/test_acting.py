"""Acting in users' names on a real Slurm: agents, sudo, tokens, and held links that an Operator releases."""

from __future__ import annotations

import contextlib
import pwd
import re
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from acting_modes import DAEMON, MODES, STRANGER, commands, of_agents, of_sudo, sudo_program
from backends.contract import HOUR, Contract, Doing
from live_world import TestbedWorld

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.operator import OperatorActuator, ReleaseCluster
from mirage.domain.chain import Chain, ChainId
from mirage.domain.errors import ClusterUnavailable, JobBlocked, NotPermitted
from mirage.domain.job import ABSENT, JobChange, JobId, JobState, SignalReach
from mirage.domain.link import NO_JOB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_testbed import Testbed

    from mirage.domain.job import Job, JobRequest

TRAP = "must-not-be-seen"


@pytest.fixture
def folder(privileged_testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that every user can look into; the test's own environment holds secrets."""
    monkeypatch.setenv("SLURM_JWT", TRAP)
    monkeypatch.setenv("MIRAGE_STORE__URL", TRAP)
    path = privileged_testbed.directory / "acting"
    path.mkdir()
    yield path
    shutil.rmtree(path)


class ActingWorld(TestbedWorld):
    """Seen by the daemon, acted on in its owner's name."""

    __test__ = False

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        super().__init__(testbed)
        self.facts = replace(self.facts, other_user=STRANGER)
        self.cluster = CliCluster(commands(testbed, DAEMON, folder), self)
        self._folder = folder

    def writable_by(self, user: str) -> Path:
        """A directory for the user's jobs to write to.

        Homes are shared with every other testbed of this machine."""
        path = self._folder / f"written-by-{user}"
        path.mkdir()
        shutil.chown(path, user)
        return path

    def request_of(self, user: str, text: str) -> JobRequest:
        """A job of ``user`` that runs this script; its environment holds a secret."""
        request = self.request(user=user)
        assert request.batch is not None
        home = pwd.getpwnam(user).pw_dir
        environment = (("PATH", "/usr/bin:/bin"), ("HOME", home), ("SLURM_JWT", TRAP), ("MINE", "kept"))
        batch = replace(request.batch, text=f"#!/bin/sh\n{text}\n", environment=environment, directory=home)
        return replace(request, batch=batch)


@pytest.fixture(params=list(MODES))
def world(request: pytest.FixtureRequest, privileged_testbed: Testbed, folder: Path) -> Iterator[ActingWorld]:
    with contextlib.ExitStack() as stack:
        world = ActingWorld(privileged_testbed, folder)
        world.actuator = MODES[request.param](privileged_testbed, folder, stack)
        world.facts = replace(world.facts, signals=request.param != "token")
        yield world


class TestActing:
    """The part of the contract about acting."""

    test_seen = Contract.test_a_submission_is_seen_at_once_as_it_was_asked_for
    test_pending_cancelled = Contract.test_a_pending_job_is_cancelled
    test_running_cancelled = Contract.test_a_running_job_is_cancelled
    test_ended_cancelled = Contract.test_cancelling_what_has_ended_does_nothing
    test_unknown = Contract.test_unknown_jobs_are_said_to_be
    test_others = Contract.test_others_jobs_are_not_touched
    test_released = Contract.test_held_until_released
    test_nice = Contract.test_nice_goes_up_and_down
    test_changed_too_late = Contract.test_what_runs_or_has_ended_cannot_be_changed
    test_signalled = Contract.test_a_signal_reaches_the_batch_script_unless_it_is_for_the_steps
    test_signalled_too_early = Contract.test_only_running_jobs_can_be_signalled
    test_unknown_account = Contract.test_unknown_accounts_are_refused


def test_each_user_has_jobs_of_their_own_and_no_secret_in_them(world: ActingWorld) -> None:
    for user in ("alice", "bob"):
        told = world.writable_by(user) / "told"
        request = world.request_of(user, f"{{ id -un; env; }} >{told}")
        job_id = world.actuator.submit(request)
        assert world.until(request, JobState.COMPLETED).job_id == job_id
        assert world.job(request).user == user
        name, *environment = told.read_text().splitlines()
        assert name == user
        assert "MINE=kept" in environment
        assert not any(TRAP in line for line in environment)
        assert not any(line.startswith(("SLURM_JWT", "SUDO_", "MIRAGE_")) for line in environment)
        assert world.testbed.token(user)[:20] not in "\n".join(environment), "the head of every token"


def test_no_user_reaches_anothers_links(world: ActingWorld) -> None:
    request = replace(world.request_of("bob", "sleep infinity"), held=True)
    job_id = world.actuator.submit(request)
    with pytest.raises(NotPermitted):
        world.actuator.cancel(job_id, "alice")
    with pytest.raises(NotPermitted):
        world.actuator.update(job_id, "alice", JobChange(held=False))
    assert world.job(request).held
    world.actuator.update(job_id, "bob", JobChange(held=False))
    world.until(request, JobState.RUNNING)
    with pytest.raises(NotPermitted):
        world.actuator.signal(job_id, "alice", "KILL", reach=SignalReach.ALL)
    assert world.job(request).state is JobState.RUNNING
    with pytest.raises(NotPermitted, match=STRANGER):
        world.actuator.submit(world.request_of(STRANGER, "true"))


def test_a_users_other_jobs_are_out_of_reach(privileged_testbed: Testbed, folder: Path) -> None:
    options = ("--parsable", "-H", "-t10", "-pcpu", "-o/dev/null", "--wrap=true", "--comment=my own")
    job_id = JobId(int(privileged_testbed.run("alice", ["sbatch", *options]).stdout))
    with contextlib.ExitStack() as stack:
        for mode in (of_agents, of_sudo):
            actuator = mode(privileged_testbed, folder, stack)
            with pytest.raises(NotPermitted, match=f"job {job_id} is not a link of alice"):
                actuator.cancel(job_id, "alice")
            with pytest.raises(NotPermitted, match=f"job {job_id} is not a link of alice"):
                actuator.update(job_id, "alice", JobChange(nice=7))


def test_sudoers_allow_the_helper_and_nothing_else(privileged_testbed: Testbed, folder: Path) -> None:
    sudo, helper = sudo_program(privileged_testbed, folder), str(folder / "mirage-act")
    allowed = subprocess.run([sudo, "-n", "-u", "alice", helper], input=b"", capture_output=True, check=False)
    assert allowed.stdout.startswith(b"mirage-act 1\n")
    for wish in (
        ["-u", "root", helper],
        ["-u", STRANGER, helper],
        ["-u", "alice", helper, "--help"],
        ["-u", "alice", "/bin/sh", "-c", helper],
        ["-u", "alice", "PYTHONPATH=/tmp", helper],
        ["-E", "-u", "alice", helper],
    ):
        refused = subprocess.run([sudo, "-n", *wish], input=b"", capture_output=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, b""), wish


# Held links


class Released(ActingWorld):
    """A chain of alice's whose links wait, held."""

    __test__ = False

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        super().__init__(testbed, folder)
        self.owner = CliActuator(commands(testbed, "alice", folder), "alice")
        operator = OperatorActuator(commands(testbed, DAEMON, folder))
        self.cluster = self.actuator = ReleaseCluster(self.cluster, operator)
        name = ChainId(self.tag().split(":")[1])
        self.chain = Chain(name, "svc", "alice", self.request(Doing(on_usr1=7)))

    def link(self, index: int) -> JobRequest:
        return self.chain.link_request(index)

    def occupy(self) -> None:
        """A job of the owner's on all nodes of the partition."""
        request = self.request(nodes=self.facts.nodes)
        self.owner.submit(request)
        self.until(request, JobState.RUNNING)

    def stock(self, *indices: int) -> list[JobId]:
        """Submit like ``mirage submit --held-links``: by the user."""
        return [self.owner.submit(replace(self.link(index), held=True)) for index in indices]

    def ask_for(self, request: JobRequest, tries: int = 50) -> JobId:
        """Have a link released; right after its submission Slurm may ask to try again."""
        for _ in range(tries):
            with contextlib.suppress(ClusterUnavailable):
                return self.actuator.submit(request)
            self.pass_time()
        return self.actuator.submit(request)

    def seen(self, index: int, job_id: JobId) -> Job | None:
        tag = self.chain.tag(index)
        return self.cluster.snapshot(expected={tag: job_id}).links.get(tag)


@pytest.fixture
def released(privileged_testbed: Testbed, folder: Path) -> Released:
    return Released(privileged_testbed, folder)


def test_held_links_are_let_go_one_at_a_time(released: Released) -> None:
    first, second = released.stock(1, 2)
    assert not {released.chain.tag(index) for index in (1, 2)} & released.cluster.snapshot().links.keys()
    assert {first, second} <= {job.job_id for job in released.cluster.snapshot().stock or ()}
    assert released.ask_for(released.link(1)) == first
    assert released.seen(1, NO_JOB) is not None
    running = released.until(released.link(1), JobState.RUNNING)
    assert (running.job_id, running.user) == (first, "alice")
    assert released.seen(2, NO_JOB) is None
    with pytest.raises(NotPermitted, match="no held job"):
        released.actuator.submit(released.link(3))


def test_an_operator_steers_and_cancels_links(released: Released) -> None:
    released.occupy()
    first, second = released.stock(1, 2)
    released.cluster.snapshot()
    released.ask_for(replace(released.link(1), nice=40))
    job = released.seen(1, first)
    assert job is not None
    assert (job.held, job.nice) == (False, 40)
    released.actuator.update(first, "alice", JobChange(held=True, nice=9))
    job = released.seen(1, first)
    assert job is not None, "held by the steering, it is a link all the same"
    assert (job.held, job.nice, job.reason) == (True, 9, "JobHeldUser")
    released.owner.update(first, "alice", JobChange(held=False))
    job = released.seen(1, first)
    assert job is not None, "an owner can release what the steering holds"
    assert not job.held
    released.actuator.cancel(second, "alice")
    assert second not in {job.job_id for job in released.cluster.snapshot().stock or ()}
    released.actuator.cancel(first, "alice")
    job = released.seen(1, first)
    assert job is not None, "it was asked for"
    assert (job.state, job.start) == (JobState.CANCELLED, ABSENT)
    assert released.seen(1, NO_JOB) is not None, "also where its id was not stored"


def test_an_operator_signals_a_running_link(released: Released) -> None:
    (first,) = released.stock(1)
    released.cluster.snapshot()
    released.ask_for(released.link(1))
    job = released.until(released.link(1), JobState.RUNNING)
    while released.now() < job.start + HOUR // 30:  # the shell must have set its trap
        released.pass_time()
    released.actuator.signal(first, "alice", "USR1", reach=SignalReach.BATCH)
    assert released.until(released.link(1), JobState.FAILED).exit_code == 7


def test_an_administrators_hold_stands(released: Released) -> None:
    (first,) = released.stock(1)
    released.testbed.ask("scontrol", "hold", str(first))
    assert released.seen(1, NO_JOB) is None
    with pytest.raises(NotPermitted, match="an administrator holds"):
        released.actuator.submit(released.link(1))
    assert str(first) in released.testbed.queue()


def test_no_right_of_the_operators_reaches_a_users_job(released: Released) -> None:
    """The daemon's account does not do for an owner what Slurm denies to that owner."""
    (first,) = released.stock(1)
    released.cluster.snapshot()
    testbed = released.testbed
    denied = testbed.run("alice", ["scontrol", "update", f"JobId={first}", "Nice=-5"], check=False)
    assert "denied" in denied.stdout + denied.stderr
    with pytest.raises(NotPermitted):
        released.actuator.update(first, "alice", JobChange(nice=-5))
    released.ask_for(replace(released.link(1), nice=-5, held=True))
    job = released.seen(1, first)
    assert job is not None
    assert job.nice == 0
    testbed.ask("scontrol", "hold", str(first))
    for held in (True, False):
        with pytest.raises(NotPermitted):
            released.actuator.update(first, "alice", JobChange(held=held))
    shown = testbed.ask("squeue", "--noheader", "--format=%r", f"--jobs={first}")
    assert shown.strip() == "JobHeldAdmin"


def test_an_administrators_priority_stands(released: Released) -> None:
    released.occupy()
    (first,) = released.stock(1)
    released.cluster.snapshot()
    released.ask_for(released.link(1))
    released.testbed.ask("scontrol", "update", f"JobId={first}", "Priority=7")
    released.actuator.update(first, "alice", JobChange(held=False, nice=40))
    shown = released.testbed.ask("squeue", "--noheader", "--format=%Q", f"--jobs={first}")
    assert shown.strip() == "7"


def test_without_being_operator_nothing_is_let_go(privileged_testbed: Testbed, folder: Path) -> None:
    released = Released(privileged_testbed, folder)
    released.stock(1)
    as_bob = commands(privileged_testbed, "bob", folder)
    release = ReleaseCluster(CliCluster(as_bob, released), OperatorActuator(as_bob))
    release.snapshot()

    def is_denied() -> bool:
        try:
            release.submit(released.link(1))
        except JobBlocked:  # slurmdbd does not know the job yet
            return False
        except NotPermitted as error:
            return re.search(r"Access/permission denied|Invalid user id", str(error)) is not None
        raise AssertionError("released")

    privileged_testbed.wait_until(is_denied, 60, "the rejection")
