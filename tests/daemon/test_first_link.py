"""``mirage submit`` waits for the first link, as a daemon on commands that look like Slurm's makes it a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import Fault
from sites import Site, running_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = ("--no-check", "-t", "3:00:00", "-p", "cpu", "--links=2", "--wrap", "sleep 1h")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Its daemon has looked at the queue."""
    with running_site(tmp_path) as made, made.daemon():
        wait_until(lambda: made.socket.exists() and made.slurm.count("squeue") > 0, "the first cycle")
        yield made


def test_the_first_link_is_a_job_when_submit_ends(site: Site) -> None:
    done = site.mirage("submit", *SCRIPT)
    assert done.returncode == 0, done.stderr
    job, *_ = site.slurm.jobs()
    assert str(job.job_id) in done.stdout.splitlines()[-1]


def test_a_link_that_slurm_will_never_accept_fails_submit_and_leaves_no_chain_at_work(site: Site) -> None:
    site.slurm.fault("sbatch", Fault.REFUSE)
    done = site.mirage("submit", *SCRIPT)
    assert done.returncode == 4
    assert "Invalid account" in done.stderr
    assert site.record().over
    assert site.slurm.jobs() == []


def test_a_limit_that_passes_is_told_and_the_chain_goes_on(site: Site) -> None:
    site.slurm.fault("sbatch", Fault.TOO_MANY)
    done = site.mirage("submit", *SCRIPT)
    assert done.returncode == 0
    assert "AssocMaxSubmitJobLimit" in done.stderr or "job submit limit" in done.stderr
    wait_until(lambda: len(site.slurm.jobs()) >= 1, "the next try")


def test_scripts_need_not_wait(site: Site) -> None:
    """Slurm's commands hang: an answer that waits for them would take their time limit."""
    site.slurm.fault("sbatch", Fault.HANG)
    done = site.mirage("submit", "--no-wait", "--json", *SCRIPT)
    assert done.returncode == 0
    assert [link["job_id"] for link in json.loads(done.stdout)["chain"]["links"]] in ([], [None])
