"""``mirage adopt``: a daemon on commands that look like Slurm's follows a job that its user had submitted."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import Fault
from sites import Site, running_site

from mirage.bootstrap.cluster import own_user
from mirage.domain.chain import ChainStatus
from mirage.domain.job import JobState
from mirage.domain.link import LinkState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = "#!/bin/sh\n#SBATCH -t 2-00:00:00 -p cpu\n"
NEXT = "#FAKE runs=7200 exit=1\n"
"""The behaviour of the next links; the job itself runs until a test ends it."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as made:
        yield made


def slurm(site: Site, *argv: str, user: str = "", script: str = "") -> str:
    """A command of Slurm's by the user's own hand."""
    environment = os.environ | site.slurm.environment(user or own_user())
    done = subprocess.run(
        [str(site.slurm.path / argv[0]), *argv[1:]],
        input=script,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def sbatch(site: Site, *options: str, user: str = "") -> int:
    job = int(slurm(site, "sbatch", "--parsable", *options, user=user, script=SCRIPT))
    site.slurm.batches[job] = replace(site.slurm.batches[job], stdin=SCRIPT + NEXT)
    return job


CHAIN = ("--done-exit-code=none", "--on-failure=cancelled=continue")


def adopt(site: Site, job: int, *options: str) -> subprocess.CompletedProcess[str]:
    """The owner's command on a login node."""
    return site.mirage("adopt", str(job), "--no-check", *options, **site.slurm.environment(own_user()))


def overlaps(site: Site) -> list[tuple[int, int]]:
    jobs = sorted((job for job in site.slurm.jobs() if job.start > 0), key=lambda job: job.start)
    return [
        (one.job_id, two.job_id)
        for at, one in enumerate(jobs)
        for two in jobs[at + 1 :]
        if two.start < (one.end if one.state.finished else site.slurm.now())
    ]


def listening(site: Site) -> bool:
    return site.socket.exists() and site.slurm.count("squeue") > 0


def test_adopted_job_is_link_1_and_the_next_link_follows_its_end(site: Site) -> None:
    job = sbatch(site, "--comment=mine", "--time=1-12:00:00")
    with site.daemon():
        wait_until(lambda: listening(site), "the first cycle")
        done = adopt(site, job, *CHAIN, "--links=3", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["chain"]["links"][0]["job_id"] == job
        wait_until(lambda: site.record().links[0].running, "its first sight")
        slurm(site, "scancel", str(job))
        wait_until(lambda: site.record().over, "the end of the chain")
    record = site.record()
    assert record.status is ChainStatus.DONE
    assert [link.job_id for link in record.links] == [each.job_id for each in site.slurm.jobs()]
    assert [link.state for link in record.links] == [LinkState.ENDED] * 3
    assert overlaps(site) == []
    assert site.slurm.comments[job] == record.chain.tag(1)
    first, second, _ = site.slurm.jobs()
    assert (second.limit, second.partition) == (first.limit, first.partition) == (36 * 3_600, "cpu")


def test_adopted_job_survives_a_restart_right_after(site: Site) -> None:
    job = sbatch(site)
    with site.daemon() as daemon:
        wait_until(lambda: listening(site), "the first cycle")
        assert adopt(site, job, *CHAIN, "--links=2").returncode == 0
        daemon.kill()
        daemon.wait()
    assert [link.job_id for link in site.record().links][:1] == [job]
    slurm(site, "scancel", str(job))
    with site.daemon():
        wait_until(lambda: site.record().over, "the end of the chain")
    assert [link.job_id for link in site.record().links] == [each.job_id for each in site.slurm.jobs()]
    assert overlaps(site) == []


def test_adopted_job_that_slurm_has_forgotten_is_known_from_accounting(site: Site) -> None:
    """It ends while the daemon is away: another link 1 would be its double."""
    site.slurm.min_job_age = 1
    job = sbatch(site)
    with site.daemon() as daemon:
        wait_until(lambda: listening(site), "the first cycle")
        site.slurm.fault("sinfo", Fault.UNREACHABLE, 3)
        assert adopt(site, job, *CHAIN, "--links=2").returncode == 0
        daemon.kill()
        daemon.wait()
    slurm(site, "scancel", str(job))
    ended = site.slurm.job(job).end
    wait_until(lambda: site.slurm.now() > ended + 60, "some minutes")
    with site.daemon():
        wait_until(lambda: site.record().over, "the end of the chain")
    first, second = site.record().links
    assert (first.job_id, first.state, first.job_state) == (job, LinkState.ENDED, JobState.CANCELLED)
    assert second.start >= first.end


def test_job_that_has_ended_is_not_adopted(site: Site) -> None:
    site.slurm.min_job_age = 1_000_000
    job = sbatch(site)
    slurm(site, "scancel", str(job))
    with site.daemon():
        wait_until(lambda: listening(site), "the first cycle")
        done = adopt(site, job)
        assert (done.returncode, "has ended" in done.stderr) == (4, True)
        assert site.client.get("/chains")["chains"] == []
    assert len(site.slurm.jobs()) == 1


def test_job_of_another_user_is_not_adopted(site: Site) -> None:
    """Neither by the command, nor by a request that claims it."""
    job = sbatch(site, "--comment=mirage:x:1", user="nobody")
    with site.daemon():
        wait_until(lambda: listening(site), "the first cycle")
        done = adopt(site, job)
        assert (done.returncode, "another user" in done.stderr) == (4, True)
        assert site.client.get("/chains")["chains"] == []
    assert job not in site.slurm.comments


def test_job_is_adopted_once(site: Site) -> None:
    job = sbatch(site)
    with site.daemon():
        wait_until(lambda: listening(site), "the first cycle")
        assert adopt(site, job).returncode == 0
        chain = site.record().chain
        again = adopt(site, job)
        assert (again.returncode, chain.chain_id in again.stderr) == (4, True)
        assert site.slurm.comments[job] == chain.tag(1)
        assert len(site.client.get("/chains")["chains"]) == 1


def test_waiting_job_is_adopted_and_left_to_its_owner(site: Site) -> None:
    job = sbatch(site, "--hold")
    with site.daemon():
        wait_until(lambda: listening(site), "the first cycle")
        assert adopt(site, job, "--links=1", "--steering=hold").returncode == 0
        polls = site.slurm.count("squeue")
        wait_until(lambda: site.slurm.count("squeue") > polls + 2, "some cycles")
        assert site.slurm.job(job).held
        slurm(site, "scontrol", "release", str(job))
        wait_until(lambda: site.record().links[0].running, "its start")
    assert len(site.slurm.jobs()) == 1
