"""``mirage daemon`` as it is installed, on commands that only look like Slurm's, and what goes wrong with them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import Fault
from sites import Site, running_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


SPOILT = [
    Fault.HANG,
    Fault.SLOW,
    Fault.CUT_OFF,
    Fault.GARBAGE,
    Fault.EMPTY,
    Fault.UNREACHABLE,
    Fault.KILLED,
]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"squeue": [kind for kind in SPOILT for _ in range(2)]},
        {"sbatch": [Fault.LOSE_ANSWER, Fault.HANG, Fault.KILLED, Fault.LOSE_ANSWER_AND_HANG, Fault.CUT_OFF]},
        {"sinfo": SPOILT, "sacct": SPOILT},
    ],
    ids=lambda faults: "-".join(faults) or "none",
)
def test_every_link_is_submitted_once_whatever_the_commands_do(site: Site, faults: dict[str, list[Fault]]) -> None:
    site.add_chain(links=3)
    for command, kinds in faults.items():
        for kind in kinds:
            site.slurm.fault(command, kind)
    with site.daemon() as daemon:
        wait_until(lambda: site.record().over, "the end of the chain")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(120) == 0
    record = site.record()
    record.check()
    assert [job.tag for job in site.slurm.jobs()] == [f"mirage:svc:{n}" for n in (1, 2, 3)]
    assert [job.job_id for job in site.slurm.jobs()] == [link.job_id for link in record.links]


def test_a_cycle_asks_three_questions_at_most(site: Site) -> None:
    site.add_chain(links=2)
    with site.daemon() as daemon:
        wait_until(lambda: site.record().over, "the end of the chain")
        daemon.terminate()
        daemon.wait(120)
    standings = sum("--format=%u|%a|%q" in call.arguments for call in site.slurm.calls)
    looks = site.slurm.count("squeue") - standings
    windows = 62
    """Windows of a day each, by which the first import reads two months."""
    assert site.slurm.count("sinfo") <= looks
    assert site.slurm.count("sacct") <= looks + windows


def test_audit_of_a_chain_has_the_acts_of_the_daemon_for_it(site: Site) -> None:
    """Submissions, also rejected ones, and what was done to jobs by their ID."""
    site.add_chain(links=2)
    site.slurm.fault("sbatch", Fault.TOO_MANY)
    with site.daemon():
        wait_until(lambda: any(link.running for link in site.record().links), "a running link")
        site.client.cancel("svc")
        wait_until(lambda: site.record().over, "the end of the chain")
        found = site.client.get("/audit", chain="svc")["entries"]
    done = [(entry["action"].split()[0], entry["result"].partition(":")[0]) for entry in reversed(found)]
    assert done[:2] == [("submit", "SubmissionRejected"), ("submit", "done")]
    assert done[-1] == ("cancel", "done")
    assert {entry["chain"] for entry in found} == {"svc"}
