"""Single daemons: start and wait, stop, kill, pause; and job steps without a daemon."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from onehost import accounts, daemons
from onehost.errors import TestbedError
from onehost.processes import Process, launch, observe, recorded
from onehost.processes import end as end_processes
from onehost.slurmcommands import controller_answers, node_states, set_node_state, usable_nodes
from onehost.waiting import listens, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onehost.layout import Layout
    from onehost.people import Person
    from onehost.settings import Settings

START_TIMEOUT_S = 60.0


def start(name: str, settings: Settings, layout: Layout) -> None:
    """Start a daemon and wait until it answers. Raises ``TestbedError`` where it ends or stays silent."""
    process = launch_only(name, settings, layout)
    port = daemons.daemon(name, settings, layout).port

    def up() -> bool:
        if not process.alive():
            raise TestbedError(f"{name} ended early; see {layout.log}/{name}.out:\n{last_lines(name, layout)}")
        return (port is None or listens(port)) and answers(name, layout)

    wait_until(up, START_TIMEOUT_S, f"{name} to answer (see {layout.log}/{name}.out)")


def launch_only(name: str, settings: Settings, layout: Layout) -> Process:
    """Start a daemon without waiting for it."""
    program, _, instance = name.partition("@")
    if program == "slurmrestd" and instance:
        make_rest_folder(layout, daemons.known_user(instance))
    return launch(daemons.daemon(name, settings, layout), layout)


def make_rest_folder(layout: Layout, owner: Person) -> None:
    """The directory of a user's socket; only the user may open it."""
    folder = layout.rest / owner.name
    folder.mkdir(exist_ok=True)
    os.chown(folder, owner.uid, owner.gid)
    folder.chmod(0o700)
    (folder / "slurmrestd.sock").unlink(missing_ok=True)


def answers(name: str, layout: Layout) -> bool:
    """Whether the daemon works, beyond accepting connections."""
    program, _, instance = name.partition("@")
    if program == "slurmrestd" and instance:
        return (layout.rest / instance / "slurmrestd.sock").is_socket()
    checks: dict[str, Callable[[], bool]] = {
        "munged": layout.munge_socket.is_socket,
        "mariadbd": lambda: accounts.database_answers(layout),
        "slurmdbd": lambda: accounts.accounting_answers(layout),
        "slurmctld": lambda: controller_answers(layout),
    }
    return checks.get(program, lambda: True)()


def last_lines(name: str, layout: Layout) -> str:
    """The last lines of a daemon's output."""
    return "\n".join((layout.log / f"{name}.out").read_text(errors="replace").splitlines()[-5:])


def end(names: Sequence[str], layout: Layout) -> None:
    """Stop daemons in order."""
    if names:
        end_processes(names, layout)


def act(name: str, action: str, settings: Settings, layout: Layout) -> None:
    """``start|stop|kill|pause|continue`` one daemon, for tests of failures."""
    daemons.daemon(name, settings, layout)  # rejects unknown names
    if action == "start":
        start(name, settings, layout)
        return
    process = recorded(name, layout)
    if process is None:
        raise TestbedError(f"{name} does not run")
    if action in {"stop", "kill"}:
        end_processes([name], layout, signal.SIGTERM if action == "stop" else signal.SIGKILL)
    elif action in {"pause", "continue"}:
        process.send(signal.SIGSTOP if action == "pause" else signal.SIGCONT)
    else:
        raise TestbedError(f"service {action!r}: expected start, stop, kill, pause or continue")


def act_on_node(node: str, action: str, settings: Settings, layout: Layout) -> None:
    """``down``: the node fails, with all that runs on it; ``resume``: it comes back.

    Its slurmd must end as well: a slurmd that registers brings a node of state DOWN back into service.
    """
    name = f"slurmd@{node}"
    daemons.daemon(name, settings, layout)  # rejects unknown names
    if action == "down":
        end_processes([name], layout, signal.SIGKILL)
        end_steps(layout, node)
        set_node_state(layout, node, "DOWN")
    elif action == "resume":
        if recorded(name, layout) is None:
            start(name, settings, layout)
        wait_until(
            lambda: node_states(layout).get(node, "unknown") != "unknown", START_TIMEOUT_S, f"{node} to register"
        )
        wait_until(lambda: _is_back(node, layout), START_TIMEOUT_S, f"{node} to come back into service")
    else:
        raise TestbedError(f"node {action!r}: expected down or resume")


def _is_back(node: str, layout: Layout) -> bool:
    """Whether the node is in service; resumes it if not.

    A controller that has just started rejects the change of an idle node that has not answered it yet.
    """
    if node in usable_nodes(layout):
        return True
    try:
        set_node_state(layout, node, "RESUME")
    except TestbedError:
        return False
    return True


def wake(names: Sequence[str], layout: Layout) -> None:
    """Resume paused daemons, so that they answer and can be ended."""
    for name in names:
        process = recorded(name, layout)
        if process:
            process.send(signal.SIGCONT)


def state(name: str, layout: Layout) -> str:
    """``running``, ``paused`` or ``ended``, with the PID."""
    process = recorded(name, layout)
    if process is None:
        return "ended"
    column = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return f"{'paused' if column == 'T' else 'running'} (process {process.pid})"


def end_steps(layout: Layout, node: str = "") -> None:
    """Kill job steps that outlive their slurmd (on one node or on all), with their child processes."""
    log = f"{layout.log}/slurmd.{node}"
    steps = [process for process in map(observe, process_ids()) if process and serves(process.pid, log)]
    # The step goes first: otherwise it would report that its job was killed, which a failed node does not.
    for process in steps + [child for step in steps for child in descendants(step)]:
        process.send(signal.SIGKILL)
    wait_until(lambda: not any(step.alive() for step in steps), START_TIMEOUT_S, "the end of left-over job steps")


def process_ids() -> list[int]:
    """Every process of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names are enough


def serves(pid: int, log: str) -> bool:
    """Whether this is a slurmstepd of a node, by the path of the log that it keeps open."""
    folder = Path(f"/proc/{pid}")
    try:
        if "slurmstepd" not in (folder / "exe").readlink().name:
            return False
        return any(str(fd.readlink()).startswith(log) for fd in (folder / "fd").iterdir())
    except OSError:
        return False


def descendants(process: Process) -> list[Process]:
    """Child processes, recursively."""
    try:
        text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    children = [child for child in map(observe, map(int, text.split())) if child]
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]
