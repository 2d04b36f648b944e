"""Tasks within links on a real Slurm: placed as planned, carried from link to link, through what goes wrong."""

from __future__ import annotations

import getpass
import json
import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from allocation.engine_world import Site, engine_of
from allocation_link import PATIENCE, Work
from test_daemon import record, start, write_config

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.discovery import Device, NodeFound
from mirage.allocation.engine.taskfile import read_plan
from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus, DoneCondition
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

    from mirage.allocation.engine.task_states import TaskStates

# Counts minutes; on a save signal, and at its end (a signal just then restarts it), it writes down how far it is.
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
echo $minute >long{n}.saved
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
    written = Counter((work.folder / "shorts").read_text().split())
    for n in range(SHORTS):
        # The link may end between what the task writes and its exit: that attempt does not count.
        *before, last = work.results(f"short{n}")
        assert (last, "succeeded" in before) == ("succeeded", False)
        assert 1 <= written.pop(f"short{n}") <= 1 + len(before), f"short{n}: {before}"
    assert not written


# 100 tasks as planned

NODES = ("a100-001", "a100-002")
TWO_NODES = (
    f"--nodelist={','.join(NODES)}",
    "-N2",
    "--ntasks-per-node=1",
    "-c32",
    "--gres=gpu:a100:4",
    "-pa100",
    "-t10:00:00",
)
SIZES = (1, 1, 1, 1, 2, 2, 3, 4, 4, 6)
HUNDRED = 100
WAITS = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; while ! [ -e go.$MIRAGE_TASK ]; do sleep 0.1; done"


def write_hundred(work: Work) -> None:
    """Each ends when a file says so: what is compared does not hang on how long anything takes."""
    chance = random.Random(6)
    entries = []
    for n in range(HUNDRED):
        devices = chance.choice(SIZES)
        more = f"share = {chance.choice([0.5, 1.0])}" if devices == 1 else f"max_nodes = {1 + (devices > 4)}"
        entries.append(
            f'[[task]]\nid = "t{n:02}"\ndevices = {devices}\n{more}\nexpected = {chance.randint(60, 6000)}\n'
            f'script = "{WAITS}"\n'
        )
    work.write("\n".join(entries))


def planned(work: Work) -> tuple[list[str], TaskStates, list[tuple[str, int]]]:
    """The result of the same policy where nothing takes time: the starts; each end, and the starts before it."""
    ordering, placer = registry.ordering("sjf"), registry.placer("best-fit")
    site = Site.of(work.folder / "plan", *read_plan(work.folder / "tasks.toml").tasks)
    found = tuple(NodeFound(name, 32, 512_000, tuple(Device(n, "gpu:a100") for n in range(4))) for name in NODES)
    agent = site.link(found=found, decide=lambda view: dispatch(view, ordering, placer, DispatchRules()))
    engine, chance, ends = engine_of(agent), random.Random(7), list[tuple[str, int]]()
    while agent.cycle() is not Progress.OVER:
        key = chance.choice(sorted(engine.living.keys() - engine.ended.keys()))
        ends.append((key.rpartition(".")[0], len(engine.launched)))
        engine.finish(key)
    return [launch.environment["MIRAGE_TASK"] for launch in engine.launched], site.ledger(), ends


def test_a_hundred_tasks_start_in_the_planned_order_on_the_planned_devices(real_clock_work: Work) -> None:
    work = real_clock_work
    write_hundred(work)
    starts, plan, ends = planned(work)
    job = work.submit(f"exec {work.command('--ordering=sjf', '--placer=best-fit')}", *TWO_NODES)
    for task, started in ends:
        work.wait(lambda started=started: len(work.ledger().attempts) >= started, f"{started} starts")
        (work.folder / f"go.{task}").touch()
        work.wait(lambda task=task: work.results(task) != ["open"], f"the end of {task}")
    work.wait(lambda: work.ended(job), "the end of the job")
    real = work.ledger()
    begun = sorted((tries[1].start or 0.0, name) for name, tries in real.attempts.items())
    assert [name for _, name in begun] == starts
    assert {name: tries[1].parts for name, tries in real.attempts.items()} == {
        name: tries[1].parts for name, tries in plan.attempts.items()
    }
    assert all(work.results(name) == ["succeeded"] for name in starts)
    work.check()
    for name in starts:
        seen = {tuple(line.split()) for line in (work.state / f"logs/{name}.log").read_text().splitlines()}
        parts = real.attempts[name][1].parts or {}
        assert seen == {(node, ",".join(map(str, devices))) for node, devices in parts.items()}
    assert json.loads((work.state / "status.json").read_text())["over"]


# what goes wrong

MARKS = """
[[task]]
id = "t{n}"
script = "echo b >>marks.{n}; sleep 2; while [ -e hold ]; do sleep 0.2; done; echo e >>marks.{n}"
"""
ONE_NODE = ("-N1", "--ntasks-per-node=1", "-c32", "--gres=gpu:a100:4", "-pa100", "-t20")


def test_an_agent_killed_with_9_in_its_job_loses_nothing_and_runs_nothing_twice(real_clock_work: Work) -> None:
    """The batch script starts it again; its steps have run on meanwhile."""
    work = real_clock_work
    work.write("".join(MARKS.format(n=n) for n in range(16)))
    job = work.submit(f"until {work.command()}; do echo again; done", *ONE_NODE)
    hold = work.folder / "hold"
    for least in (2, 8):
        work.wait(lambda least=least: len(list(work.folder.glob("marks.*"))) >= least, f"{least} tasks")
        hold.touch()
        work.wait(lambda: [file.read_text() for file in work.folder.glob("marks.*")].count("b\n") == 4, "four")
        followed = work.said().count("still runs, and is monitored again")
        lives = sorted(work.ledger().lives.values(), key=lambda life: life.name)
        assert lives[-1].began is not None
        os.kill(lives[-1].began.pid, signal.SIGKILL)
        known = len(lives)
        work.wait(lambda known=known: len(work.ledger().lives) > known, "another agent")
        work.wait(
            lambda before=followed: work.said().count("still runs, and is monitored again") == before + 4,
            "its look",
        )
        hold.unlink()
    work.wait(lambda: work.ended(job), "the end of the job")
    assert [(work.folder / f"marks.{n}").read_text().split() for n in range(16)] == [["b", "e"]] * 16, work.said()
    assert all(work.results(f"t{n}") == ["succeeded"] for n in range(16))
    work.check()


def test_a_failing_nodes_tasks_run_on_the_others(real_clock_work: Work) -> None:
    work = real_clock_work
    text = "[[task]]\nid = 't{n}'\ndevices = 4\nscript = 'sleep {seconds}; echo $SLURMD_NODENAME'\n"
    work.write("".join(text.format(n=n, seconds=8) for n in range(4)))
    job = work.submit(f"exec {work.command()}", "--no-kill", *TWO_NODES)
    work.wait(lambda: len(list((work.state / "steps").glob("*.began"))) == 2, "two tasks")
    work.testbed.node(NODES[1], "down")
    work.wait(lambda: work.ended(job), "the end of the job")
    work.testbed.node(NODES[1], "resume")
    every = [result for n in range(4) for result in work.results(f"t{n}")]
    assert sorted(every) == ["node-failed", *["succeeded"] * 4], work.said()
    assert [aside for life in work.ledger().lives.values() for aside in life.aside] == [NODES[1]]
    work.check()


# making room, and who signals whom

MAKES_ROOM = """
[[task]]
id = "gate"
devices = 0
expected = 1
script = "while ! [ -e ready ]; do sleep 0.2; done"

[[task]]
id = "low"
devices = 4
expected = "2h"
checkpoint = { signal = "USR1", grace = "2m", restart = 0 }
script = '''
trap 'saved=yes' USR1
echo $MIRAGE_ATTEMPT $(cat saved 2>/dev/null) $CUDA_VISIBLE_DEVICES >>low
touch ready
while ! [ -e saved ]; do
  sleep 0.2
  if [ "$saved" ]; then sleep 3; echo saved >saved; exit 0; fi
done
'''

[[task]]
id = "high"
devices = 4
expected = "1m"
after = ["gate"]
script = "sleep 3"
"""


def test_who_makes_room_saves_within_its_step_and_goes_on_where_it_was(real_clock_work: Work) -> None:
    work = real_clock_work
    work.write(MAKES_ROOM)
    job = work.submit(f"exec {work.command('--ordering=sjf', '--preempt')}", *ONE_NODE)
    work.wait(lambda: work.ended(job), "the end of the job")
    ledger = work.ledger()
    assert work.results("low") == ["preempted", "succeeded"], work.said()
    assert all(work.results(name) == ["succeeded"] for name in ("gate", "high")), work.said()
    assert (work.folder / "low").read_text().splitlines() == ["1 0,1,2,3", "2 saved 0,1,2,3"]
    low, high = ledger.attempts["low"], ledger.attempts["high"][1]
    assert low[1].ended is not None
    assert high.start is not None
    assert low[1].ended.at <= high.start
    assert json.loads((work.state / "status.json").read_text())["over"]
    work.check()


TOLD_BY_SLURM = """
[[task]]
id = "saves"
checkpoint = { signal = "USR1", grace = "2m", restart = 0 }
script = "[ -e saved ] || { trap 'touch saved; exit 0' USR1; while :; do sleep 5 & wait $!; done; }"

[[task]]
id = "dies"
script = "[ $MIRAGE_ATTEMPT = 2 ] || sleep 36000"
"""


def test_what_slurm_tells_to_every_step_before_the_limit_is_not_taken_for_success(work: Work) -> None:
    """``--signal`` without ``B:``: the steps get the signal, the agent does not."""
    work.write(TOLD_BY_SLURM)
    options = [option for option in ONE_NODE if not option.startswith("-t")]
    job = work.submit(f"exec {work.command()}", "-t180", "--signal=USR1@5400", *options)
    work.wait(lambda: work.ended(job), "the end of the job")
    assert work.results("saves") == ["checkpointed", "succeeded"], work.said()
    assert work.results("dies") == ["cut-off", "succeeded"], work.said()
    assert "killed by USR1, which signalled its whole step" in work.said()
    assert "received USR1 from outside" in work.said()
    work.check()
