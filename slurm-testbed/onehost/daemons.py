"""The daemons of a testbed: command, user, environment, port."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from onehost import clock
from onehost.errors import TestbedError
from onehost.people import myself, person
from onehost.processes import Daemon
from onehost.programs import SEARCH, need, slurm_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onehost.layout import Layout
    from onehost.people import Person
    from onehost.settings import Settings

NO_REST_FOR_SLURMS_USER = (26, 5)
MARIADB_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=16M",
    "--innodb-lock-wait-timeout=900",
    # The accounting of a testbed need not survive a crash of the machine.
    "--innodb-flush-log-at-trx-commit=0",
    "--sync-binlog=0",
    "--performance-schema=OFF",
    "--key-buffer-size=1M",
    # Slurm 26.05 requires it; MariaDB before 10.6 does not know it.
    "--loose-innodb-snapshot-isolation=OFF",
)


def environment(layout: Layout, *, fast: bool = True) -> dict[str, str]:
    """Environment of Slurm's programs; with ``fast`` on the testbed's clock."""
    plain = {"PATH": SEARCH, "LANG": "C.UTF-8", "SLURM_CONF": str(layout.conf)}
    return plain | (clock.environment(layout) if fast else {})


def link_true_names(layout: Layout) -> None:
    """slurmctld and slurmd check the name by which they are called, which differs from Debian's file name."""
    for program in ("slurmctld", "slurmd", "slurmstepd"):
        link = layout.bin / program
        link.unlink(missing_ok=True)
        link.symlink_to(need(program))


def daemon(name: str, settings: Settings, layout: Layout) -> Daemon:
    """The daemon of this name: such as ``slurmctld``, ``slurmd@a100-001`` or ``slurmrestd@alice``."""
    program, _, instance = name.partition("@")
    recipes: dict[str, Callable[[], Daemon]] = {
        "munged": lambda: munged(settings, layout),
        "mariadbd": lambda: mariadbd(settings, layout),
        "slurmdbd": lambda: slurmdbd(settings, layout),
        "slurmctld": lambda: slurmctld(settings, layout),
        "slurmd": lambda: slurmd(instance, settings, layout),
        "slurmrestd": lambda: (
            slurmrestd_of(instance, settings, layout) if instance else slurmrestd(settings, layout)
        ),
    }
    if program not in recipes or (instance and program not in {"slurmd", "slurmrestd"}):
        known = "munged, mariadbd, slurmdbd, slurmctld, slurmd@NODE, slurmrestd, slurmrestd@USER"
        raise TestbedError(f"unknown service {name!r}; choose from {known}")
    if program in {"mariadbd", "slurmdbd"} and not settings.privileged:
        raise TestbedError(f"{name}: a testbed without root has no accounting")
    return recipes[program]()


def system_user(name: str, settings: Settings) -> Person:
    """The daemon's user, or the current one where there is only one."""
    return person(name) if settings.privileged else myself()


def munged(settings: Settings, layout: Layout) -> Daemon:
    """munged, without ``--force`` as root: its checks of owners and modes pass."""
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "own.pid", "seed-file": "seed"}
    argv = [need("munged"), "--foreground", "--num-threads=10", f"--log-file={layout.munge}/munged.log"]
    argv += [f"--{option}={layout.munge / name}" for option, name in files.items()]
    argv += [] if settings.privileged else ["--force"]
    return Daemon("munged", argv, system_user("munge", settings), environment(layout, fast=False))


def mariadbd(settings: Settings, layout: Layout) -> Daemon:
    """The testbed's MariaDB, on loopback."""
    argv = (
        need("mariadbd"),
        "--no-defaults",
        f"--datadir={layout.mysql}",
        f"--tmpdir={layout.run}",
        f"--socket={layout.mysql_socket}",
        f"--pid-file={layout.mysql}/own.pid",
        f"--port={settings.base_port + 2}",
        *MARIADB_OPTIONS,
    )
    return Daemon("mariadbd", argv, person("mysql"), environment(layout, fast=False), settings.base_port + 2)


def slurmdbd(settings: Settings, layout: Layout) -> Daemon:
    """slurmdbd: accounting."""
    return Daemon(
        "slurmdbd", (need("slurmdbd"), "-D"), person("slurm"), environment(layout), settings.base_port + 1
    )


def slurmctld(settings: Settings, layout: Layout) -> Daemon:
    """slurmctld: the controller."""
    argv = (str(layout.bin / "slurmctld"), "-D")
    return Daemon("slurmctld", argv, system_user("slurm", settings), environment(layout), settings.base_port)


def slurmd(node: str, settings: Settings, layout: Layout) -> Daemon:
    """One simulated node. As root its jobs run as the users who submitted them."""
    if node not in settings.node_names():
        raise TestbedError(f"unknown node {node!r}; choose from {compact(settings.node_names())}")
    argv = (str(layout.bin / "slurmd"), "-D", "-N", node, "-d", str(layout.bin / "slurmstepd"))
    port = settings.base_port + 100 + settings.node_names().index(node)
    return Daemon(f"slurmd@{node}", argv, myself(), environment(layout), port)


def slurmrestd(settings: Settings, layout: Layout) -> Daemon:
    """REST over TCP on loopback, with tokens. It does not run as root or as Slurm's user."""
    port = settings.base_port + 3
    argv = (need("slurmrestd"), "-a", "rest_auth/jwt", *rest_plugins(settings, layout), f"127.0.0.1:{port}")
    extra = {"SLURM_JWT": "daemon", **rest_security(settings)}
    runner = person("nobody") if settings.privileged else myself()
    return Daemon("slurmrestd", argv, runner, environment(layout) | extra, port)


def rest_plugins(settings: Settings, layout: Layout) -> tuple[str, ...]:
    """Plugins of every API version. Without accounting, its plugins would end slurmrestd immediately."""
    if settings.privileged:
        return ()
    given = environment(layout, fast=False) | rest_security(settings)
    listed = subprocess.run(
        [need("slurmrestd"), "-s", "list"], env=given, capture_output=True, text=True, check=False
    )
    names = re.findall(r"openapi/\S+", listed.stdout + listed.stderr)
    return ("-s", ",".join(name for name in names if "db" not in name))


def slurmrestd_of(user: str, settings: Settings, layout: Layout) -> Daemon:
    """REST over the user's Unix socket, without token: a client that can open it acts as the user."""
    socket = layout.rest / user / "slurmrestd.sock"
    argv = (need("slurmrestd"), "-a", "rest_auth/local", *rest_plugins(settings, layout), f"unix:{socket}")
    return Daemon(f"slurmrestd@{user}", argv, known_user(user), environment(layout) | rest_security(settings))


def known_user(name: str) -> Person:
    """Raises ``TestbedError`` where the machine has no such user."""
    try:
        return person(name)
    except KeyError as error:
        raise TestbedError(f"no user {name!r} on this machine") from error


def rest_security(settings: Settings) -> dict[str, str]:
    """Checks that slurmrestd must skip: those given by the caller (for containers), and the check of its user."""
    given = os.environ.get("SLURMRESTD_SECURITY", "").split(",")
    wanted = [word for word in (*given, "" if settings.privileged else "disable_user_check") if word]
    return {"SLURMRESTD_SECURITY": ",".join(wanted)} if wanted else {}


def has_rest(settings: Settings) -> bool:
    """Without root all daemons run as one user: slurmrestd 26.05 does not run as Slurm's user, 24.11 does."""
    year, month, *_ = map(int, slurm_version().split("."))
    return settings.privileged or (year, month) < NO_REST_FOR_SLURMS_USER


def all_names(settings: Settings) -> Iterable[str]:
    """The daemons of a complete testbed, in order of their start."""
    yield "munged"
    if settings.privileged:
        yield from ("mariadbd", "slurmdbd")
    yield "slurmctld"
    yield from (f"slurmd@{node}" for node in settings.node_names())
    if has_rest(settings):
        yield "slurmrestd"


def compact(names: tuple[str, ...]) -> str:
    """A list of nodes, as text."""
    return names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
