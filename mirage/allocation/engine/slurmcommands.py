"""Slurm's commands, called from within a job."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable
from mirage.slurm.hostlist import expand
from mirage.slurm.node_text import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMEOUT = 60.0
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JOB_ID")
_UNKNOWN = "Invalid job id"
_ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a step, without variables by which the batch script's options would shape it."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not name.startswith(("SLURM_", "SLURMD_"))
    }


@dataclass(frozen=True, slots=True)
class StepSeen:
    """A step as Slurm lists it."""

    step: str
    """Its id, such as ``17.3``."""
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """``squeue``, ``scancel``, ``scontrol`` and ``sinfo`` of this job's cluster."""

    environment: Mapping[str, str]

    def ask(self, *argv: str) -> str:
        """Run a command and return its output. Raises ``ClusterUnavailable`` with the error text if it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - fixed words, and no shell
                argv,
                env=own_environment(self.environment) | {"SLURM_TIME_FORMAT": "%s"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ClusterUnavailable(f"{argv[0]}: {error}") from error
        if done.returncode:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise ClusterUnavailable(f"{argv[0]}: exit {done.returncode}: {words}")
        return done.stdout.decode(errors="replace")

    def job_states(self, job: int) -> list[str]:
        """State of a job, ``[]`` where Slurm does not know it any more. Raises ``ClusterUnavailable``."""
        try:
            return self.ask(
                "squeue", "--noheader", "--all", f"--jobs={job}", "--states=all", "--format=%T"
            ).split()
        except ClusterUnavailable as error:
            if _UNKNOWN in str(error):
                return []
            raise

    def job_runs(self, job: int) -> bool:
        """Whether any part of a job may still run. Raises ``ClusterUnavailable`` where that is not known."""
        return any(state in _ALIVE for state in self.job_states(job))

    def steps(self, job: int) -> dict[str, StepSeen]:
        """The job's steps by name. Raises ``ClusterUnavailable``."""
        rows = self.ask("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i|%N|%j").splitlines()
        cells = ([cell.strip() for cell in row.split("|", 2)] for row in rows)
        return {name: StepSeen(step, tuple(expand(nodes)) if nodes else ()) for step, nodes, name in cells}

    def living_steps(self, job: int) -> dict[str, StepSeen]:
        """Steps that may still run on some node. Raises ``ClusterUnavailable``.

        A step of which all nodes have failed stays in Slurm's list, and no signal ends it.
        """
        steps = self.steps(job)
        nodes = sorted({node for step in steps.values() for node in step.nodes})
        down = set(self.down_nodes(nodes)) if nodes else set()
        return {name: step for name, step in steps.items() if set(step.nodes) - down or not step.nodes}

    def signal_step(self, step: str, name: str) -> None:
        """Signal a step. A step that has ended cannot be signalled, and scancel's exit code does not show it."""
        try:
            self.ask("scancel", f"--signal={name}", step)
        except ClusterUnavailable:
            return

    def down_nodes(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Nodes in state down. Raises ``ClusterUnavailable``."""
        rows = self.ask(
            "sinfo", "--noheader", "--Node", f"--nodes={','.join(nodes)}", "--format=%N|%T"
        ).splitlines()
        states = {name.strip(): state.strip() for name, _, state in (row.partition("|") for row in rows)}
        return tuple(node for node in nodes if node in states and kind_of(states[node]) == "down")
