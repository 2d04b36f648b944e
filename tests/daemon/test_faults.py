"""What goes wrong on a cluster, repeatedly, under a daemon as installed: no link is lost, none is twice.

Slurm's commands are fakes over a simulation whose clock runs 3,600 times as fast; a link of three hours lives for
three seconds.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import HOUR, Fault
from sites import Site, running_site

from mirage.domain.chain import ChainStatus
from mirage.domain.job import Job, JobState
from mirage.domain.link import LinkState

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

LINKS = 3


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as made:
        made.add_chain(LINKS)
        yield made


def finish(site: Site) -> None:
    """The chain to its end, by another daemon if it has not come there."""
    site.configure()
    if site.record().over:
        check(site)
        return
    with site.daemon() as daemon:
        end(site, daemon)


def end(site: Site, daemon: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: site.record().over, "the end of the chain")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(120) == 0
    check(site)


def check(site: Site) -> None:
    """Every link has been one job, and every job a link."""
    record = site.record()
    record.check()
    assert site.tags() == [f"mirage:svc:{n}" for n in range(1, LINKS + 1)]
    assert [job.job_id for job in site.slurm.jobs()] == [link.job_id for link in record.links]
    assert [link.job_state for link in record.links] == [job.state for job in site.slurm.jobs()]


def runs(site: Site, index: int) -> Job | None:
    """The job of link ``index``, where it runs."""
    jobs = [job for job in site.slurm.jobs() if job.tag == f"mirage:svc:{index}"]
    return jobs[-1] if jobs and jobs[-1].state is JobState.RUNNING else None


def each_link(site: Site) -> Iterator[Job]:
    """The job of every link in turn, as soon as it runs and the daemon has seen it."""
    for index in range(1, LINKS + 1):
        wait_until(lambda index=index: runs(site, index), f"link {index}")
        wait_until(lambda index=index: len(site.record().links) >= index, f"link {index} in the store")
        job = runs(site, index)
        if job is not None:
            yield job


def slurms(site: Site, seconds: int) -> None:
    """Let this much of Slurm's time pass."""
    until = site.slurm.now() + seconds
    wait_until(lambda: site.slurm.now() >= until, f"{seconds} s")


# The daemon dies


def test_killed_before_the_submission_has_arrived(site: Site) -> None:
    site.configure(timeout=600)
    for _ in range(3):
        known = site.slurm.count("sbatch")
        site.slurm.fault("sbatch", Fault.HANG)
        with site.daemon():
            wait_until(lambda known=known: site.slurm.count("sbatch") > known, "the submission of link 1")
    assert site.tags() == []
    finish(site)


def test_killed_after_each_submission_before_it_is_stored(site: Site) -> None:
    site.configure(timeout=600)
    for index in range(1, LINKS + 1):
        site.slurm.fault("sbatch", Fault.LOSE_ANSWER_AND_HANG)
        with site.daemon():
            wait_until(lambda index=index: len(site.tags()) == index, f"link {index} on the cluster")
        assert site.record().links[index - 1].state is LinkState.PLANNED
    finish(site)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_any_instant(site: Site, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        with site.daemon():
            time.sleep(rng.uniform(0.5, 4))
    finish(site)


def test_of_three_started_at_once_one_keeps_the_chain(site: Site) -> None:
    for _ in range(2):
        with contextlib.ExitStack() as daemons:
            started = [daemons.enter_context(site.daemon()) for _ in range(3)]
            wait_until(lambda started=started: sum(d.poll() == 1 for d in started) == 2, "two that give way")
            wait_until(lambda: site.mirage("chains").returncode == 0, "an answer of the third")
            assert sum(daemon.poll() is None for daemon in started) == 1
    finish(site)


# Slurm is away


@pytest.mark.parametrize("seconds", [1, 600, 5 * HOUR], ids=["restart", "ten-minutes", "beyond-the-end-of-a-link"])
def test_the_controller_goes_away_during_each_link(site: Site, seconds: int) -> None:
    with site.daemon() as daemon:
        for _ in each_link(site):
            site.slurm.down = True
            slurms(site, seconds)
            known = len(site.tags())
            site.slurm.down = False
            assert len(site.tags()) - known <= 1
        end(site, daemon)


def test_accounting_goes_away_while_each_link_ends(site: Site) -> None:
    """The controller forgets an ended job within a minute: until accounting is back its end is unknown."""
    site.slurm.min_job_age = 1
    with site.daemon() as daemon:
        for job in each_link(site):
            site.slurm.accounting_down = True
            wait_until(lambda job=job: site.slurm.job(job.job_id).state.finished, "the end of the link")
            slurms(site, HOUR)
            assert len(site.tags()) <= site.record().next_index
            site.slurm.accounting_down = False
        end(site, daemon)
    assert {link.job_state for link in site.record().links} == {JobState.TIMEOUT}


# Submissions are rejected


def test_refusals_are_followed_by_other_attempts(site: Site) -> None:
    with site.daemon() as daemon:
        for _ in range(2):
            site.slurm.fault("sbatch", Fault.TOO_MANY)
        for _ in each_link(site):
            site.slurm.fault("sbatch", Fault.TOO_MANY)
        end(site, daemon)
    assert site.slurm.count("sbatch") >= LINKS + 2 + LINKS - 1


def test_permanent_rejection_pauses_with_slurms_words_and_resumes(site: Site) -> None:
    site.slurm.fault("sbatch", Fault.REFUSE)
    with site.daemon() as daemon:
        for again in (True, False):
            wait_until(lambda: site.record().status is ChainStatus.PAUSED, "the pause")
            assert "InvalidAccount" in site.record().reason
            told = site.mirage("chain", "explain", "svc")
            assert "InvalidAccount" in told.stdout or "Invalid account" in told.stdout, told.stdout
            if again:
                site.slurm.fault("sbatch", Fault.REFUSE)
            assert site.mirage("chain", "resume", "svc").returncode == 0
        end(site, daemon)


# Nodes fail, people interfere


def test_every_link_loses_its_node(site: Site) -> None:
    with site.daemon() as daemon:
        for job in each_link(site):
            for node in job.node_list.split(","):
                site.slurm.node(node, "down")
            slurms(site, 600)
            for node in job.node_list.split(","):
                site.slurm.node(node, "resume")
        end(site, daemon)


def test_every_link_gets_another_comment(site: Site) -> None:
    with site.daemon() as daemon:
        for job in each_link(site):
            site.slurm.set_comment(job.job_id, "mine: do not touch")
        end(site, daemon)


@pytest.mark.parametrize("links", [1, 2, 3])
def test_a_link_cancelled_by_its_user_stops_the_chain_which_says_so(site: Site, links: int) -> None:
    with site.daemon():
        for index, job in enumerate(each_link(site), 1):
            if index == links:
                with site.slurm.lock:
                    site.slurm.simulation.cancel(job.job_id)
                break
        wait_until(lambda: site.record().over, "the end of the chain")
    record = site.record()
    record.check()
    assert record.links[links - 1].job_state is JobState.CANCELLED
    assert "CANCELLED" in record.reason.upper()
    assert [job for job in site.slurm.live() if job.tag] == []
