"""Tasks within links on a real Slurm: placed as planned, carried from link to link, through what goes wrong."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from allocation_link import PATIENCE, Work
from test_daemon import record, start, write_config

from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus, DoneCondition
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

# Counts minutes; told to save, it writes down how far it is.
COUNTS = """
[[task]]
id = "long{n}"
expected = "{minutes}m"
checkpoint = {{ signal = "USR1", grace = "3m", restart = "1m" }}
script = '''
saved=no
trap 'saved=yes' USR1
minute=$(cat long{n}.saved 2>/dev/null || echo 0)
while [ "$minute" -lt {minutes} ]; do
  sleep 60 & wait $!
  if [ $saved = yes ]; then echo $minute >long{n}.saved; exit 0; fi
  minute=$((minute + 1)); echo $minute >>long{n}.counted
done
'''
"""
SHORT = '[[task]]\nid = "short{n}"\nscript = "sleep 300; echo short{n} >>shorts"\nafter = {after}\n'
LONG, MINUTES, SHORTS = 8, 45, 12


@pytest.fixture
def work(testbed: Testbed, tmp_path: Path) -> Work:
    return Work(tmp_path, testbed)


@pytest.fixture
def real_clock_work(real_clock_testbed: Testbed, tmp_path: Path) -> Work:
    return Work(tmp_path, real_clock_testbed)


def add_chain(folder: Path, work: Work) -> None:
    folder.mkdir(mode=0o700)
    script = BatchScript(
        f"#!/bin/bash\nexec {work.command('--ordering=sjf')} >>out 2>&1\n",
        (),
        (("PATH", os.environ["PATH"]), ("HOME", os.environ["HOME"])),
        str(work.folder),
    )
    request = JobRequest(
        "tasks", getpass.getuser(), 60 * 60, partition="a100", cpus_per_node=32, gres_per_node=(("gpu:a100", 4),),
        warn=WarnSignal("USR1", 300, batch_only=True), batch=script,
    )  # fmt: skip
    store = open_store(f"sqlite:///{folder}/mirage.db")
    store.chains.save(ChainRecord(Chain(ChainId("tasks"), "tasks", getpass.getuser(), request, DoneCondition())))
    store.close()


def test_more_work_than_one_link_holds_is_handed_over_until_it_is_done(work: Work, tmp_path: Path) -> None:
    """Links overlap here: each successor starts some ten minutes before its predecessor's limit."""
    shorts = "".join(SHORT.format(n=n, after=[f"long{n % LONG}"]) for n in range(SHORTS))
    work.write("".join(COUNTS.format(n=n, minutes=MINUTES) for n in range(LONG)) + shorts)
    folder = tmp_path / "daemon"
    add_chain(folder, work)
    daemon = start(write_config(folder, work.testbed))
    work.wait(lambda: record(folder).over, "the end of the chain")
    work.wait(lambda: not work.testbed.queue(), "the end of its jobs")
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0
    chain, ledger = record(folder), work.ledger()
    assert chain.status is ChainStatus.DONE, f"{chain.reason}\n{work.said()}"
    assert len([link for link in chain.links if link.started]) >= 2
    assert len({each.life for tries in ledger.attempts.values() for each in tries.values()}) >= 2
    work.check()
    for n in range(LONG):
        counted = (work.folder / f"long{n}.counted").read_text().split()
        assert sorted(map(int, counted)) == list(range(1, MINUTES + 1)), f"long{n}: {work.results(f'long{n}')}"
        assert work.results(f"long{n}")[-1] == "succeeded"
    assert sorted((work.folder / "shorts").read_text().split()) == sorted(f"short{n}" for n in range(SHORTS))
