"""The two engines that start steps: processes of this machine where there is no Slurm, and ``srun`` within a job.

The agent requests no devices from Slurm: ``--overlap`` lets steps share what the job holds, and the allocation
table decides which devices each step sees. If Slurm chose the devices, it might separate two that a fast link
joins, and steps that do not fit would wait and start in any order. Uneven shapes use a list of nodes, one for
each process, with ``--distribution=arbitrary``.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.allocation.engine.slurmcommands import SlurmCommands, own_environment
from mirage.allocation.engine.step_supervisor import StepSupervisors, kill_leftovers, leftovers, signal_group
from mirage.allocation.engine.steps import (
    LINGER,
    LISTEN,
    EngineRefused,
    StartedStep,
    began_at,
    file_of,
    read_ending,
    written,
)
from mirage.atomic_file import read_regular
from mirage.domain.errors import ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirage.allocation.engine.slurmcommands import StepSeen
    from mirage.allocation.engine.steps import Ending, Launch

# One process for each rank; the task has ended when all have, and failed with the first one that failed.
_RANKS = (
    LISTEN
    + written(': >"$MIRAGE_STEP.began"', "MIRAGE_STEP")
    + """\
_count=$1; shift
if [ "$_count" = 1 ]; then
"$@"
_code=$?
"""
    + LINGER
    + """\
exit "$_code"
fi
_rank=0 _ranks=""
while [ "$_rank" -lt "$_count" ]; do
  MIRAGE_RANK=$_rank MIRAGE_LOCAL_RANK=$_rank "$@" & _ranks="$_ranks $!"
  _rank=$((_rank + 1))
done
_code=0
for _rank in $_ranks; do
  wait "$_rank"; _found=$?
  while kill -0 "$_rank" 2>/dev/null; do wait "$_rank"; _found=$?; done  # the wait was cut short by a signal
  [ "$_code" != 0 ] || _code=$_found
done
exit "$_code"
"""
)


class ProcessEngine:
    """Starts tasks as processes in separate sessions; each sees its devices by ``CUDA_VISIBLE_DEVICES``."""

    name = "processes"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._keepers = StepSupervisors()

    def launch(self, launch: Launch) -> StartedStep:
        """See ``Engine``."""
        ((node, count),) = launch.ranks.items()
        environment = self._environment | dict(launch.environment) | dict(launch.visible.get(node, {}))
        argv = ["/bin/sh", "-c", _RANKS, "ranks", str(count), *launch.command]
        return self._keepers.start(launch, argv, environment | one_of_one(count), launch.output, launch.directory)

    def poll(self, step: StartedStep) -> Ending | None:
        """See ``Engine``. Kills what a task leaves behind, because that would hold its devices."""
        if self._keepers.living(step) or kill_leftovers(step.path):
            return None
        self._keepers.forget(step)
        return read_ending(step.path)

    def began(self, step: StartedStep) -> float | None:
        """See ``Engine``."""
        return began_at(step.path)

    def signal(self, step: StartedStep, name: str) -> None:
        """See ``Engine``."""
        if name == "KILL" and not self._keepers.living(step):
            kill_leftovers(step.path)
        signal_group(step.pid, name)

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, StartedStep]:
        """See ``Engine``."""
        keepers = self._keepers.find(path for _, path in wanted)
        found = {key: StartedStep(key, path, keepers[path]) for key, path in wanted if path in keepers}
        orphans = [(key, path) for key, path in wanted if key not in found and leftovers(path)]
        return found | {key: StartedStep(key, path, 0) for key, path in orphans}


def one_of_one(count: int) -> dict[str, str]:
    """The rank variables of a single process, which the script does not set."""
    return {"MIRAGE_RANKS": str(count), "MIRAGE_RANK": "0", "MIRAGE_LOCAL_RANK": "0"}


# Arguments: directory, number of settings, (node, variable, value) for each, and the command.
_RANK = (
    LISTEN
    + written('echo "$SLURM_NTASKS" >"$MIRAGE_STEP.began"', "MIRAGE_STEP")
    + """\
cd -- "$1" || exit 126
_left=$2; shift 2
while [ "$_left" -gt 0 ]; do
  [ "$1" != "$SLURMD_NODENAME" ] || export "$2=$3"
  shift 3; _left=$((_left - 1))
done
export MIRAGE_RANKS="$SLURM_NTASKS" MIRAGE_RANK="$SLURM_PROCID" MIRAGE_LOCAL_RANK="$SLURM_LOCALID"
"$@"
_code=$?
"""
    + LINGER
    + """\
[ "$_code" = 0 ] || exit "$_code"
"""
    + written(': >"$MIRAGE_STEP.ended.$SLURM_PROCID"', "MIRAGE_STEP")
)
_NODE_FAILURE = re.compile(r"Node failure on ([\w.,\[\]-]+)")
_TELLING = re.compile(r"(?:srun|slurmstepd[^:]*): (?:error: )?(.+)")
_NOISE = ("lacks support for cpu binding", "Exited with exit code", "Terminating StepId", "launch/slurm")
_LONGEST = 300


class SrunEngine:
    """Starts tasks as steps of the Slurm job that it runs in."""

    name = "srun"

    def __init__(self, job: int, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._job = job
        self._slurm = SlurmCommands(self._environment)
        self._keepers = StepSupervisors()
        self._nodes: dict[Path, tuple[str, ...]] = {}

    def launch(self, launch: Launch) -> StartedStep:
        """See ``Engine``."""
        environment = own_environment(self._environment) | dict(launch.environment)
        self._nodes[launch.path] = tuple(launch.ranks)
        argv = [*self._srun(launch), *self._rank(launch)]
        try:
            launch.output.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngineRefused(f"its output: {error}") from error
        return self._keepers.start(launch, argv, environment, file_of(launch.path, "said"), "/")

    def poll(self, step: StartedStep) -> Ending | None:
        """See ``Engine``. srun may die alone: the step that then runs without it is ended first."""
        if self._keepers.living(step):
            return None
        ending = read_ending(step.path)
        if ending.code != 0 and self._lives_on(step):
            return None
        self._keepers.forget(step)
        if ending.code == 0 and not ending.heard:
            return ending
        said = _read(file_of(step.path, "said"))
        nodes, outside = self._failed_nodes(step, said), self._job_ends()
        return replace(ending, said=_telling(said), failed_nodes=nodes, outside=outside)

    def began(self, step: StartedStep) -> float | None:
        """See ``Engine``."""
        return began_at(step.path)

    def signal(self, step: StartedStep, name: str) -> None:
        """See ``Engine``. A step that Slurm does not list is ended through its srun."""
        found = self._steps().get(_step_name(step.path))
        if found is not None:
            self._slurm.signal_step(found.step, name)
        elif name == "KILL" or not file_of(step.path, "began").exists():
            signal_group(step.pid, "KILL" if name == "KILL" else "TERM")

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, StartedStep]:
        """See ``Engine``. Raises ``ClusterUnavailable``: the running steps are then not known."""
        if not wanted:
            return {}
        keepers = self._keepers.find(path for _, path in wanted)
        steps = self._slurm.living_steps(self._job)
        return {
            key: StartedStep(key, path, keepers.get(path, 0))
            for key, path in wanted
            if path in keepers or _step_name(path) in steps
        }

    def _srun(self, launch: Launch) -> list[str]:
        places = [node for node, count in launch.ranks.items() for _ in range(count)]
        return [
            "srun", f"--jobid={self._job}", f"--job-name={_step_name(launch.path)}", "--overlap",
            f"--ntasks={len(places)}", f"--nodelist={','.join(places)}", "--distribution=arbitrary",
            "--cpu-bind=none", "--mem=0", "--input=none", "--kill-on-bad-exit=1", "--chdir=/",
            f"--output={str(launch.output).replace('%', '%%')}", "--open-mode=append",
        ]  # fmt: skip

    def _rank(self, launch: Launch) -> list[str]:
        settings = [
            word
            for node, variables in launch.visible.items()
            for name, value in variables.items()
            for word in (node, name, value)
        ]
        head = ["/bin/sh", "-c", _RANK, "rank", launch.directory, str(len(settings) // 3)]
        return [*head, *settings, *launch.command]

    def _lives_on(self, step: StartedStep) -> bool:
        try:
            found = self._slurm.living_steps(self._job).get(_step_name(step.path))
        except ClusterUnavailable:
            return True
        if found is not None:
            self._slurm.signal_step(found.step, "KILL")
        return found is not None

    def _steps(self) -> dict[str, StepSeen]:
        try:
            return self._slurm.steps(self._job)
        except ClusterUnavailable:
            return {}

    def _job_ends(self) -> str:
        """Steps end before their agent when the job ends."""
        try:
            states = self._slurm.job_states(self._job)
        except ClusterUnavailable:
            return ""
        return "" if "RUNNING" in states else "its job is being ended"

    def _failed_nodes(self, step: StartedStep, said: str) -> tuple[str, ...]:
        from mirage.slurm.hostlist import expand

        named = [node for text in _NODE_FAILURE.findall(said) for node in expand(text)]
        nodes = self._nodes.pop(step.path, ())
        try:
            down = self._slurm.down_nodes(nodes) if nodes else ()
        except ClusterUnavailable:
            down = ()
        return tuple(dict.fromkeys((*named, *down)))


def _step_name(path: Path) -> str:
    """Job name of a step; it names the directory because two state directories may serve one job."""
    folder = hashlib.sha256(os.fsencode(path.parent)).hexdigest()[:6]
    return f"mirage.{folder}.{path.name}"


def _read(path: Path) -> str:
    try:
        return read_regular(path, follow_links=False).decode(errors="replace")
    except OSError:
        return ""


def _telling(said: str) -> str:
    """The first meaningful message of srun."""
    lines = (match[1] for match in map(_TELLING.match, said.splitlines()) if match)
    return next((line for line in lines if not any(noise in line for noise in _NOISE)), "")[:_LONGEST]
