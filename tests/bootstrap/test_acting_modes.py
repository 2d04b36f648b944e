"""In whose name the daemon acts: what each mode changes in the cluster that the daemon's user sees."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from backends.fake_slurmrestd import slurmrestd
from backends.rest_world import recorded
from fakes import FakeCluster

from mirage.backends.links_only import LinkGuard
from mirage.bootstrap.backends import act_as_configured, build_world
from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo
from mirage.config.model import Config
from mirage.domain.errors import ConfigError, NotPermitted, SubmissionRejected
from mirage.domain.job import BatchScript, JobId, JobRequest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def own() -> ClusterConnection:
    cluster = FakeCluster()
    lore = ClusterInfo(refresh=lambda: "nothing new")
    return ClusterConnection(cluster, cluster, cluster, cluster, lore)  # type: ignore[arg-type]


def config(
    mode: str,
    *,
    url: str = "http://127.0.0.1:6820",
    helper: str = "/opt/mirage-act",
    tokens: str = "/run/tokens",
) -> Config:
    acting = {"mode": mode, "tokens": tokens, "helper": helper}
    return Config.model_validate({"acting": acting, "cluster": {"rest": {"url": url}}})


def test_in_its_own_name_nothing_changes_but_who_adopts(own: ClusterConnection) -> None:
    world = act_as_configured(config("own"), own)
    assert replace(world, adopter=None) == own
    assert world.adopter is not None


@pytest.mark.parametrize("mode", ["agent", "release", "sudo", "token"])
def test_another_acts_and_all_else_stays(own: ClusterConnection, mode: str) -> None:
    world = act_as_configured(config(mode), own)
    assert world.actuator is not own.actuator
    assert world.estimator is own.estimator, "which knows for whom it may ask"
    assert (world.lore, world.clock) == (own.lore, own.clock)
    assert (world.desk is not None) == (mode == "agent")
    assert (world.cluster is own.cluster) == (mode not in ("release", "token"))


def test_sudo_mode_takes_no_chain_of_root_or_of_nobody_known(own: ClusterConnection) -> None:
    world = act_as_configured(config("sudo"), own)
    world.check_request(JobRequest("svc", "nobody", 60))
    for user in ("root", "#0", "no-such-user"):
        with pytest.raises(NotPermitted):
            world.check_request(JobRequest("svc", user, 60))


def test_released_jobs_are_seen_by_what_releases_them(own: ClusterConnection) -> None:
    world = act_as_configured(config("release"), own)
    assert world.cluster is world.actuator


@pytest.mark.parametrize(
    ("mode", "given", "key"),
    [("sudo", {"helper": ""}, "acting.helper"), ("token", {"url": ""}, "cluster.rest.url")],
)
def test_what_is_missing_is_named(own: ClusterConnection, mode: str, given: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        act_as_configured(config(mode, **given), own)


def test_token_mode_cancels_no_job_that_is_no_link(own: ClusterConnection, tmp_path: Path) -> None:
    """slurmrestd would let its owner do it: the token is that user's."""
    (tmp_path / "alice.jwt").write_text("a.good.token")
    told = {"job_id": 40, "user_name": "alice", "comment": None, "submit_time": 1_700_000_000}
    job = recorded("job.held-link")["jobs"][0] | told
    with slurmrestd() as fake:
        fake.answers = {"/slurm/v0.0.38/ping": {"errors": []}}
        fake.answers["/slurm/v0.0.38/job/40"] = {
            "errors": [],
            "jobs": [job],
        }
        world = act_as_configured(config("token", url=fake.address, tokens=str(tmp_path)), own)
        with pytest.raises(NotPermitted, match="job 40 is not a link of alice"):
            world.actuator.cancel(JobId(40), "alice")
        assert {asked.method for asked in fake.asked} == {"GET"}


@pytest.mark.parametrize("backend", ["cli", "rest"])
def test_own_mode_acts_through_the_guard(backend: str) -> None:
    cluster = {"backend": backend, "rest": {"url": "http://127.0.0.1:6820"}}
    world = build_world(Config.model_validate({"acting": {"mode": "own"}, "cluster": cluster}))
    assert isinstance(world.actuator, LinkGuard)
    assert world.actuator is world.cluster, "which knows what the last snapshot has shown"


def test_token_mode_waits_for_a_hanging_slurmrestd_for_its_owner_alone(
    own: ClusterConnection, tmp_path: Path
) -> None:
    begun, go = Event(), Event()

    def submit(handler: Any) -> None:
        if handler.headers["X-SLURM-USER-NAME"] == "alice":
            begun.set()
            assert go.wait(60)
        handler.reply(200, b'{"errors": [], "job_id": 7}')

    for owner in ("alice", "bob"):
        (tmp_path / f"{owner}.jwt").write_text("a.good.token")
    request = JobRequest("link", "alice", 3_600, tag="mirage:c:1", batch=BatchScript("#!/bin/sh\ntrue\n"))
    with slurmrestd() as fake, ThreadPoolExecutor(1) as pool:
        fake.answers = {"/slurm/v0.0.38/ping": {"errors": []}, "/slurm/v0.0.38/job/submit": submit}
        actuator = act_as_configured(config("token", url=fake.address, tokens=str(tmp_path)), own).actuator
        hanging = pool.submit(actuator.submit, request)
        try:
            assert begun.wait(60)
            assert actuator.submit(replace(request, user="bob")) == 7
            with pytest.raises(NotPermitted):
                actuator.cancel(JobId(7), "alice")
            assert not hanging.done(), "none of them waited for alice's"
        finally:
            go.set()
        assert hanging.result(60) == 7


@pytest.mark.parametrize(
    ("option", "version", "words"),
    [
        ("--cpu-freq=low", 38, "slurmrestd has no field for --cpu-freq=low;"),
        ("--cpu-freq=low", 0, "slurmrestd has no field for --cpu-freq=low;"),
        ("--export=A,MIRAGE_LINK", 38, "slurmrestd has no field for --export=A;"),
        ("--signal=B:USR1@60", 38, "v0.0.38 has no field for a warning to the batch shell alone"),
        ("--signal=B:USR1@60", 40, ""),
        ("--signal=B:USR1@60", 0, ""),
        ("--ntasks=2", 38, ""),
    ],
)
def test_token_mode_knows_what_it_cannot_submit(
    own: ClusterConnection, tmp_path: Path, option: str, version: int, words: str
) -> None:
    """Version 0: slurmrestd cannot be asked."""
    (tmp_path / "alice.jwt").write_text("a.good.token")
    batch = BatchScript("#!/bin/sh\ntrue\n", (option,))
    with slurmrestd() as fake:
        fake.answers = {f"/slurm/v0.0.{version}/ping": {"errors": []}} if version else {}
        world = act_as_configured(config("token", url=fake.address, tokens=str(tmp_path)), own)
        try:
            world.check_request(JobRequest("link", "alice", 3_600, batch=batch))
            told = ""
        except SubmissionRejected as rejection:
            told = str(rejection)
        assert bool(told) == bool(words)
        assert words in told
        assert not [path for path in fake.paths() if "submit" in path]
