"""`--handover none` on a real Slurm: links that are submitted early never run together, steered or not."""

from __future__ import annotations

import getpass
import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from test_daemon import PATIENCE, start, write_config

from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus, DoneCondition, Steering
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurm_testbed import Testbed

LINKS = 3
TRAINER = """#!/bin/bash
trap 'kill $!; echo "- $MIRAGE_LINK" >>LOG; exit 0' USR1
echo "+ $MIRAGE_LINK" >>LOG
sleep infinity &
wait $!
"""
"""Notes its begin and its end; obeys the warning of its limit."""
WRITERS = {
    "early": (Steering.OFF, True),
    "pin": (Steering.PIN, True),
    "part": (Steering.PIN, False),
    "hold": (Steering.HOLD, True),
}


def writer(name: str, folder: Path, partition: str = "cpu", options: tuple[str, ...] = ()) -> Chain:
    steering, exclusive = WRITERS.get(name, (Steering.OFF, True))
    text = TRAINER.replace("LOG", str(folder / f"{name}.log"))
    batch = BatchScript(text, ("--output=/dev/null", *options), (("PATH", os.environ["PATH"]),), str(folder))
    request = JobRequest(
        name, "", 20 * 60, partition=partition, exclusive=exclusive, warn=WarnSignal("USR1", 120, batch_only=True)
    )
    return Chain(
        ChainId(name),
        name,
        getpass.getuser(),
        replace(request, batch=batch),
        DoneCondition(links=LINKS),
        steering=steering,
    )


def records(folder: Path) -> dict[str, ChainRecord]:
    store = open_store(f"sqlite:///{folder}/mirage.db")
    found = {record.chain.name: record for record in store.chains.load()}
    store.close()
    return found


def test_links_of_one_writer_never_run_together(testbed: Testbed, tmp_path: Path) -> None:
    """One of them has its limit lowered while it runs: its chain goes on all the same."""

    def lower_a_limit(folder: Path) -> None:
        testbed.wait_until(lambda: records(folder)["early"].head is not None, PATIENCE, "the first link")
        first = records(folder)["early"].links[0]
        testbed.ask("scontrol", "update", f"JobId={first.job_id}", "TimeLimit=15")

    check_apart(kept(testbed, [writer(name, tmp_path) for name in WRITERS], tmp_path, lower_a_limit), tmp_path)


def test_one_writer_stays_alone_on_oversubscribed_nodes(oversubscribing_testbed: Testbed, tmp_path: Path) -> None:
    """No pin holds a link there: each of them depends on the end of the one before it."""
    testbed = oversubscribing_testbed
    node = testbed.nodes[0]
    asked = ["sbatch", "--exclusive", "--partition=force", f"--nodelist={node}", "--output=/dev/null"]
    for _ in range(2):
        testbed.run(getpass.getuser(), [*asked, "--wrap=sleep infinity"])
    running = ("squeue", "--noheader", "--states=RUNNING", "--partition=force", "--format=%N")
    testbed.wait_until(lambda: testbed.ask(*running).split() == [node] * 2, PATIENCE, "two jobs on a whole node")
    testbed.cancel_all()
    found = kept(testbed, [writer(name, tmp_path, "force") for name in ("pin", "part")], tmp_path)
    check_apart(found, tmp_path)
    assert all(link.unpinned for record in found.values() for link in record.links[1:])


def test_link_that_starts_with_a_lower_limit_is_followed(testbed: Testbed, tmp_path: Path) -> None:
    """Slurm lowers a limit down to ``--time-min`` so that the job ends before a reservation begins."""
    when = ("StartTime=now+17minutes", "Duration=5", "Nodes=ALL", f"Users={getpass.getuser()}")
    testbed.ask("scontrol", "create", "reservation", "ReservationName=soon", "Flags=MAINT,IGNORE_JOBS", *when)
    found = kept(testbed, [writer("lowered", tmp_path, options=("--time-min=6",))], tmp_path)
    check_apart(found, tmp_path)
    assert found["lowered"].links[0].limit < 20 * 60, "its own, not the one that was asked for"


def kept(
    testbed: Testbed,
    chains: Sequence[Chain],
    tmp_path: Path,
    meanwhile: Callable[[Path], None] = lambda folder: None,
) -> dict[str, ChainRecord]:
    """The chains' records once a daemon has kept all of them to their end."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    store = open_store(f"sqlite:///{folder}/mirage.db")
    for chain in chains:
        store.chains.save(ChainRecord(chain))
    store.close()
    daemon = start(write_config(folder, testbed))
    try:
        meanwhile(folder)
        testbed.wait_until(
            lambda: all(each.over for each in records(folder).values()), PATIENCE, "all chains' end"
        )
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE)
    return records(folder)


def check_apart(found: Mapping[str, ChainRecord], tmp_path: Path) -> None:
    """No two links of a chain ran together, by their times and by what their scripts have noted."""
    for name, record in found.items():
        assert record.status is ChainStatus.DONE, name
        assert len(record.links) == LINKS, "none ended as if its work were done"
        assert all(after.start >= before.end for before, after in pairwise(record.links)), name
        noted = (tmp_path / f"{name}.log").read_text().split()
        assert noted == [word for link in range(1, LINKS + 1) for word in ("+", str(link), "-", str(link))], name
