"""``mirage adopt`` as a process, on a scontrol that shows one job, with a daemon that believes its comment."""

from __future__ import annotations

import json
import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest
from api_world import START, serve
from cli.submit_world import folder, submit

from mirage.backends.links_only import JobIdentity
from mirage.domain.job import JobId, JobState
from mirage.slurm.wrapper import Gate, gated

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

__all__ = ["folder"]

ME = pwd.getpwuid(os.getuid()).pw_name
UID = os.getuid()
SHOWN = f"""\
JobId=47 JobName=train
   UserId={ME}({UID}) GroupId=x(1) MCS_label=N/A
   Priority=1 Nice=0 Account=research QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:02:51 TimeLimit=12:00:00 TimeMin=N/A
   Partition=gpu AllocNode:Sid=localhost:3973
   ReqNodeList=(null) ExcNodeList=(null)
   NumNodes=2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)
   Command=/home/train.sh --epochs 3
   WorkDir=HERE
   Comment=my own
   StdErr=HERE/slurm-47.out
   StdIn=/dev/null
   StdOut=HERE/slurm-47.out

"""
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=1 -t 2-00:00:00 --signal=B:USR1@300\n#MIRAGE --links 8\ntrain\n"
SCONTROL = """\
#!/bin/sh
case $1 in
  show) cat "$HOME/shown" && exit "$(cat "$HOME/status")" ;;
  write) cat "$HOME/script" 2>/dev/null || echo "job script retrieval failed: Invalid job id specified" >&2 ;;
  update)
    [ ! -e "$HOME/refuses" ] || { echo "Access/permission denied for job 47" >&2; exit 1; }
    echo "${3#Comment=}" >>"$HOME/comments"
    grep -v Comment= "$HOME/shown" >"$HOME/changed"
    sed "s|WorkDir=.*|&\\n   $(cat "$HOME/stolen" 2>/dev/null || echo "$3")|" "$HOME/changed" >"$HOME/shown" ;;
esac
"""


@pytest.fixture
def slurm(folder: Path) -> Path:
    """With job 47; what its comment has been set to is in ``comments``."""
    (folder / "bin" / "scontrol").write_text(SCONTROL)
    (folder / "shown").write_text(SHOWN.replace("HERE", str(folder)))
    (folder / "status").write_text("0")
    (folder / "script").write_text(SCRIPT)
    return folder


@pytest.fixture
def world(slurm: Path) -> Iterator[World]:
    def identify(job_id: JobId, owner: str) -> JobIdentity:
        return JobIdentity(owner, comments(slurm)[-1], START, JobState.RUNNING)

    yield from serve(identify=identify)


def comments(slurm: Path) -> list[str]:
    file = slurm / "comments"
    return file.read_text().splitlines() if file.exists() else []


def adopt(slurm: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return submit(slurm, *arguments, program="adopt", **variables)


def shown(slurm: Path, *changes: tuple[str, str]) -> None:
    text = (slurm / "shown").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (slurm / "shown").write_text(text)


def plan(slurm: Path, *arguments: str, **variables: str) -> Any:
    done = adopt(slurm, "47", "--dry-run", "--json", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert comments(slurm) == []
    return json.loads(done.stdout)


def test_next_link_is_like_the_job(slurm: Path) -> None:
    found = plan(slurm, SBATCH_PARTITION="other", MINE="1")
    expected = {"--nodes=2", "--time=12:00:00", "--partition=gpu", "--account=research", "--exclusive"}
    assert expected <= set(found["sbatch"])
    assert f"--comment=mirage:{found['chain']['chain_id']}:2" in found["sbatch"]
    assert (found["script"], found["arguments"]) == (SCRIPT, ["--epochs", "3"])
    assert found["chain"]["done"] == {"links": 8}
    assert found["chain"]["handover"]["signal"]["name"] == "USR1"
    assert "MINE" in found["environment"]


@pytest.mark.parametrize(
    ("line", "options", "remarks"),
    [
        ("sbatch -N2 -n2 --signal=B:USR2@120 -p other train.sh --epochs 3", {"--ntasks=2", "--nodes=2"}, 0),
        ("sbatch -J my run -n2 train.sh", set(), 1),
    ],
)
def test_next_link_has_the_options_of_the_command_line(
    slurm: Path, line: str, options: set[str], remarks: int
) -> None:
    """The values that Slurm shows take precedence: they may have been changed. Unreadable ones are reported."""
    sacct = slurm / "bin" / "sacct"
    sacct.write_text(f"#!/bin/sh\necho '{line}'\n")
    sacct.chmod(0o755)
    done = adopt(slurm, "47", "--dry-run", "--json")
    found = json.loads(done.stdout)
    assert set(found["sbatch"]) & {"--ntasks=2", "--nodes=2", "--partition=other"} >= options
    assert "--partition=gpu" in found["sbatch"]
    assert ("--signal=B:USR2@120" in found["sbatch"]) == bool(options)
    assert done.stderr.count("is ambiguous") == remarks


@pytest.mark.parametrize("wraps", [1, 2])
def test_former_link_is_followed_by_its_users_script_and_unbound(slurm: Path, wraps: int) -> None:
    """Its daemon's database was lost: what Mirage has put around the script, and the nodes, are not the user's."""
    script = SCRIPT
    for _ in range(wraps):
        script = gated(script, Gate(JobId(46), done_code=0))
    (slurm / "script").write_text(script)
    shown(slurm, ("ReqNodeList=(null)", "ReqNodeList=cpu-001"))
    sacct = slurm / "bin" / "sacct"
    sacct.write_text(
        "#!/bin/sh\necho 'sbatch --parsable --nodelist=cpu-001 --exclusive --dependency=afterany:46'\n"
    )
    sacct.chmod(0o755)
    done = adopt(slurm, "47", "--dry-run", "--json")
    found = json.loads(done.stdout)
    assert (found["script"], found["chain"]["done"]) == (SCRIPT, {"links": 8})
    assert not [option for option in found["sbatch"] if option.startswith(("--nodelist", "--dependency"))]
    assert "cpu-001" in done.stderr
    assert "left out" in done.stderr
    kept = json.loads(adopt(slurm, "47", "--dry-run", "--json", "-w", "cpu-002").stdout)
    assert "--nodelist=cpu-002" in kept["sbatch"]


@pytest.mark.parametrize("order", [("47", "--links=3", "-N1", "--", "--lr", "1 2"), None])
def test_options_stand_on_both_sides_of_the_job(slurm: Path, order: tuple[str, ...] | None) -> None:
    words = order or ("--links=3", "47", "-N1", "--", "--lr", "1 2")
    done = adopt(slurm, "--dry-run", "--json", *words)
    found = json.loads(done.stdout)
    assert (found["chain"]["done"], found["arguments"]) == ({"links": 3}, ["--lr", "1 2"])
    assert "--nodes=1" in found["sbatch"]


def test_adoption_marks_the_job_and_makes_the_chain(slurm: Path, world: World) -> None:
    done = adopt(slurm, "47", "--no-check", "--parsable", MIRAGE_SOCKET=str(world.socket))
    assert done.returncode == 0, done.stderr
    (record,) = world.loop.records
    assert done.stdout.strip() == record.chain.chain_id
    assert comments(slurm) == [record.chain.tag(1)]
    assert [link.job_id for link in record.links] == [47]
    assert record.chain.request.limit == 12 * 3_600
    assert "my own" in done.stderr


def test_job_that_another_chain_has_marked_meanwhile_is_followed_by_one(slurm: Path, world: World) -> None:
    """Another daemon adopts it at the same moment: its chain continues, in ours no link follows."""
    (slurm / "stolen").write_text("Comment=mirage:other-abcde.4hq2zk7a:1")
    done = adopt(slurm, "47", "--no-check", MIRAGE_SOCKET=str(world.socket))
    assert done.returncode == 1
    assert "mirage:other-abcde.4hq2zk7a:1" in done.stderr
    (record,) = world.loop.records
    assert record.chain.done.links == 1
    assert len(comments(slurm)) == 1, "the mark of the other job stays"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([(f"({UID})", "(4242)")], "belongs to another user"),
        ([("JobName=", "ArrayJobId=46 ArrayTaskId=1 JobName=")], "array"),
        ([("JobName=", "HetJobId=46 HetJobOffset=0 JobName=")], "heterogeneous"),
        ([("JobState=RUNNING", "JobState=TIMEOUT")], "has ended"),
        ([("JobState=RUNNING", "JobState=COMPLETING")], "has ended"),
        ([("BatchFlag=1", "BatchFlag=0")], "salloc"),
        ([("Comment=my own", "Comment=mirage:train-abcde.4hq2zk7a:3")], "link 3 of chain train-abcde.4hq2zk7a"),
        ([("RUNNING", "PENDING"), ("Dependency=(null)", "Dependency=afterok:46(unfulfilled)")], "afterok:46"),
    ],
)
def test_job_that_cannot_be_a_link_is_left_alone(
    slurm: Path, world: World, changes: list[tuple[str, str]], words: str
) -> None:
    shown(slurm, *changes)
    done = adopt(slurm, "47", "--no-check", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, words in done.stderr) == (4, True), done.stderr
    assert (comments(slurm), world.loop.records) == ([], [])


def test_job_or_script_that_slurm_does_not_show_is_reported(slurm: Path) -> None:
    (slurm / "script").unlink()
    assert adopt(slurm, "47").returncode == 1
    (slurm / "status").write_text("1")
    assert adopt(slurm, "47").returncode == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("47_1",),
        ("x",),
        ("0",),
        ("99999999999",),
        ("47", "48"),
        ("--hold", "47"),
        ("--begin=now", "47"),
        ("--wrap=true", "47"),
        ("--held-links=2", "47"),
        ("--chain=c", "47"),
        ("47", "--links=0"),
        ("47", "--no-such"),
    ],
)
def test_wrong_command_line_is_one_line(slurm: Path, arguments: tuple[str, ...]) -> None:
    done = adopt(slurm, *arguments)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert comments(slurm) == []


def test_without_a_daemon_the_job_keeps_its_comment(slurm: Path) -> None:
    assert adopt(slurm, "47", "--no-check").returncode == 5
    assert comments(slurm) == []


def test_comment_that_cannot_be_set_makes_no_chain(slurm: Path, world: World) -> None:
    (slurm / "refuses").touch()
    done = adopt(slurm, "47", "--no-check", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, "permission denied" in done.stderr) == (1, True)
    assert world.loop.records == []


def test_rejected_chain_gives_the_comment_back(slurm: Path) -> None:
    """By a daemon whose cluster has no such jobs."""
    for world in serve():
        done = adopt(slurm, "47", "--no-check", MIRAGE_SOCKET=str(world.socket))
        assert done.returncode == 1
        assert world.loop.records == []
    assert len(comments(slurm)) == 2
    assert comments(slurm)[-1] == "my own"


def test_chain_that_may_have_been_made_keeps_the_mark(slurm: Path, world: World) -> None:
    """The loop does not answer: whether it has applied the command is unknown."""
    world.loop.ended.set()
    world.loop.over.wait(60)
    object.__setattr__(world.service, "patience", 0.5)
    done = adopt(slurm, "47", "--no-check", MIRAGE_SOCKET=str(world.socket))
    assert done.returncode == 1
    assert len(comments(slurm)) == 1
    assert comments(slurm)[0].startswith("mirage:train-")


def test_help_is_shown_without_slurm(slurm: Path) -> None:
    done = adopt(slurm, "--help", PATH="/nowhere")
    assert (done.returncode, "JOBID" in done.stdout) == (0, True)
