"""The options of ``sbatch`` that the fake understands, as a job request and what the job does."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass

from mirage.backends.simulated import SimulatedExecution
from mirage.domain.job import BatchScript, Dependency, DependencyKind, JobId, JobRequest, JobState, WarnSignal
from mirage.slurm import duration

_DOES = re.compile(r"(?m)^#FAKE(?:\s+runs=(\d+))?(?:\s+exit=(\d+))?\s*$")
_KINDS = {kind.name.lower(): kind for kind in DependencyKind}


class BadOption(Exception):
    """sbatch's error for an option that it does not take."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise BadOption(message)


@dataclass(frozen=True)
class Submission:
    """One call of ``sbatch``."""

    request: JobRequest
    run: SimulatedExecution
    parsable: bool
    test_only: bool


def read_submission(arguments: list[str], script: str, user: str) -> Submission:
    """``#SBATCH`` lines first, arguments over them. A line ``#FAKE runs=60 exit=3`` says what the job does."""
    lines = re.findall(r"(?m)^#SBATCH\s+(.*)$", script)
    at = next((at for at, word in enumerate(arguments) if not word.startswith("-")), len(arguments))
    given = _parser().parse_args([word for line in lines for word in shlex.split(line)] + arguments[:at])
    text = f"#!/bin/sh\n{given.wrap}\n" if given.wrap else script
    if not text.startswith("#!"):
        raise BadOption("This does not look like a batch script.  The first line must start with #!")
    request = JobRequest(
        name=given.job_name,
        user=user,
        limit=duration.parse(given.time) if given.time else 0,
        nodes=given.nodes,
        partition=given.partition,
        account=given.account,
        qos=given.qos,
        cpus_per_node=given.mincpus,
        memory_mb_per_node=int(given.mem.rstrip("M")),
        gres_per_node=tuple(_gres(word) for word in given.gres.split(",") if word),
        features=tuple(word for word in given.constraint.split("&") if word),
        exclusive=given.exclusive,
        begin=int(given.begin.removeprefix("uts")),
        held=given.hold,
        nice=given.nice,
        dependencies=tuple(_dependency(word) for word in given.dependency.split(",") if word),
        reservation=given.reservation,
        node_list=given.nodelist,
        requeue=given.requeue,
        warn=_warn(given.signal),
        tag=given.comment,
        batch=BatchScript(text, directory=given.chdir, arguments=tuple(arguments[at + 1 :])),
    )
    return Submission(request, _run(request, text), given.parsable, given.test_only)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(allow_abbrev=False, add_help=False)
    for short, name in (("-p", "partition"), ("-A", "account"), ("-q", "qos"), ("-d", "dependency")):
        parser.add_argument(short, f"--{name}", default="")
    for name in ("gres", "reservation", "comment", "wrap", "signal", "output", "error", "export", "propagate"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("-C", "--constraint", default="")
    parser.add_argument("-w", "--nodelist", default="")
    parser.add_argument("-D", "--chdir", default="")
    parser.add_argument("-t", "--time", default="")
    parser.add_argument("-J", "--job-name", default="sbatch")
    parser.add_argument("-N", "--nodes", type=int, default=1)
    parser.add_argument("--mincpus", type=int, default=0)
    parser.add_argument("--mem", default="0")
    parser.add_argument("--begin", default="0")
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("-H", "--hold", action="store_true")
    parser.add_argument("--exclusive", action="store_true")
    parser.add_argument("--requeue", action=argparse.BooleanOptionalAction)
    parser.add_argument("--parsable", action="store_true")
    parser.add_argument("--test-only", action="store_true")
    return parser


def _gres(word: str) -> tuple[str, int]:
    name, _, count = word.rpartition(":")
    return (name, int(count)) if count.isdecimal() else (word, 1)


def _dependency(word: str) -> Dependency:
    kind, _, rest = word.partition(":")
    job_id, _, minutes = rest.partition("+")
    return Dependency(_KINDS[kind], JobId(int(job_id or 0)), int(minutes or 0) * 60)


def _warn(word: str) -> WarnSignal | None:
    """``[B:]NAME[@SECONDS]``; Slurm warns a minute before the limit where no time is given."""
    batch, _, rest = word.rpartition(":")
    name, _, lead = rest.partition("@")
    return WarnSignal(name, int(lead or 60), batch_only=batch == "B") if name else None


def _run(request: JobRequest, text: str) -> SimulatedExecution:
    does = _DOES.search(text)
    if does is None or does[1] is None:
        return SimulatedExecution(request.limit, JobState.TIMEOUT)
    code = int(does[2] or 0)
    return SimulatedExecution(int(does[1]), JobState.FAILED if code else JobState.COMPLETED, code)
