"""Queries to the running Slurm, as its administrator."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from onehost.daemons import environment
from onehost.errors import TestbedError
from onehost.programs import need
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from onehost.layout import Layout

ANSWER_TIMEOUT_S = 60.0
CANCEL_TIMEOUT_S = 60.0
USABLE = {"idle", "mixed", "allocated", "completing"}


def slurm(layout: Layout, program: str, *arguments: str) -> str:
    """The standard output of one of Slurm's commands.

    Raises ``subprocess.SubprocessError`` where it fails or does not answer in ``ANSWER_TIMEOUT_S`` real seconds.
    """
    return subprocess.run(
        [need(program), *arguments],
        env=environment(layout),
        capture_output=True,
        text=True,
        check=True,
        timeout=ANSWER_TIMEOUT_S,
    ).stdout


def controller_answers(layout: Layout) -> bool:
    """Whether slurmctld answers."""
    try:
        slurm(layout, "scontrol", "ping")
    except subprocess.SubprocessError:
        return False
    return True


def node_states(layout: Layout) -> dict[str, str]:
    """State of every node, such as ``idle`` or ``down*``; empty where Slurm does not answer."""
    try:
        lines = slurm(layout, "sinfo", "-hN", "-o", "%N %T").splitlines()
    except subprocess.SubprocessError:
        return {}
    return {row[0]: row[1] for row in map(str.split, lines)}


def usable_nodes(layout: Layout) -> set[str]:
    """Nodes that run jobs or could run some."""
    return {name for name, state in node_states(layout).items() if state in USABLE}


def nodes_without_work(layout: Layout) -> set[str]:
    """Nodes on which a job could start immediately."""
    return {name for name, state in node_states(layout).items() if state == "idle"}


def completing_nodes(layout: Layout) -> set[str]:
    """Nodes whose jobs have ended and still have processes."""
    return {name for name, state in node_states(layout).items() if state == "completing"}


def users_with_jobs(layout: Layout) -> set[str]:
    """Users with jobs that have not ended, completing ones included."""
    return set(slurm(layout, "squeue", "-h", "-o", "%u").split())


def cancel_all_jobs(layout: Layout) -> None:
    """Cancel every job. Raises ``subprocess.SubprocessError`` where Slurm does not answer."""
    for user in users_with_jobs(layout):
        slurm(layout, "scancel", "--user", user)


def cancel_everything(layout: Layout) -> None:
    """Cancel every job and wait until the last is gone; a controller that does not answer is left alone."""
    try:
        cancel_all_jobs(layout)
        wait_until(lambda: not users_with_jobs(layout), CANCEL_TIMEOUT_S, "the end of the cancelled jobs")
    except (subprocess.SubprocessError, TestbedError):
        return


def set_node_state(layout: Layout, node: str, state: str) -> None:
    """``DOWN``: its jobs end NODE_FAIL or are requeued; ``RESUME``."""
    try:
        slurm(layout, "scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=testbed")
    except subprocess.CalledProcessError as error:
        raise TestbedError(f"node {node} {state}: {error.stderr.strip()}") from error


def token(layout: Layout, user: str, lifespan_s: int) -> str:
    """A JSON Web Token for ``user``; it expires in Slurm's time."""
    try:
        answer = slurm(layout, "scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")
    except subprocess.CalledProcessError as error:
        raise TestbedError(f"token for {user}: {error.stderr.strip()}") from error
    return answer.strip().removeprefix("SLURM_JWT=")
