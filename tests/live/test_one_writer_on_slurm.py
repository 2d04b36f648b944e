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


def writer(name: str, folder: Path) -> Chain:
    steering, exclusive = WRITERS[name]
    text = TRAINER.replace("LOG", str(folder / f"{name}.log"))
    batch = BatchScript(text, ("--output=/dev/null",), (("PATH", os.environ["PATH"]),), str(folder))
    request = JobRequest(
        name, "", 20 * 60, partition="cpu", exclusive=exclusive, warn=WarnSignal("USR1", 120, batch_only=True)
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
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    store = open_store(f"sqlite:///{folder}/mirage.db")
    for name in WRITERS:
        store.chains.save(ChainRecord(writer(name, tmp_path)))
    store.close()
    daemon = start(write_config(folder, testbed))
    try:
        testbed.wait_until(lambda: records(folder)["early"].head is not None, PATIENCE, "the first link")
        first = records(folder)["early"].links[0]
        testbed.ask("scontrol", "update", f"JobId={first.job_id}", "TimeLimit=15")
        testbed.wait_until(
            lambda: all(each.over for each in records(folder).values()), PATIENCE, "all chains' end"
        )
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE)
    for name, record in records(folder).items():
        assert record.status is ChainStatus.DONE, name
        assert len(record.links) == LINKS, "none ended as if its work were done"
        assert all(after.start >= before.end for before, after in pairwise(record.links)), name
        noted = (tmp_path / f"{name}.log").read_text().split()
        assert noted == [word for link in range(1, LINKS + 1) for word in ("+", str(link), "-", str(link))], name
