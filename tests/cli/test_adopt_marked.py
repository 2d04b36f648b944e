"""``mirage adopt --if-marked`` as a process, as a daemon runs it, and what the owner finds after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cli.submit_world import folder
from cli.test_adopt import SCRIPT, adopt, comments, shown, slurm, world

from mirage.backends.marked_jobs import comment_options, is_off, resubmission
from mirage.domain.job import JobId
from mirage.slurm.wrapper import Gate, gated

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from api_world import World

__all__ = ["folder", "slurm", "world"]


def run(slurm: Path, world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("--if-marked", "--no-check", "--parsable", "--quiet", *arguments)
    return adopt(slurm, "47", *options, MIRAGE_SOCKET=str(world.socket))


def without_comment(slurm: Path) -> None:
    shown(slurm, ("   Comment=my own\n", ""))


def test_marked_job_is_adopted_and_the_journal_says_why(slurm: Path, world: World) -> None:
    done = run(slurm, world)
    assert done.returncode == 0, done.stderr
    (record,) = world.loop.records
    assert done.stdout.strip() == record.chain.chain_id
    assert "its script has #MIRAGE lines" in record.links[0].reason
    batch = record.chain.request.batch
    assert batch is not None
    assert (batch.umask, batch.resource_limits) == (None, ()), "a daemon's are not the user's"


@pytest.mark.parametrize(
    ("script", "changes"),
    [
        (SCRIPT.replace("#MIRAGE", "# MIRAGE"), []),
        (SCRIPT.replace("#MIRAGE", "true\n#MIRAGE"), []),
        (gated(SCRIPT, Gate(JobId(46), done_code=0)), []),
        (SCRIPT, [("Comment=my own", "Comment=mirage:off")]),
        (SCRIPT, [("Comment=my own", "Comment=mirage:train-abcde.4hq2zk7a:1")]),
        (SCRIPT, [("JobState=RUNNING", "JobState=COMPLETED")]),
        (SCRIPT, [("BatchFlag=1", "BatchFlag=0")]),
    ],
)
def test_other_jobs_are_left_alone(slurm: Path, world: World, script: str, changes: list[tuple[str, str]]) -> None:
    """Without a word: of jobs that ask for nothing, links, and jobs that have ended."""
    (slurm / "script").write_text(script)
    shown(slurm, *changes)
    done = run(slurm, world)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (comments(slurm), world.loop.records) == ([], [])


def test_comment_alone_is_enough_and_is_restored_where_no_chain_is_made(slurm: Path, world: World) -> None:
    (slurm / "script").write_text(SCRIPT.replace("#MIRAGE", "# MIRAGE"))
    shown(slurm, ("Comment=my own", "Comment=mirage: --links 5"))
    world.loop.ended.set()
    world.loop.over.wait(60)
    assert run(slurm, world, "--socket=/nowhere").returncode == 5
    assert comments(slurm) == []


@pytest.mark.parametrize(
    ("script", "changes", "words"),
    [
        (SCRIPT.replace("8", "none"), [], "--links"),
        (SCRIPT + "sbatch --nice=3 /other/train.sh 4\n", [], "submits itself"),
        (SCRIPT, [("JobName=", "ArrayJobId=47 ArrayTaskId=1 JobName=")], "array"),
        (SCRIPT, [("TimeLimit=12:00:00", "TimeLimit=UNLIMITED")], "no time limit"),
    ],
)
def test_fault_stands_in_the_comment(
    slurm: Path, world: World, script: str, changes: list[tuple[str, str]], words: str
) -> None:
    without_comment(slurm)
    (slurm / "script").write_text(script)
    shown(slurm, *changes)
    assert run(slurm, world).returncode == 4
    (said,) = comments(slurm)
    assert said.startswith("mirage:off ")
    assert words in said
    assert run(slurm, world).returncode == 0, "and then it is left alone"
    assert len(comments(slurm)) == 1


def test_comment_of_the_owner_is_not_replaced_by_a_fault(slurm: Path, world: World) -> None:
    (slurm / "script").write_text(SCRIPT.replace("8", "none"))
    assert run(slurm, world).returncode == 4
    assert comments(slurm) == []


def test_mark_of_another_daemon_is_neither_replaced_nor_a_fault(slurm: Path, world: World) -> None:
    """It was set between this one's mark and the creation of the chain."""
    (slurm / "stolen").write_text("Comment=mirage:other-abcde.4hq2zk7a:1")
    assert run(slurm, world).returncode == 3
    assert [record.chain.done.links for record in world.loop.records] == [1]
    assert len(comments(slurm)) == 1


@pytest.mark.parametrize(
    ("comment", "options", "off"),
    [
        ("mirage: --links 5", "--links 5", False),
        ("mirage:--links=5", "--links=5", False),
        ("mirage:", "", False),
        ("mirage:off", None, True),
        ("mirage: off because", None, True),
        ("mirage:offline.4hq2zk7a:1", None, False),
        ("mirage:off:1", None, True),
        ("mirage: links 5", None, False),
        ("mirage", None, False),
        ("xmirage: --links 5", None, False),
    ],
)
def test_comment_is_read(comment: str, options: str | None, off: bool) -> None:
    assert (comment_options(comment), is_off(comment)) == (options, off)


@pytest.mark.parametrize(
    ("line", "itself"),
    [
        ("sbatch $0", True),
        ('/usr/bin/sbatch -d afterany:$SLURM_JOB_ID "$0"', True),
        ("[ -e done ] || sbatch train.sh", True),
        ("id=$(sbatch --parsable ./train.sh)", True),
        ('sbatch "${BASH_SOURCE[0]}"', True),
        ("# sbatch $0", False),
        ("sbatch evaluate.sh", False),
        ("sbatch pretrain.sh", False),
        ("echo train.sh | my-sbatch", False),
    ],
)
def test_script_that_submits_itself_is_known(line: str, itself: bool) -> None:
    assert bool(resubmission(f"#!/bin/sh\n{line}\n", "/home/ada/train.sh")) is itself
