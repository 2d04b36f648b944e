"""``scontrol show job``, and the options that make further jobs like the one that it shows."""

from __future__ import annotations

import pytest

from mirage.domain.errors import BadSpelling
from mirage.domain.job import JobId, JobState
from mirage.slurm.sbatchoptions import Given
from mirage.slurm.shown_jobs import (
    further_options,
    options_of_line,
    read_shown_job,
    shown_arguments,
    without_chosen,
)

RECORDED = """\
JobId=1 JobName=my train UserId=root(0)
   UserId=alice(1001) GroupId=alice(1001) MCS_label=N/A
   Priority=101063 Nice=0 Account=research QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:02:51 TimeLimit=02:00:00 TimeMin=N/A
   SubmitTime=2026-11-28T09:43:05 EligibleTime=2026-11-28T09:43:05
   AccrueTime=2026-11-28T09:43:05
   StartTime=2026-11-28T09:43:15 EndTime=2026-11-28T11:43:15 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-28T09:43:15 Scheduler=Main
   Partition=a100 AllocNode:Sid=localhost:3973
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=a100-001
   BatchHost=a100-001
   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=1,node=1,billing=6,gres/gpu=2,gres/gpu:a100=2
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=2G MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/home/alice/train.sh a b c
   WorkDir=/home/alice/my runs
   Comment=my own UserId=root(0)
   StdErr=/home/alice/my runs/log.1
   StdIn=/dev/null
   StdOut=/home/alice/my runs/log.1
   Power=
   TresPerNode=gres:gpu:a100:2


"""
"""Of Slurm 22.05, with blanks in what users name."""
PLAIN = {
    "--partition=a100",
    "--account=research",
    "--qos=normal",
    "--job-name=my train UserId=root(0)",
    "--chdir=/home/alice/my runs",
    "--time=02:00:00",
}


def options(text: str, said: dict[str, str | None] | None = None, given: tuple[str, ...] = ()) -> set[str]:
    before = {name: Given(name, value, "train.sh:2") for name, value in (said or {}).items()}
    return {option.spelling for option in further_options(read_shown_job(text, JobId(1)), before, given)}


def beyond(said: dict[str, str | None], *changes: tuple[str, str]) -> set[str]:
    text = RECORDED
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return {each for each in options(text, said) - PLAIN if not each.startswith("--output")}


def test_values_with_blanks_are_whole_and_no_word_of_a_user_is_a_field() -> None:
    job = read_shown_job(RECORDED, JobId(1))
    assert (job.uid, job.state) == (1001, JobState.RUNNING)
    assert job.value("WorkDir") == "/home/alice/my runs"
    assert job.value("Comment") == "my own UserId=root(0)"
    assert job.value("Dependency") == ""
    assert shown_arguments(job) == ("a", "b", "c")


@pytest.mark.parametrize("text", ["", "JobId=2 JobName=x\n", "JobId=1 JobName=x\n   UserId=x JobState=RUNNING\n"])
def test_job_that_is_not_shown_is_reported(text: str) -> None:
    with pytest.raises(BadSpelling):
        read_shown_job(text, JobId(1))


def test_further_jobs_have_what_the_job_has() -> None:
    found = options(RECORDED, {"time": "5:00:00", "nodes": "1"})
    assert found == PLAIN | {"--mem=2048M", "--gres=gpu:a100:2", "--output=/home/alice/my runs/log.%j"}


def test_what_the_script_says_in_other_words_is_not_said_twice() -> None:
    assert beyond({"mem": "2G", "gpus-per-node": "a100:2"}) == set()
    assert beyond({"mem": "2048", "gres": "gpu:a100:2"}) == set()
    assert beyond({"mem": "2G", "gpus-per-node": "a100:4"}) == {"--gpus-per-node=a100:2"}


@pytest.mark.parametrize(
    ("said", "change", "found"),
    [
        ({}, ("NumNodes=1 ", "NumNodes=4 "), {"--nodes=4"}),
        ({"nodes": "2"}, ("NumNodes=1 ", "NumNodes=4 "), {"--nodes=4"}),
        ({"nodes": "2-8"}, ("NumNodes=1 ", "NumNodes=4 "), set()),
        ({}, ("NumNodes=1 ", "NumNodes=4-4 "), {"--nodes=4"}),
        ({}, ("NumNodes=1 ", "NumNodes=2-4 "), set()),
        ({"ntasks": "64"}, ("NumNodes=1 NumCPUs=1 NumTasks=1 ", "NumNodes=7 NumTasks=64 "), set()),
        ({}, ("NumTasks=1 CPUs/Task=1", "NumTasks=8 CPUs/Task=2"), {"--ntasks=8", "--cpus-per-task=2"}),
        ({}, ("NtasksPerN:B:S:C=0", "NtasksPerN:B:S:C=2"), {"--ntasks-per-node=2"}),
        ({}, ("OverSubscribe=OK", "OverSubscribe=NO"), {"--exclusive"}),
        ({}, ("OverSubscribe=OK", "OverSubscribe=USER"), {"--exclusive=user"}),
        ({"exclusive": None}, ("OverSubscribe=OK", "OverSubscribe=NO"), set()),
        ({"exclusive": None}, ("OverSubscribe=OK", "OverSubscribe=YES"), {"--oversubscribe"}),
        ({}, ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=NO"), set()),
        ({}, ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=NODE"), {"--exclusive"}),
        ({}, ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=USER"), {"--exclusive=user"}),
        ({}, ("TresPerNode=gres:gpu:a100:2", "TresPerNode=(null)"), {"--gres=none"}),
        ({}, ("   TresPerNode=gres:gpu:a100:2\n", ""), {"--gres=none"}),
        ({}, ("Requeue=1", "Requeue=0"), {"--no-requeue"}),
        ({}, ("Power=", "CpusPerTres=gres:gpu:4"), {"--cpus-per-gpu=4"}),
        ({"cpus-per-gpu": "4"}, ("Power=", "CpusPerTres=gres/gpu=4"), set()),
        ({"mem": None}, ("Power=", "MemPerTres=gres:gpu:2048"), {"--mem-per-gpu=2048M"}),
        ({"mem-per-gpu": "2G"}, ("Power=", "MemPerTres=gres/gpu=2048"), set()),
        ({}, ("Power=", "TresBind=gpu:closest"), {"--gpu-bind=closest"}),
        ({}, ("Power=", "GresEnforceBind=Yes"), {"--gres-flags=enforce-binding"}),
        ({}, ("Power=", "Switches=1@00:05:00"), {"--switches=1@00:05:00"}),
        ({}, ("Contiguous=0", "Contiguous=1"), {"--contiguous"}),
        ({}, ("TimeMin=N/A", "TimeMin=00:05:00"), {"--time-min=00:05:00"}),
        ({}, ("C=0:0:*:* CoreSpec", "C=0:0:2:1 CoreSpec"), {"--ntasks-per-socket=2", "--ntasks-per-core=1"}),
        ({"mem": "2G"}, ("MinMemoryNode=2G", "MinMemoryNode=0"), {"--mem=0"}),
        ({"mem": "0"}, ("MinMemoryNode=2G", "MinMemoryNode=0"), set()),
        ({"prefer": "nvlink"}, ("Features=(null)", "Features=nvlink"), set()),
        ({}, ("Nice=0", "Nice=5"), {"--nice=5"}),
        ({}, ("Features=(null)", "Features=nvlink"), {"--constraint=nvlink"}),
        (
            {},
            ("TresPerNode=gres:gpu:a100:2", "TresPerNode=gres:gpu:a100:2\n   TresPerJob=gres/gpu=4"),
            {"--gpus=4"},
        ),
    ],
)
def test_size_of_the_job_counts(said: dict[str, str | None], change: tuple[str, str], found: set[str]) -> None:
    shown = {"mem": "2G", "gres": "gpu:a100:2"}
    assert beyond(shown | said, change) == found


def test_options_given_anew_replace_their_family() -> None:
    found = options(RECORDED, given=("gpus", "mem-per-cpu", "time", "output"))
    assert found == PLAIN - {"--time=02:00:00"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sbatch -N2 -n2 --signal B:USR1@60 train.sh a b", {"--nodes=2", "--ntasks=2", "--signal=B:USR1@60"}),
        ("/usr/bin/sbatch --parsable --begin=now+1 -H --comment=x -n1 train.sh", {"--ntasks=1"}),
        ("sbatch -J my run -n1 train.sh", None),
        (
            "sbatch -J my train UserId=root(0) -N1 -n1 train.sh",
            {"--job-name=my train UserId=root(0)", "--nodes=1", "--ntasks=1"},
        ),
        ("sbatch --comment=my own UserId=root(0) -N1 train.sh a b", {"--nodes=1"}),
        ("sbatch -n1", None),
        ("sbatch --unknown train.sh", None),
        ("srun -n1 train.sh", None),
        ("", None),
    ],
)
def test_options_of_the_command_line(line: str, found: set[str] | None) -> None:
    given = options_of_line(line, read_shown_job(RECORDED, JobId(1)), "#!/bin/sh\ntrain\n")
    assert (None if given is None else {option.spelling for option in given}) == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sbatch -n1 --wrap train  --lr 3; exit -n 2", {"--ntasks=1"}),
        ("sbatch --wrap=train --lr 3; exit -n 2 --mem 1G -c2", {"--mem=1G", "--cpus-per-task=2"}),
        ("sbatch --wrap=other --lr 3; exit -n 2 --mem 1G", None),
    ],
)
def test_options_around_a_wrapped_command(line: str, found: set[str] | None) -> None:
    job = read_shown_job(RECORDED.replace("Command=/home/alice/train.sh a b c", "Command=(null)"), JobId(1))
    script = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\ntrain  --lr 3; exit -n 2\n"
    given = options_of_line(line, job, script)
    assert (None if given is None else {option.spelling for option in given}) == found


def test_what_slurm_shows_by_now_counts_more_than_how_the_job_was_submitted() -> None:
    given = [Given(name, "x", "") for name in ("partition", "signal", "gpus", "mem", "time-min")]
    job = read_shown_job(RECORDED, JobId(1))
    assert [option.name for option in without_chosen(job, given, ("gres", "mem-per-cpu"))] == ["signal"]


@pytest.mark.parametrize(
    ("asked", "stays"), [("a100,v100", True), ("v100,a100", True), ("v100,cpu", False), ("a100", False)]
)
def test_further_jobs_may_run_in_each_partition_that_was_asked_for(asked: str, stays: bool) -> None:
    """Slurm shows the one in which the job runs; one to which it was moved since is the only one."""
    partitions = Given("partition", asked, "")
    kept = without_chosen(read_shown_job(RECORDED, JobId(1)), [partitions], ())
    assert bool(kept) is stays
    found = options(RECORDED, {"partition": asked})
    assert ("--partition=a100" in found) is (not stays and asked != "a100")


@pytest.mark.parametrize(
    ("said", "shown", "expected"),
    [
        ("%x-%j.log", "/home/alice/out/run.1.out", "/home/alice/out/run.%j.out"),
        ("log.%j", "/home/alice/my runs/log.1", None),
        ("log.%3j", "/home/alice/my runs/log.001", None),
        ("/home/alice/my runs/%u/log.%j", "/home/alice/my runs/alice/log.1", None),
        ("log.%j", "/home/bob/log.1", "/home/bob/log.%j"),
        (None, "/home/alice/my runs/slurm-1.out", None),
    ],
)
def test_output_goes_where_slurm_shows_the_jobs(said: str | None, shown: str, expected: str | None) -> None:
    """The command line, which cannot always be read, counts more than the script."""
    text = RECORDED.replace("StdOut=/home/alice/my runs/log.1", f"StdOut={shown}")
    text = text.replace("StdErr=/home/alice/my runs/log.1", f"StdErr={shown}")
    found = options(text, {"output": said} if said else None)
    assert {each for each in found if each.startswith("--output")} == (
        {f"--output={expected}"} if expected else set()
    )
    assert not {each for each in found if each.startswith("--error")}


def test_memory_given_back_by_hand_is_no_memory() -> None:
    assert beyond({"mem": "10G", "gres": "gpu:a100:2"}, ("MinMemoryNode=2G", "MinMemoryNode=0")) == {"--mem=0"}


def test_job_without_a_time_limit_has_no_followers() -> None:
    with pytest.raises(BadSpelling, match="UNLIMITED"):
        options(RECORDED.replace("TimeLimit=02:00:00", "TimeLimit=UNLIMITED"))
    assert "--time" not in str(options(RECORDED.replace("TimeLimit=02:00:00", "TimeLimit=Partition_Limit")))
