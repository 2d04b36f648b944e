"""`--handover none` on a real Slurm: links that are submitted early never run together, steered or not."""

from __future__ import annotations

import getpass
import os
import signal
from dataclasses import replace
from itertools import pairwise
from time import sleep
from typing import TYPE_CHECKING

from test_daemon import PATIENCE, start, write_config

from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus, DoneCondition, Steering
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.domain.link import NO_JOB, Link
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from subprocess import Popen

    from slurm_testbed import Testbed

LINKS = 3
HOUR = 3_600
TRAINER = """#!/bin/bash
trap 'kill $!; echo "- $MIRAGE_LINK" >>LOG; exit 0' USR1
echo "+ $MIRAGE_LINK" >>LOG
sleep infinity &
wait $!
"""
"""Notes its begin and its end; executes the warning of its limit."""
WRITERS = {
    "early": (Steering.OFF, True),
    "pin": (Steering.PIN, True),
    "part": (Steering.PIN, False),
    "hold": (Steering.HOLD, True),
    "auto": (Steering.AUTO, True),
    "several": (Steering.PIN, True),
    "spread": (Steering.AUTO, False),
}
PARTITIONS = {"several": "cpu,v100"}
OPTIONS = {"spread": ("--ntasks=33",)}
"""More than half of a node, and a second such job fits on the rest and another node."""
FINISHER = """#!/bin/bash
echo "+ $MIRAGE_LINK" >>LOG
[ $MIRAGE_LINK = 1 ] && exec sleep infinity
touch LAST
while [ -e LAST ]; do sleep 1; done
"""
"""Its second link has finished the work as soon as it may."""


FAILER = """#!/bin/bash
trap : USR1
echo "+ $MIRAGE_LINK" >>LOG
until [ -e END ]; do sleep 1; done
exit 3
"""
"""Fails once the file is there."""


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
    """One of them has its limit lowered while it runs: its chain continues all the same."""

    def lower_a_limit(folder: Path) -> None:
        testbed.wait_until(lambda: records(folder)["early"].head is not None, PATIENCE, "the first link")
        first = records(folder)["early"].links[0]
        testbed.ask("scontrol", "update", f"JobId={first.job_id}", "TimeLimit=15")

    chains = [writer(name, tmp_path, PARTITIONS.get(name, "cpu"), OPTIONS.get(name, ())) for name in WRITERS]
    check_apart(kept(testbed, chains, tmp_path, lower_a_limit), tmp_path)


def test_pinned_link_does_not_begin_work_that_is_done(testbed: Testbed, tmp_path: Path) -> None:
    """It starts before a cancellation could reach it: the daemon is down as its predecessor exits with 0."""
    folder, last = tmp_path / "state", tmp_path / "last"
    text = FINISHER.replace("LOG", str(tmp_path / "log")).replace("LAST", str(last))
    chain = replace(writer("finisher", tmp_path), steering=Steering.AUTO)
    assert chain.request.batch is not None
    request = replace(chain.request, warn=None, limit=5 * 60, batch=replace(chain.request.batch, text=text))

    def third() -> Link | None:
        links = records(folder)["finisher"].links
        return links[2] if len(links) == 3 and links[2].job_id else None

    def finish_unseen(folder: Path) -> None:
        testbed.wait_until(lambda: last.exists() and third() is not None, PATIENCE, "a third link that waits")
        daemons[0].send_signal(signal.SIGSTOP)
        last.unlink()
        ask = ("squeue", "--noheader", "--states=all", f"--jobs={third().job_id}", "--format=%T")
        testbed.wait_until(lambda: testbed.ask(*ask).strip() == "COMPLETED", PATIENCE, "the end of the third link")
        daemons[0].send_signal(signal.SIGCONT)

    daemons: list[Popen[bytes]] = []
    done = replace(chain, request=request, done=DoneCondition(), failures=FailurePolicies())
    found = kept(testbed, [done], tmp_path, finish_unseen, daemons.append)["finisher"]
    assert found.status is ChainStatus.DONE, found.reason
    assert (tmp_path / "log").read_text().split() == ["+", "1", "+", "2"]


def test_link_queued_ahead_stays_away_once_the_chain_has_stopped(testbed: Testbed, tmp_path: Path) -> None:
    """Pinned, or held by a dependency: the daemon is down as the first link fails or is cancelled."""
    end, stop = tmp_path / "end", FailurePolicies(exit=FailurePolicy(FailureAction.STOP))

    def failer(name: str, *, alone: bool, partition: str, warned: bool = True) -> Chain:
        chain = replace(writer(name, tmp_path, partition), steering=Steering.AUTO, failures=stop)
        assert chain.request.batch is not None
        text = FAILER.replace("END", str(end)).replace("LOG", str(tmp_path / f"{name}.log"))
        request = replace(chain.request, limit=4 * HOUR, exclusive=alone, cpus_per_node=0 if alone else 1)
        request = replace(request, batch=replace(chain.request.batch, text=text))
        return replace(chain, request=request if warned else replace(request, warn=None))

    chains = [
        failer("fails-pinned", alone=True, partition="cpu"),
        failer("fails-beside", alone=False, partition="npu", warned=False),
        failer("fails-warned", alone=False, partition="npu"),
        failer("cancelled-pinned", alone=True, partition="v100"),
        failer("cancelled-beside", alone=False, partition="npu"),
    ]

    def queued(name: str) -> bool:
        links = records(tmp_path / "state")[name].links
        return len(links) == 2 and links[1].job_id != NO_JOB and (tmp_path / f"{name}.log").exists()

    def end_unseen(folder: Path) -> None:
        names = [chain.name for chain in chains]
        testbed.wait_until(lambda: all(map(queued, names)), PATIENCE, "second links that wait")
        daemons[0].send_signal(signal.SIGSTOP)
        found = records(folder)
        for name in ("cancelled-pinned", "cancelled-beside"):
            testbed.ask("scancel", str(found[name].links[0].job_id))
        end.touch()
        second = [str(found[name].links[1].job_id) for name in names]
        ask = ("squeue", "--noheader", "--states=FAILED", f"--jobs={','.join(second)}", "--format=%i")
        testbed.wait_until(lambda: len(testbed.ask(*ask).split()) == len(names), PATIENCE, "all second links' end")
        daemons[0].send_signal(signal.SIGCONT)

    daemons: list[Popen[bytes]] = []
    found = kept(testbed, chains, tmp_path, end_unseen, daemons.append)
    for name, record in found.items():
        assert record.status is ChainStatus.STOPPED, record.reason
        assert record.ended_by == 1, record.reason
        assert (tmp_path / f"{name}.log").read_text().split() == ["+", "1"], name


def test_pinned_link_waits_while_the_one_before_is_suspended(testbed: Testbed, tmp_path: Path) -> None:
    """Slurm starts it on the nodes that are free then; the other one writes on once it is resumed."""
    log = tmp_path / "suspended.log"
    chain = replace(writer("suspended", tmp_path), steering=Steering.PIN)
    chain = replace(chain, request=replace(chain.request, warn=None), done=DoneCondition(links=2))

    def state(job: object) -> str:
        return testbed.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    def suspend(folder: Path) -> None:
        def second() -> Link | None:
            links = records(folder)["suspended"].links
            return links[1] if len(links) == 2 and links[1].job_id and log.exists() else None

        testbed.wait_until(lambda: second() is not None, PATIENCE, "a second link that waits")
        first, waits = records(folder)["suspended"].links[0].job_id, second()
        assert waits is not None
        testbed.ask("scontrol", "suspend", str(first))
        testbed.wait_until(lambda: state(waits.job_id) == "RUNNING", PATIENCE, "the second link on free nodes")
        testbed.service("slurmctld", "stop")  # it looks again while that is away
        sleep(25)
        testbed.service("slurmctld", "start")
        testbed.wait_until(lambda: state(waits.job_id) == "RUNNING", PATIENCE, "slurmctld")
        assert log.read_text().split() == ["+", "1"]
        testbed.ask("scontrol", "update", f"JobId={waits.job_id}", "TimeLimit=120")  # its waiting counts
        testbed.ask("scontrol", "update", f"JobId={first}", "TimeLimit=120")
        testbed.ask("scontrol", "resume", str(first))
        testbed.ask("scancel", "--batch", "--signal=STOP", str(first))
        testbed.wait_until(lambda: state(first) == "STOPPED", PATIENCE, "the first link's stop")
        sleep(18)  # it looks again meanwhile
        assert log.read_text().split() == ["+", "1"]
        testbed.ask("scancel", "--batch", "--signal=CONT", str(first))
        testbed.ask("scontrol", "update", f"JobId={first}", "TimeLimit=6")

    found = kept(testbed, [chain], tmp_path, suspend)["suspended"]
    assert found.status is ChainStatus.DONE
    assert found.links[1].start < found.links[0].end, "its nodes were free"
    assert log.read_text().split() == ["+", "1", "+", "2"]


def test_first_link_waits_for_the_node_that_its_owner_names(testbed: Testbed, tmp_path: Path) -> None:
    """As with sbatch, although another node is free: Mirage does not take it for a binding to nodes."""
    node, me = testbed.nodes[0], getpass.getuser()
    asked = ["sbatch", "--parsable", "--exclusive", f"--nodelist={node}", "--output=/dev/null"]
    before = testbed.run(me, [*asked, "--wrap=sleep infinity"]).stdout.strip()
    ask = ("squeue", "--noheader", "--states=all")
    testbed.wait_until(
        lambda: testbed.ask(*ask, f"--jobs={before}", "--format=%T").strip() == "RUNNING", PATIENCE, "a full node"
    )
    chain = replace(writer("named", tmp_path, options=(f"--nodelist={node}",)), steering=Steering.AUTO)
    chain = replace(chain, done=DoneCondition(links=1))

    def leave(folder: Path) -> None:
        testbed.wait_until(lambda: bool(records(folder)["named"].links[-1:]), PATIENCE, "a first link")
        sleep(6)
        assert testbed.ask(*ask, "--states=PENDING", "--format=%n").split() == [node]
        testbed.ask("scancel", before)

    found = kept(testbed, [chain], tmp_path, leave)["named"]
    assert testbed.ask(*ask, f"--jobs={found.links[0].job_id}", "--format=%N").split() == [node]


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
    assert found["lowered"].links[0].limit < 20 * 60, "the actual limit, not the requested one"


def kept(
    testbed: Testbed,
    chains: Sequence[Chain],
    tmp_path: Path,
    meanwhile: Callable[[Path], None] = lambda folder: None,
    started: Callable[[Popen[bytes]], None] = lambda daemon: None,
    configure: Callable[[Path], None] = lambda config: None,
) -> dict[str, ChainRecord]:
    """The chains' records once a daemon has kept all of them to their end."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    store = open_store(f"sqlite:///{folder}/mirage.db")
    for chain in chains:
        store.chains.save(ChainRecord(chain))
    store.close()
    config = write_config(folder, testbed)
    configure(config)
    daemon = start(config)
    started(daemon)
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
