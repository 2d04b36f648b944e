"""The same script by ``sbatch``, and by way of a chain's request: Slurm must make the same job of both."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirage.domain.errors import BadSpelling
from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.jobrequest import Sources, Surroundings, read_request
from mirage.slurm.sbatch import sbatch_arguments
from mirage.slurm.sbatchoptions import SBATCH, Word, given_by_environment
from mirage.slurm.shares_and_partitions import read_default_limit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurm_testbed import Testbed

DIFFERENT_EACH_TIME = ("JobId", "SubmitTime", "EligibleTime", "AccrueTime", "Comment", "LastSchedEval", "Priority")
DIFFERENT_EACH_TIME += ("SubmitLine", "StdErr", "StdOut", "StdIn", "Command", "StartTime", "EndTime")

CASES: list[tuple[str, str, Mapping[str, str]]] = [
    # lines of the script, command line, environment
    ("", "", {}),
    ("#SBATCH -N 2 -t 1:00:00 -J 'my job'", "", {}),
    ("#SBATCH --nodes=1-2 --ntasks=4", "", {}),
    ("#SBATCH --sockets-per-node=2", "", {}),
    ("#SBATCH --cores-per-socket=2", "", {}),
    ("#SBATCH --ntasks-per-node=2", "", {}),
    ("#SBATCH --ntasks-per-node=4 --cpus-per-task=2 -N2", "", {}),
    ("#SBATCH -p a100 --gres=gpu:a100:2", "", {}),
    ("#SBATCH -p a100 --gres=gpu:2", "--gres=gpu:a100:1", {}),
    ("#SBATCH -p npu --gres=npu:ascend:3", "", {}),
    ("#SBATCH --mem=10G", "", {}),
    ("#SBATCH --mem=10G", "--mem=0", {}),
    ("#SBATCH --mem=10G", "--mem-per-cpu=1G", {}),
    ("#SBATCH -C nvlink -p a100", "", {}),
    ("#SBATCH -C 'a100|v100' -p a100", "", {}),
    ("#SBATCH -C 'a100&nvlink' -p a100", "", {}),
    ("#SBATCH --exclusive", "", {}),
    ("#SBATCH --exclusive=user", "", {}),
    ("#SBATCH --nice=100", "--nice=0", {}),
    ("#SBATCH --nice", "", {}),
    ("", "-H", {}),
    ("#SBATCH --time-min=10 -t 60", "", {}),
    ("#SBATCH -t 10:10", "-t 0-2", {}),
    ("#SBATCH --partition=a100", "", {"SBATCH_PARTITION": "cpu"}),
    ("#SBATCH --partition=a100", "-p npu", {"SBATCH_PARTITION": "cpu"}),
    ("#SBATCH -t 5", "", {"SBATCH_TIMELIMIT": "7", "SBATCH_JOB_NAME": "env"}),
    ("", "", {"SBATCH_EXCLUSIVE": "1"}),
    ("#SBATCH --part a100,cpu --mail-type=END --mail-user=a@example.org", "", {}),
    ("#SBATCH --signal=B:USR1@120 --no-requeue --open-mode=append", "", {}),
    ("#SBATCH --signal=USR2", "", {}),
    ('#SBATCH -A testacct --licenses="" --tmp=1G -x cpu-001', "", {}),
    ("#SBATCH -w cpu-002 --contiguous --threads-per-core=1", "", {}),
    ("#SBATCH --begin=now+2hours --switches=1 -O --spread-job", "", {}),
    ("#SBATCH --begin=2040-01-02T03:04:05", "", {}),
    ("#SBATCH -D /tmp --core-spec=1", "", {}),
]

IN_OTHER_WORDS: list[tuple[str, str, Mapping[str, str]]] = [
    ("#SBATCH -n 100", "", {}),
    ("#SBATCH -n 8 -c 4", "-N 1", {}),
    ("#SBATCH -p a100 --gpus-per-node=a100:2", "", {}),
    ("#SBATCH -p a100 --gpus=4 -N 2", "", {}),
    ("#SBATCH --mem-per-cpu=1G -c 4", "", {}),
]
"""Options that say what fields of the request say too; ``said_by_options`` names these fields."""


def shown(testbed: Testbed, job: str) -> dict[str, str]:
    """The fields of ``scontrol show job`` that do not differ by nature."""
    text = testbed.run(testbed.users[0], ["scontrol", "--oneliner", "show", "job", job]).stdout
    fields = dict(word.partition("=")[::2] for word in text.split() if "=" in word)
    return {name: value for name, value in fields.items() if name not in DIFFERENT_EACH_TIME}


def submitted(testbed: Testbed, argv: list[str], environment: Mapping[str, str], script: str) -> dict[str, str]:
    """The job that ``sbatch`` makes, held, as Slurm shows it; the reason where it rejects."""
    command = ["sbatch", "--parsable", *argv, "--hold"]
    done = testbed.run(testbed.users[0], command, input=script, env=environment, check=False)
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1]}
    job = done.stdout.strip()
    found = shown(testbed, job)
    testbed.run(testbed.users[0], ["scancel", job])
    return found


@pytest.mark.parametrize(
    ("lines", "command", "environment"),
    [*CASES, *IN_OTHER_WORDS],
)
def test_slurm_makes_the_same_job_of_both(
    testbed: Testbed, lines: str, command: str, environment: Mapping[str, str]
) -> None:
    if not testbed.privileged and "-A " in lines:
        pytest.skip("accounts need a testbed started by root")
    script = f"#!/bin/sh\n{lines}\ntrue\n"
    argv, user = shlex.split(command), testbed.users[0]
    direct = submitted(testbed, argv, environment, script)
    partitions = testbed.run(testbed.users[0], ["scontrol", "--oneliner", "show", "partition"]).stdout
    around = Surroundings(
        "sbatch",
        user,
        testbed.environment(user)["HOME"],
        int(testbed.now()),
        lambda name: read_default_limit(partitions, name),
    )
    in_script, _ = SBATCH.read(read_directives(script, SBATCH_LINE, "q").words)
    on_line, _ = SBATCH.read([Word(word, "command line") for word in argv])
    request, _ = read_request(Sources(in_script, given_by_environment(environment), on_line), around, script)
    indirect = submitted(testbed, sbatch_arguments(replace(request, tag="mirage:x:1")), environment, script)
    assert indirect == direct


words = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)


@settings(max_examples=60)
@given(before=words, after=words)
@example(before="\\", after=" ")
@example(before="a\\ b", after="c")
@example(before='"\\ b"', after="c")
def test_any_line_is_split_as_sbatch_splits_it(fast_clock_testbed: Testbed, before: str, after: str) -> None:
    """The words show as the comment and the job's name, or in the complaint about them."""
    testbed, line = fast_clock_testbed, f"#SBATCH --comment={before} -J name {after}"
    script = f"#!/bin/sh\n{line}\ntrue\n"
    done = testbed.run(testbed.users[0], ["sbatch", "--parsable", "--hold"], input=script, check=False)
    try:
        read = read_directives(script, SBATCH_LINE, "q")
        options, rest = SBATCH.read(read.words)
        if rest:
            raise BadSpelling(rest[0].text, "is no option")
    except BadSpelling:
        assert done.returncode != 0, (line, done.stdout)
        return
    found = {option.name: option.value for option in options}
    if done.returncode:  # well read, but a value that sbatch does not take
        assert len(options) > 2 or found.keys() - {"comment", "job-name"}, (line, done.stderr)
        return
    job = done.stdout.strip()
    said = testbed.run(testbed.users[0], ["squeue", "--noheader", f"--jobs={job}", "--format=%j|%k"]).stdout
    testbed.run(testbed.users[0], ["scancel", job])
    if "#" not in (found["comment"] or ""):
        name, _, comment = said.rstrip("\n").partition("|")
        assert (name, comment.strip()) == (found.get("job-name", "sbatch"), (found["comment"] or "").strip()), line
