"""A file system that is full for a while: what runs is followed on, nothing starts, and no result is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from allocation.engine_world import Site, engine_of, run_to_end, task
from allocation.test_engine_processes import Runs, tasks
from small_disks import mounted

from mirage.allocation.engine.entries import Remark, Starting
from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
from mirage.allocation.engine.steps import LISTEN, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
STARTING = Starting(3.0, "t", 1, {"n": [0]}, 1.0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    with mounted(folder, "400k"):
        yield folder


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        fill_up(file)
    return ballast


def fill_up(file: FileIO) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
        while True:
            file.write(b"x" * 512)


@ROOT
def test_entries_wait_for_room_in_their_order_and_no_line_is_cut(disk: Path) -> None:
    folder = StateFolder(disk / "state")
    folder.make()
    writer, reader = JournalWriter(folder, "a"), JournalReader(folder)
    writer.write(Remark(1.0, "before"))
    ballast = fill(disk)
    late = [Remark(float(n), "x" * 1_500) for n in range(2, 9)]
    for entry in late:
        writer.write(entry)
    assert writer.problem
    with pytest.raises(OSError, match="No space"):
        writer.write(STARTING, first=True)
    found = [entry for _, entry in reader.news()]
    assert found == [Remark(1.0, "before"), *late[: len(found) - 1]]
    ballast.unlink()
    writer.write(STARTING, first=True)
    assert (writer.problem, writer.close()) == ("", 0)
    assert found + [entry for _, entry in reader.news()] == [Remark(1.0, "before"), *late, STARTING]


@ROOT
def test_nothing_is_started_without_room_and_everything_once_there_is(disk: Path) -> None:
    site = Site.of(disk / "state", task("a"), task("b"))
    agent = site.link()
    ballast = fill(disk)
    while not agent.world.journal.problem:
        agent.write(Remark(0.0, "x" * 600))
    for _ in range(3):
        agent.cycle()
        site.pass_time(5)
    assert not engine_of(agent).living
    assert not agent.running
    ballast.unlink()
    agent.cycle()
    assert not agent.world.journal.waits
    run_to_end(site, agent)
    agent.close("over")
    assert [str(each.ended.result) for name in "ab" for each in site.ledger().of(name) if each.ended] == [
        "succeeded"
    ] * 2
    assert [each.number for name in "ab" for each in site.ledger().of(name)] == [1, 1]
    told = [text for text in site.said if "written" in text]
    assert len(told) == 2


@ROOT
def test_what_never_found_room_is_counted(disk: Path) -> None:
    folder = StateFolder(disk / "state")
    folder.make()
    writer = JournalWriter(folder, "a")
    fill(disk)
    for _ in range(5):
        writer.write(Remark(2.0, "x" * 5_000))
    assert writer.close() > 0


@ROOT
def test_tasks_that_end_while_the_disk_is_full_have_ended_well(disk: Path) -> None:
    runs = Runs(disk)
    outside = disk.parent
    try:
        text = tasks(
            ("short", f"while [ ! -e {outside}/go ]; do sleep 0.1; done", ""),
            ("long", f"while [ ! -e {outside}/on ]; do sleep 0.1; done", ""),
            ("next", f"touch {outside}/next", "after = ['short']"),
        )
        runs.write(text.replace("script =", f"output = '{outside}/out'\nscript ="))
        child = runs.start(devices=3)
        runs.until(lambda: runs.results("long") == ["open"] and runs.results("short") == ["open"], "their start")
        time.sleep(1)
        ballast = fill(disk)
        (outside / "go").touch()
        time.sleep(8)
        assert child.poll() is None, "the agent lives on"
        assert not (outside / "next").exists(), "nothing is started that could not be written down"
        (outside / "on").touch()
        time.sleep(2)
        ballast.unlink()
        code, said = runs.finish(child)
        assert code == 0, said
        assert [runs.results(name) for name in ("short", "long", "next")] == [["succeeded"]] * 3
        assert "Traceback" not in said
    finally:
        runs.kill_all()


@ROOT
def test_task_is_told_to_save_though_that_cannot_be_written_down(disk: Path) -> None:
    runs = Runs(disk)
    outside = disk.parent
    try:
        script = f"trap 'touch {outside}/saved; exit 0' USR1; touch {outside}/ready; while :; do sleep 0.1; done"
        text = tasks(("saves", script, "checkpoint = { signal = 'USR1', grace = '1m' }"))
        runs.write(text.replace("script =", f"output = '{outside}/out'\nscript ="))
        child = runs.start(devices=1)
        runs.until((outside / "ready").exists, "the task")
        ballast = fill(disk)
        child.terminate()
        runs.until((outside / "saved").exists, "the checkpoint")
        ballast.unlink()
        code, said = runs.finish(child)
        assert code == 75, said
        assert runs.results("saves") == ["checkpointed"]
        assert "Traceback" not in said
    finally:
        runs.kill_all()


def test_signal_to_save_reaches_a_task_whose_folder_takes_no_file(tmp_path: Path) -> None:
    """A shell ends where a redirection of its commands fails, also in a trap."""
    script = LISTEN + 'sleep 0.2; kill -USR1 $$; echo "still here"\n'
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"MIRAGE_STEP": f"{tmp_path}/nowhere/t.1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")


def test_file_whose_folder_is_gone_is_waited_for_no_more(tmp_path: Path) -> None:
    lines = written(': >"$STEP.began"', "STEP") + "echo over\n"
    environment = {"STEP": f"{tmp_path}/nowhere/t.1", "PATH": os.environ["PATH"]}
    done = subprocess.run(["/bin/sh", "-c", lines], env=environment, capture_output=True, timeout=30, check=False)
    assert done.stdout == b"over\n"
