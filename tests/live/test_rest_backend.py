"""slurmrestd in front of a real Slurm: each version it offers, over TCP with tokens and over a Unix socket."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from backends.contract import HOUR, MINUTE, Contract, Doing, World
from live_world import TestbedWorld

from mirage.backends.rest import RestCluster, RestVersion
from mirage.backends.restactuator import OwnToken, RestActuator, TokenDirectory
from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import ABSENT, BatchScript, JobChange, JobState, SignalReach, WarnSignal
from mirage.domain.link import NO_JOB
from mirage.slurm.rest import versions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_testbed import Testbed

BATCH_SIGNALS_SINCE = 40
EXIT_CODES_SINCE = 40


def offered(testbed: Testbed) -> list[int]:
    request = urllib.request.Request(f"{testbed.rest}/openapi/v3")
    request.add_header("X-SLURM-USER-NAME", testbed.users[0])
    request.add_header("X-SLURM-USER-TOKEN", testbed.token(testbed.users[0]))
    with urllib.request.urlopen(request, timeout=30) as answer:
        names = versions.offered(json.load(answer)["paths"])
    return [number for number in versions.KNOWN if versions.spell(number) in names]


class RestWorld(TestbedWorld):
    def __init__(self, testbed: Testbed, tokens: Path, version: int | None = None) -> None:
        super().__init__(testbed)
        user = self.facts.user
        for file in tokens.iterdir():
            file.unlink()
        (tokens / f"{user}.jwt").write_text(testbed.token(user))
        address = RestAddress.parse(testbed.rest)
        self.client = RestClient(address, Credentials(user, str(tokens / f"{user}.jwt")), timeout=10)
        self.version = RestVersion(version)
        self.number = self.version.of(self.client)
        self.tokens = tokens
        self.cluster = RestCluster(self.client, self, self.version)
        self.actuator = RestActuator(address, TokenDirectory(tokens), self, self.version, timeout=10)


class RestContract(Contract):
    """What no version before v0.0.40 can do is asserted to be reported."""

    @pytest.mark.parametrize("reach", SignalReach)
    def test_a_signal_reaches_the_batch_script_unless_it_is_for_the_steps(  # type: ignore[override]
        self, world: RestWorld, reach: SignalReach
    ) -> None:
        if reach is SignalReach.ALL or world.number >= BATCH_SIGNALS_SINCE:
            super().test_a_signal_reaches_the_batch_script_unless_it_is_for_the_steps(world, reach)
        else:
            self._cannot_signal(world, reach)

    def _cannot_signal(self, world: RestWorld, reach: SignalReach) -> None:
        """It says so, rather than signal all of it."""
        request, job_id = world.submit()
        world.until(request, JobState.RUNNING)
        with pytest.raises(NotPermitted, match=str(job_id)):
            world.actuator.signal(job_id, world.facts.user, "TERM", reach=reach)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    directory = tmp_path / "tokens"
    directory.mkdir(mode=0o700)
    return directory


@pytest.mark.parametrize("place", [0, -1], ids=["newest", "oldest"])
class TestRestOverTcp(RestContract):
    @pytest.fixture
    def world(self, privileged_testbed: Testbed, tokens: Path, place: int) -> World:
        return RestWorld(privileged_testbed, tokens, offered(privileged_testbed)[place])


class TestRestOverASocket(RestContract):
    """With a version between the newest and the oldest, where there is one."""

    @pytest.fixture
    def world(self, privileged_testbed: Testbed, tokens: Path) -> Iterator[World]:
        found = offered(privileged_testbed)
        world = RestWorld(privileged_testbed, tokens, found[len(found) // 2])
        user = world.facts.user
        privileged_testbed.service(f"slurmrestd@{user}", "start")
        address = RestAddress.parse(f"unix:{privileged_testbed.rest_socket(user)}")
        client = RestClient(address, Credentials(user), timeout=10)
        world.cluster = RestCluster(client, world, world.version)
        world.actuator = RestActuator(address, OwnToken(Credentials(user)), world, world.version, timeout=10)
        yield world
        privileged_testbed.service(f"slurmrestd@{user}", "stop")


@pytest.fixture
def world(privileged_testbed: Testbed, tokens: Path) -> RestWorld:
    return RestWorld(privileged_testbed, tokens)


def test_the_newest_version_offered_is_taken(world: RestWorld) -> None:
    assert world.number == offered(world.testbed)[0]


def test_a_token_taken_away_ends_the_permission(world: RestWorld) -> None:
    _, job_id = world.submit(held=True)
    (world.tokens / f"{world.facts.user}.jwt").unlink()
    with pytest.raises(NotPermitted, match=rf"{world.facts.user}\.jwt"):
        world.actuator.cancel(job_id, world.facts.user)
    with pytest.raises(ClusterUnavailable, match=rf"{world.facts.user}\.jwt"):
        world.cluster.snapshot()


def test_a_token_is_read_anew_each_time(world: RestWorld) -> None:
    file = world.tokens / f"{world.facts.user}.jwt"
    good = file.read_text()
    file.write_text("no.good.token")
    with pytest.raises(ClusterUnavailable, match=r"\.jwt"):
        world.cluster.snapshot()
    file.write_text(f"SLURM_JWT={good}\n")
    assert world.cluster.snapshot().partitions


def test_an_expired_token_is_no_empty_queue(world: RestWorld) -> None:
    world.submit(held=True)
    (world.tokens / f"{world.facts.user}.jwt").write_text(world.testbed.token(world.facts.user, lifespan_s=60))
    world.testbed.wait_until(lambda: not _answers(world), 90, "the end of the token's life")
    with pytest.raises(ClusterUnavailable, match=r"\.jwt"):
        world.cluster.snapshot()


def _answers(world: RestWorld) -> bool:
    with contextlib.suppress(ClusterUnavailable):
        return bool(world.cluster.snapshot().partitions)
    return False


def test_no_token_reaches_the_job(world: RestWorld, tmp_path: Path) -> None:
    output = world.directory / f"environment-{os.getpid()}"
    request = world.request()
    assert request.batch
    environment = (*request.batch.environment, ("SLURM_JWT", "secret"), ("MIRAGE_LINK", "7 of 9"))
    batch = BatchScript(f"#!/bin/sh\nenv >{output}\n", environment=environment, directory=str(world.directory))
    world.actuator.submit(replace(request, batch=batch))
    world.until(request, JobState.COMPLETED)
    seen = output.read_text()
    output.unlink()
    assert "MIRAGE_LINK=7 of 9\n" in seen
    assert "SLURM_JWT" not in seen


def test_options_arrive(world: RestWorld) -> None:
    request = world.request(Doing(runs=MINUTE), held=True, warn=WarnSignal("USR2", 120), requeue=False, nice=3)
    assert request.batch
    text = f"#!/bin/sh\n#SBATCH --mem-per-cpu=64M --open-mode=append\n#SBATCH -n 1 -t 5\n{request.batch.text[10:]}"
    options = ("--ntasks=2", "--output=/dev/null", "--mail-type=END,FAIL", "--exclude=" + world.testbed.nodes[0])
    batch = replace(request.batch, text=text, options=options)
    job_id = world.actuator.submit(replace(request, batch=batch))
    shown = world.testbed.ask("scontrol", "show", "job", "-o", str(job_id))
    fields = dict(part.partition("=")[::2] for part in shown.split())
    assert fields["NumTasks"] == "2"
    assert fields["MinMemoryCPU"] == "64M"
    assert fields["TimeLimit"] == "01:00:00"  # the request's, not the script's
    assert fields["Requeue"] == "0"
    assert fields["Nice"] == "3"
    assert fields["StdOut"] == "/dev/null"
    assert fields["ExcNodeList"] == world.testbed.nodes[0]


def test_options_without_a_field_are_refused_by_name(world: RestWorld) -> None:
    request = world.request()
    assert request.batch
    batch = replace(request.batch, text=request.batch.text + "\n", options=("--x11",))
    with pytest.raises(SubmissionRejected, match="--x11"):
        world.actuator.submit(replace(request, batch=batch))
    assert request.tag not in world.cluster.snapshot().links


def test_a_link_whose_comment_was_changed_is_found_by_its_id(world: RestWorld) -> None:
    request, job_id = world.submit(held=True)
    world.testbed.ask("scontrol", "update", f"job={job_id}", "comment=mine")
    assert request.tag not in world.cluster.snapshot().links
    assert world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag].job_id == job_id


def test_an_array_counts_for_all_its_tasks(world: RestWorld) -> None:
    user = world.facts.user
    world.testbed.run(user, ["sbatch", "-H", "-t10", "-o/dev/null", "--array=1-7,9%2", "--wrap=true"])
    assert len(world.cluster.snapshot().pending) == 8


def test_drained_nodes_are_not_idle(world: RestWorld) -> None:
    node = world.testbed.nodes[0]
    world.testbed.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        (found,) = [p for p in world.cluster.snapshot().partitions if p.name == world.facts.partition]
    finally:
        world.testbed.ask("scontrol", "update", f"nodename={node}", "state=resume")
    assert (found.idle, found.down) == (found.total - 1, 1)


def test_two_changes_at_once(world: RestWorld) -> None:
    request, job_id = world.submit(held=True, nice=100, begin=world.cluster.snapshot().time + 20 * HOUR)
    world.actuator.update(job_id, world.facts.user, JobChange(held=False, nice=0, begin=0))
    assert world.until(request, JobState.RUNNING).nice == 0


def test_a_stopped_slurmrestd_is_no_empty_queue(world: RestWorld) -> None:
    world.testbed.service("slurmrestd", "stop")
    with pytest.raises(ClusterUnavailable, match="refused"):
        world.cluster.snapshot()
    world.testbed.service("slurmrestd", "start")
    assert world.cluster.snapshot().partitions


def test_accounting_that_is_down_is_no_lost_link(world: RestWorld) -> None:
    request, job_id = world.submit(Doing(runs=MINUTE, exit_code=3))
    before = world.until(request, JobState.FAILED)
    world.forget(job_id)
    newcomer = RestCluster(world.client, world, world.version)
    world.testbed.service("slurmdbd", "stop")
    try:
        assert newcomer.snapshot(expected={request.tag: job_id}).unaccounted == {request.tag}
        assert world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag] == before
    finally:
        world.testbed.service("slurmdbd", "start")


def test_accounting_is_asked_in_the_words_of_every_version(privileged_testbed: Testbed, tokens: Path) -> None:
    for number in offered(privileged_testbed):
        world = RestWorld(privileged_testbed, tokens, number)
        tag = world.tag()
        assert world.cluster.snapshot(expected={tag: NO_JOB}).unaccounted == frozenset(), number


def test_a_link_that_ended_unseen_is_found_in_the_accounting(world: RestWorld) -> None:
    request, job_id = world.submit(Doing(runs=MINUTE, exit_code=3))
    world.until(request, JobState.FAILED)
    world.forget(job_id)
    newcomer = RestCluster(world.client, world, world.version)
    job = newcomer.snapshot(expected={request.tag: job_id}).links[request.tag]
    assert job.state is JobState.FAILED
    assert job.exit_code == (3 if world.number >= EXIT_CODES_SINCE else ABSENT)
    by_tag = newcomer.snapshot(expected={request.tag: NO_JOB}).links[request.tag]
    assert by_tag.job_id == job_id
