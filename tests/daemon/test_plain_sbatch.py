"""Jobs of plain ``sbatch`` that ask for a chain: a daemon on commands that look like Slurm's adopts each once."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from sites import Site, running_site

from mirage.bootstrap.cluster import own_user
from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.chain import ChainRecord

PLAIN = "#!/bin/sh\n#SBATCH -t 2-00:00:00 -p cpu\n"
MARKED = f"{PLAIN}#MIRAGE --links 2 --done-exit-code none --on-failure cancelled=continue\n"
NEXT = "#FAKE runs=7200 exit=1\n"
"""The behaviour of the next links; the job itself runs until a test ends it."""
RATE = 600
"""The look comes some real seconds after the submission; meanwhile no job may reach its limit."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("sites.RATE", RATE)
    with running_site(tmp_path) as made:
        made.configure(timeout=30)
        yield made


def slurm(site: Site, *argv: str, user: str = "", script: str = "") -> str:
    environment = os.environ | site.slurm.environment(user or own_user())
    command = [str(site.slurm.path / argv[0]), *argv[1:]]
    done = subprocess.run(command, input=script, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def sbatch(site: Site, script: str, *options: str, user: str = "") -> int:
    job = int(slurm(site, "sbatch", "--parsable", *options, user=user, script=script))
    site.slurm.batches[job] = replace(site.slurm.batches[job], stdin=script + NEXT)
    return job


def records(site: Site) -> list[ChainRecord]:
    store = site.store()
    found = list(store.chains.load())
    store.close()
    return found


def looked_at(site: Site, job: int) -> bool:
    file = site.folder / "state" / "looked-at-jobs.json"
    return file.exists() and str(job) in file.read_text()


def comment(site: Site, job: int) -> str:
    return site.slurm.comments.get(job, site.slurm.job(job).tag)


@pytest.mark.parametrize("options", [(), ("--hold",)])
def test_marked_job_becomes_a_chain_by_itself(site: Site, options: tuple[str, ...]) -> None:
    """One that runs, and one that waits; the next link follows its end."""
    job = sbatch(site, MARKED, *options)
    other = sbatch(site, PLAIN, "--comment=mine")
    with site.daemon():
        wait_until(lambda: records(site), "the chain")
        assert [link.job_id for link in records(site)[0].links] == [job]
        wait_until(lambda: looked_at(site, other), "the look at the other job")
        slurm(site, "scancel", str(job))
        wait_until(lambda: site.record().over, "the end of the chain")
        log = site.client.explain(site.record().chain.chain_id)
    record = site.record()
    assert record.status is ChainStatus.DONE
    assert record.links[0].job_id == job
    assert sum(link.worked for link in record.links) == 2
    assert comment(site, job) == record.chain.tag(1)
    assert comment(site, other) == "mine"
    assert any("its script has #MIRAGE lines" in entry.text for entry in log.entries)


def test_options_in_the_comment_override_those_of_the_script(site: Site) -> None:
    marked = sbatch(site, MARKED, "--comment=mirage: --links 5 --name five")
    bare = sbatch(site, PLAIN, "--comment=mirage:", "--job-name=bare")
    with site.daemon():
        wait_until(lambda: len(records(site)) == 2, "both chains")
    found = {record.links[0].job_id: record.chain for record in records(site)}
    assert (found[marked].name, found[marked].done.links) == ("five", 5)
    assert found[bare].name == "bare"


FAULTS = {
    "value": (MARKED.replace("--links 2", "--links none"), "", "--links"),
    "option": (PLAIN, "mirage: --no-such", "--no-such"),
    "itself": (f"{MARKED}sbatch $0\n", "", "submits itself"),
    "own-comment": (MARKED.replace("--links 2", "--links 0"), "my own words", ""),
}
"""Script, comment, and what the owner finds in the comment."""


def test_faults_are_told_to_the_owner_once_and_other_jobs_left_alone(site: Site) -> None:
    off = sbatch(site, MARKED, "--comment=mirage:off", "--job-name=off")
    other = sbatch(site, MARKED, user="nobody")
    jobs = {
        name: sbatch(site, script, f"--comment={before}", f"--job-name={name}")
        for name, (script, before, _) in FAULTS.items()
    }
    with site.daemon():
        wait_until(lambda: all(looked_at(site, job) for job in (off, *jobs.values())), "the look at each")
        assert records(site) == []
    for name, (_, before, words) in FAULTS.items():
        said = comment(site, jobs[name])
        assert said.startswith("mirage:off ") and words in said if words else said == before
        slurm(site, "scontrol", "update", f"JobId={jobs[name]}", "Comment=")
    assert (comment(site, off), comment(site, other)) == ("mirage:off", "")
    with site.daemon():
        wait_until(lambda: site.socket.exists() and site.slurm.count("squeue") > 3, "some cycles")
    assert {comment(site, job) for job in jobs.values()} == {""}


def test_second_job_of_a_name_is_not_a_second_chain(site: Site) -> None:
    """A script that submits itself by another name would multiply its chain."""
    first = sbatch(site, MARKED)
    with site.daemon():
        wait_until(lambda: records(site), "the chain")
        second = sbatch(site, MARKED)
        wait_until(lambda: comment(site, second).startswith("mirage:off"), "the word to the owner")
    assert site.record().links[0].job_id == first
    assert second not in {link.job_id for link in site.record().links}
    assert site.record().chain.chain_id in comment(site, second)


def test_job_is_adopted_once_over_restarts_and_by_two_daemons(site: Site, tmp_path: Path) -> None:
    job = sbatch(site, MARKED.replace("--links 2", "--links 9"))
    (tmp_path / "other").mkdir()
    second = Site(tmp_path / "other")
    second.slurm, second.clock = site.slurm, site.clock
    (second.folder / "clock.json").write_text((site.folder / "clock.json").read_text())
    both = (site, second)
    with site.daemon(), second.daemon():
        wait_until(lambda: any(records(each) for each in both), "a chain")
        wait_until(lambda: all(looked_at(each, job) or records(each) for each in both), "the look of both")
    with site.daemon(), second.daemon():
        wait_until(lambda: all(each.socket.exists() for each in both), "both daemons again")
        wait_until(lambda: site.slurm.count("squeue") > 20, "some cycles")
    found = [record for each in both for record in records(each)]
    goes_on = [record for record in found if record.chain.done.links != 1]
    assert [record.chain.tag(1) for record in goes_on] == [comment(site, job)]


def test_cancelled_chain_is_not_made_again(site: Site) -> None:
    job = sbatch(site, MARKED)
    with site.daemon():
        wait_until(lambda: records(site), "the chain")
        site.client.cancel(site.record().chain.chain_id)
        wait_until(lambda: site.record().over, "its end")
    with site.daemon():
        wait_until(lambda: site.socket.exists() and site.slurm.count("squeue") > 3, "some cycles")
    assert site.record().links[0].job_id == job


def test_call_of_cron_adopts_before_it_ends(site: Site) -> None:
    job = sbatch(site, MARKED)
    done = site.mirage("cycle", "--config", str(site.config), **site.slurm.environment(own_user()))
    assert done.returncode == 0, done.stderr
    assert [link.job_id for link in site.record().links][:1] == [job]


def test_nothing_is_adopted_where_that_is_switched_off(site: Site) -> None:
    job = sbatch(site, MARKED)
    site.config.write_text(site.config.read_text() + '[chains]\nadopt = "none"\n')
    with site.daemon():
        wait_until(lambda: site.socket.exists() and site.slurm.count("squeue") > 5, "some cycles")
    assert (records(site), comment(site, job)) == ([], "")
