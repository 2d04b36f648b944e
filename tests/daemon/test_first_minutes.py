"""A daemon that was just started: what it reports before its first snapshot, and what it knows of the past."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from daemons import wait_until
from fake_slurm.fake import HOUR, Fault
from sites import Site, running_site

from mirage.domain.decision import WaitForecast
from mirage.domain.job import BatchScript, JobRequest, JobState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.jobtable import JobTable


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as made:
        yield made


def test_chains_are_told_from_the_store_while_the_first_look_hangs(site: Site) -> None:
    site.add_chain(links=1_000)
    with site.daemon():
        wait_until(lambda: len(site.record().links) >= 2, "two links")
    known = [link.tag for link in site.record().links]
    site.configure(timeout=600)
    for _ in range(2):
        asked = site.slurm.count("squeue")
        site.slurm.fault("squeue", Fault.HANG)
        with site.daemon():
            wait_until(lambda asked=asked: site.slurm.count("squeue") > asked, "the look that hangs")
            wait_until(lambda: site.mirage("chains").returncode == 0, "an answer")
            listed = json.loads(site.mirage("chains", "--json").stdout)
            assert [chain["id"] for chain in listed["chains"]] == ["svc"]
            assert listed["stale_since"] is not None
            shown = site.mirage("chain", "show", "svc", "--json")
            assert shown.returncode == 0, shown.stderr
            assert [link["tag"] for link in json.loads(shown.stdout)["links"]][: len(known)] == known
        assert site.slurm.count("squeue") == asked + 1, "it was still hanging"


def crowd(site: Site) -> None:
    """Forty jobs on four nodes, an hour each."""
    for n in range(40):
        request = JobRequest(f"job-{n}", "bob", 2 * HOUR, partition="cpu", batch=BatchScript("#!/bin/sh\n"))
        site.slurm.simulation.submit(request, HOUR, JobState.COMPLETED, 0)


def test_a_fresh_daemon_predicts_from_what_accounting_knows(tmp_path: Path) -> None:
    """All those jobs have ended before it is started: no snapshot can show their waits."""
    with running_site(tmp_path, 14 * HOUR, crowd) as site:
        wait_until(lambda: not site.slurm.live(), "the end of the last job")
        waits = np.array([job.start - job.submit for job in site.slurm.jobs()])
        assert (len(waits), np.median(waits)) == (40, 4.5 * HOUR)
        site.configure(predictor="quantile")
        site.add_chain(links=1_000)

        def foreseen() -> list[float]:
            store = site.store()
            entries = [line.entry for line in store.journal.read(limit=1_000)]
            store.close()
            answers = [(e.prediction, e.time) for e in entries if e.predictor == "quantile"]
            return [one.at(0.5) - at for one, at in answers if isinstance(one, WaitForecast)]

        with site.daemon():
            wait_until(lambda: any(abs(wait - np.median(waits)) < HOUR for wait in foreseen()), "a prediction")
            wait_until(lambda: np.sum(known_jobs(site).end >= 0) >= 40, "the whole import")
    known = known_jobs(site)
    told = {
        int(job_id): (int(submit), int(end))
        for job_id, submit, end in zip(known.job_id, known.submit, known.end, strict=True)
        if end >= 0
    }
    assert {job.job_id: (job.submit, job.end) for job in site.slurm.jobs()}.items() >= told.items()
    assert len(told) >= 40


def known_jobs(site: Site) -> JobTable:
    store = site.store()
    known = store.jobs.read(0)
    store.close()
    return known


def test_the_import_keeps_no_chain_waiting_and_no_daemon_from_ending(site: Site) -> None:
    site.configure(timeout=600)
    site.add_chain(links=1_000)
    site.slurm.fault("sacct", Fault.HANG)
    with site.daemon() as daemon:
        wait_until(lambda: site.slurm.count("sacct"), "the first question about the past")
        wait_until(lambda: len(site.record().links) >= 2, "two links")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(120) == 0
    assert site.tags() == [link.tag for link in site.record().links]
