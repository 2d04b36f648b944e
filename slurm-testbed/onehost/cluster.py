"""Start and stop the whole testbed, and report its state."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehost import accounts, clock, configuration, daemons, services
from onehost.errors import TestbedError
from onehost.layout import Layout
from onehost.people import OPERATOR, USERS, ensure_users, myself, person
from onehost.processes import recorded, recorded_names
from onehost.programs import check_programs, slurm_version
from onehost.settings import Settings, read_settings
from onehost.slurmcommands import (
    cancel_all_jobs,
    cancel_everything,
    completing_nodes,
    nodes_without_work,
    slurm,
    usable_nodes,
    users_with_jobs,
)
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NODES_TIMEOUT_S = 120.0
COMPLETING_S = 20.0
"""Real seconds after which a node that still completes has a step that never ends."""


@contextmanager
def exclusive(layout: Layout) -> Iterator[None]:
    """One start or stop at a time."""
    with (layout.directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def running(layout: Layout) -> bool:
    """Whether a testbed was started here and not stopped since; single services may be down."""
    return layout.state.exists() and recorded("munged", layout) is not None


def start(settings: Settings, say: Callable[[str], None]) -> None:
    """Start everything and wait until every node is idle; ``say`` gets each step.

    Does nothing where the same testbed already runs. Raises ``TestbedError`` where another one runs, where
    something is not installed, or where a daemon does not start.
    """
    check_programs(settings)
    layout = Layout(Path(settings.directory))
    layout.directory.mkdir(parents=True, exist_ok=True)
    layout.check()
    with exclusive(layout):
        if running(layout):
            check_same(settings, layout)
            say(f"already running in {layout.directory}")
            return
        end_everything(layout)
        try:
            bring_up(settings, layout, lap_timer(say))
        except BaseException:
            end_everything(layout)
            raise


def check_same(settings: Settings, layout: Layout) -> None:
    """Raise ``TestbedError`` where a testbed with other settings runs."""
    there = read_settings(layout.directory)
    differences = there.differences(settings) if there else ["its settings are not known"]
    if differences:
        raise TestbedError(f"another testbed runs in {layout.directory}: {'; '.join(differences)}; stop it first")


def lap_timer(say: Callable[[str], None]) -> Callable[[str], None]:
    """Prefix each step with the seconds since the start."""
    begun = time.monotonic()
    return lambda step: say(f"{time.monotonic() - begun:6.1f} s  {step}")


def bring_up(settings: Settings, layout: Layout, lap: Callable[[str], None]) -> None:
    """The numbered steps of a start."""
    # 1. Directories, users, keys, devices.
    if settings.privileged:
        ensure_users()
    prepare_files(settings, layout)
    # 2. The clock, and the configuration that depends on it.
    clock.start(layout, settings.speed)
    configuration.write(settings, layout)
    prepare_owners(settings, layout)
    # 3. The daemons, one after the other.
    services.start("munged", settings, layout)
    if settings.privileged:
        start_accounting(settings, layout, lap)
    services.start("slurmctld", settings, layout)
    lap("slurmctld answers")
    for node in settings.node_names():
        (layout.spool / node).mkdir(exist_ok=True)
        services.launch_only(f"slurmd@{node}", settings, layout)
    if daemons.has_rest(settings):
        services.start("slurmrestd", settings, layout)
    count = len(settings.node_names())
    wait_until(
        lambda: len(usable_nodes(layout)) >= count, NODES_TIMEOUT_S, f"{count} idle nodes (see {layout.log})"
    )
    # 4. The files for clients.
    layout.state.write_text(json.dumps(describe(settings, layout), indent=1) + "\n")
    lap(f"{count} nodes idle, Slurm {slurm_version()}, clock x{settings.speed}")


def start_accounting(settings: Settings, layout: Layout, lap: Callable[[str], None]) -> None:
    """MariaDB, slurmdbd and the accounts in it."""
    accounts.install_database(layout)
    services.start("mariadbd", settings, layout)
    accounts.make_database(layout)
    lap("MariaDB answers")
    services.start("slurmdbd", settings, layout)
    accounts.make_accounts(layout)
    lap("slurmdbd answers, accounts created")


def prepare_files(settings: Settings, layout: Layout) -> None:
    """Create directories, keys, devices and ``testbed.json``."""
    layout.make()
    daemons.link_true_names(layout)
    for path, size in ((layout.munge / "munge.key", 1024), (layout.jwt_key, 32)):
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(os.urandom(size))
    for index in range(8):
        make_device(layout.dev / f"gpu{index}", settings)
    layout.state.unlink(missing_ok=True)
    (layout.directory / "settings.json").write_text(json.dumps(settings.to_json()) + "\n")


def make_device(path: Path, settings: Settings) -> None:
    """A stand-in for a GPU; slurmd only checks the file. Without root a plain file, and no CUDA variable."""
    if path.exists():
        return
    if settings.privileged:
        os.mknod(path, 0o020666, os.makedev(1, 3))
        path.chmod(0o666)
    else:
        path.touch()


def prepare_owners(settings: Settings, layout: Layout) -> None:
    """Give each daemon's files to its user."""
    if not settings.privileged:
        return
    owners = {"munge": [layout.munge], "mysql": [layout.mysql], "slurm": [layout.ctld, layout.jwt]}
    for user, folders in owners.items():
        for folder in folders:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, person(user).uid, person(user).gid)
    os.chown(layout.etc / "slurmdbd.conf", person("slurm").uid, person("slurm").gid)


def describe(settings: Settings, layout: Layout) -> dict[str, Any]:
    """``testbed.json``: all that a client needs."""
    return {
        "settings": settings.to_json(),
        "slurm_version": slurm_version(),
        "conf": str(layout.conf),
        "users": list(USERS) if settings.privileged else [myself().name],
        "operator": OPERATOR if settings.privileged else None,
        "nodes": list(settings.node_names()),
        "rate": settings.speed,
        "clock": str(layout.clock) if settings.speed > 1 else None,
        "rest": rest_address(settings),
        "environment": environment(layout, plain=False),
        "plain_environment": environment(layout, plain=True),
    }


def rest_address(settings: Settings) -> str:
    """Address of slurmrestd; empty if there is no slurmrestd."""
    return f"http://127.0.0.1:{settings.base_port + 3}" if daemons.has_rest(settings) else ""


def environment(layout: Layout, *, plain: bool) -> dict[str, str]:
    """Environment of a user's shell. ``plain``: stay on the real clock, as the Mirage daemon does."""
    found = {"SLURM_CONF": str(layout.conf)}
    if layout.clock.exists():
        found["MIRAGE_CLUSTER__CLOCK"] = str(layout.clock)
    return found if plain else found | clock.environment(layout)


def stop(layout: Layout, say: Callable[[str], None]) -> None:
    """Cancel all jobs, then end every daemon, the controller before what it depends on."""
    if not layout.directory.is_dir():
        say(f"no testbed in {layout.directory}")
        return
    with exclusive(layout):
        end_everything(layout)
        say(f"stopped {layout.directory}")


def end_everything(layout: Layout) -> None:
    """Stop whatever exists, also after an incomplete start."""
    if not layout.run.is_dir():
        return
    names = recorded_names(layout)
    services.wake(names, layout)
    if recorded("slurmctld", layout):
        cancel_everything(layout)
    services.end_steps(layout)
    for program in ("slurmrestd", "slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
        services.end([name for name in names if name.partition("@")[0] == program], layout)
    clock.stop(layout)
    layout.state.unlink(missing_ok=True)


def wipe(layout: Layout, say: Callable[[str], None]) -> None:
    """Stop, and delete all state."""
    stop(layout, say)
    if layout.directory.is_dir():
        if not (layout.directory / "settings.json").exists():
            raise TestbedError(f"{layout.directory} holds no testbed; nothing was deleted")
        shutil.rmtree(layout.directory)


def repair(layout: Layout) -> None:
    """Restore the state after a start: every service up, every node resumed, no jobs."""
    settings = restore(layout)
    hanging, nodes = HangingNodes(settings, layout), set(settings.node_names())

    def idle() -> bool:
        try:
            cancel_all_jobs(layout)
        except subprocess.SubprocessError:  # a job may just have ended by itself
            return False
        hanging.free()
        return nodes_without_work(layout) >= nodes and not users_with_jobs(layout)

    wait_until(idle, NODES_TIMEOUT_S, "idle nodes without jobs")


@dataclass
class HangingNodes:
    """Nodes in state completing because of a hanging step; Slurm's timeout for that does not fit a fast clock."""

    settings: Settings
    layout: Layout
    _since: dict[str, float] = field(default_factory=dict)

    def free(self) -> list[str]:
        """Set down and resume those that have been completing for ``COMPLETING_S``; their names."""
        now, completing = time.monotonic(), completing_nodes(self.layout)
        self._since = {node: self._since.get(node, now) for node in completing}
        freed = [node for node, since in self._since.items() if now - since > COMPLETING_S]
        for node in freed:
            services.act_on_node(node, "down", self.settings, self.layout)
            services.act_on_node(node, "resume", self.settings, self.layout)
            del self._since[node]
        return freed


def restore(layout: Layout) -> Settings:
    """Start every service and resume every node; jobs continue. Returns the testbed's settings."""
    settings = need_running(layout)
    services.wake(recorded_names(layout), layout)
    for name in daemons.all_names(settings):
        if recorded(name, layout) is None:
            services.start(name, settings, layout)
    for node in settings.node_names():
        if node not in usable_nodes(layout):
            services.act_on_node(node, "resume", settings, layout)
    return settings


def need_running(layout: Layout) -> Settings:
    """The settings of the testbed that runs. Raises ``TestbedError`` if none does."""
    settings = read_settings(layout.directory)
    if settings is None or not running(layout):
        raise TestbedError(f"no testbed runs in {layout.directory}; start it first")
    return settings


def status(layout: Layout) -> str:
    """Daemons, nodes and jobs, as text."""
    settings = need_running(layout)
    names = dict.fromkeys((*daemons.all_names(settings), *recorded_names(layout)))
    lines = [f"{name:24} {services.state(name, layout)}" for name in names]
    lines.append(f"REST at {rest_address(settings) or 'no address: slurmrestd cannot run as the user of Slurm'}")
    lines.append(f"Slurm's time {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(clock.now(layout)))}")
    if services.state("slurmctld", layout).startswith("running"):
        try:
            lines += [slurm(layout, "sinfo").rstrip(), slurm(layout, "squeue", "-a").rstrip()]
        except subprocess.SubprocessError as error:
            lines.append(f"Slurm does not answer: {error}")
    return "\n".join(lines)
