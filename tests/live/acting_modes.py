"""Requirements of each way of acting in users' names on a testbed: agents, sudo, tokens."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from live_world import TestbedWorld

from mirage.backends.agent_queue import AgentActuator, AgentQueue
from mirage.backends.execution import CommandRunner
from mirage.backends.owner_turns import TurnLimits
from mirage.backends.restactuator import RestActuator, TokenDirectory
from mirage.backends.restclient import RestAddress
from mirage.backends.sudo import Helper, SudoActuator
from mirage.backends.user_side import execute, own_links

if TYPE_CHECKING:
    import contextlib

    from slurm_testbed import Testbed

    from mirage.ports import Actuator

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("squeue", "sinfo", "sacct", "sbatch", "scancel", "scontrol")
PATIENT = TurnLimits(share=600, together=1_200)
"""A busy machine takes seconds to start sudo and a helper: these tests ask what was done, not how fast."""
DAEMON, STRANGER = "mirage", "carol"
"""The daemon's user in Slurm, and a user who lets no other act in her name."""


def commands(testbed: Testbed, user: str, folder: Path) -> CommandRunner:
    """Slurm's commands as ``user`` runs them, on the real clock."""
    environment = testbed.plain_environment(user)
    programs = folder / user
    programs.mkdir(exist_ok=True)
    become = shlex.join(as_user(user))
    for command in COMMANDS:
        real = shutil.which(command, path=environment["PATH"])
        write_program(programs / command, f'exec {become} {real} "$@"')
    return CommandRunner(environment | {"PATH": f"{programs}:{environment['PATH']}"}, timeout=20)


def as_user(user: str) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]


def write_program(path: Path, text: str) -> None:
    """By bash, since dash would drop exported functions."""
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def of_agents(testbed: Testbed, folder: Path, stack: contextlib.ExitStack) -> Actuator:
    """An agent each for alice and bob."""
    desk, over = AgentQueue(lambda user, order_id, answer: None), threading.Event()

    def serve(user: str) -> None:
        actuator = own_links(commands(testbed, user, folder), user)
        while not over.is_set():
            order = desk.next_order(user, 0.2)
            if order is not None:
                desk.answer(user, order.order_id, execute(order, actuator))

    for user in ("alice", "bob"):
        desk.attach(user)
        thread = threading.Thread(target=serve, args=(user,))
        thread.start()
        stack.callback(thread.join)
    stack.callback(over.set)
    return AgentActuator(desk, PATIENT)


def of_sudo(testbed: Testbed, folder: Path, stack: contextlib.ExitStack) -> Actuator:
    """The sample of ``deploy/`` for alice and bob, in a separate name space, and the real sudo."""
    del stack
    helper = Helper(str(folder / "mirage-act"), sudo=str(sudo_program(testbed, folder)), start=60)
    return SudoActuator(helper, limits=PATIENT)


def sudo_program(testbed: Testbed, folder: Path) -> Path:
    """``sudo`` as the daemon's user, where the sudoers of ``folder`` are those of the machine."""
    helper = folder / "mirage-act"
    helper.write_text(
        f"#!{interpreter('alice')}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from mirage.cli.act import main\nmain()\n"
    )
    helper.chmod(0o755)
    (folder / "act.env").write_text(f"SLURM_CONF={testbed.conf}\n")
    sample = (ROOT / "deploy" / "sudoers.d" / "mirage").read_text()
    sudoers = folder / "sudoers.d"
    sudoers.mkdir()
    (sudoers / "mirage").write_text(
        sample.replace("/usr/bin/mirage-act", str(helper))
        .replace("/etc/mirage/act.env", str(folder / "act.env"))
        .replace("%mirage-users", "alice, bob")
    )
    (sudoers / "mirage").chmod(0o440)
    inside = f'mount --bind {sudoers} /etc/sudoers.d && exec {shlex.join(as_user(DAEMON))} /usr/bin/sudo "$@"'
    program = folder / "sudo"
    write_program(program, f'exec unshare --mount --propagation private sh -c {shlex.quote(inside)} sudo "$@"')
    return program


def interpreter(user: str) -> str:
    """A Python that this user may run."""
    for python in (sys.executable, "/usr/bin/python3"):
        test = [*as_user(user), "/bin/sh", "-c", f"{python} -c 'import sys; assert sys.version_info >= (3, 11)'"]
        if subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return python
    pytest.skip(f"no Python 3.11 that {user} may run")


def of_tokens(testbed: Testbed, folder: Path, stack: contextlib.ExitStack) -> Actuator:
    """A token each for alice and bob, in a directory that only the daemon reads."""
    del stack
    tokens = folder / "tokens"
    tokens.mkdir(mode=0o700)
    for user in ("alice", "bob"):
        (tokens / f"{user}.jwt").write_text(testbed.token(user))
    clock = TestbedWorld(testbed)
    return RestActuator(RestAddress.parse(testbed.rest), TokenDirectory(tokens), clock, timeout=60)


MODES = {"agent": of_agents, "sudo": of_sudo, "token": of_tokens}
