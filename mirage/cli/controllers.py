"""``--controller``: who looks after a user's chains, a daemon or the chains' own jobs; the script of those."""

from __future__ import annotations

import os
import pwd
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING

from mirage.cli.arguments import UsageError
from mirage.cli.connection import is_served, names_daemon
from mirage.cli.install import mirage_words, slurm_variables
from mirage.cli.printing import show
from mirage.config.places import CONTROLLER, default_places, network_kind
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.cli.chain_request import CommandLine
    from mirage.config.places import Places

_SCRIPT = """\
#!/bin/sh
# Made by mirage submit. The jobs of this user's chains run it: it looks at the chains once, and prints in how many
# seconds it is due again. Where another job has looked meanwhile, it only prints that, unless called with "now".
umask 077
PATH=/usr/bin:/bin
cd {shared} || exit 1
now=$(date +%s)
due=$(cat due 2>/dev/null)
case $due in
  "" | *[!0-9]* | ????????????*) due=0 ;;
esac
if [ "$1" != now ] && [ "$due" -gt "$now" ] && [ "$due" -lt $((now + {longest_wait})) ]; then
  echo $((due - now + $$ % {jitter}))
  exit
fi
if [ -f {log} ] && [ "$(wc -c <{log})" -gt {longest} ]; then
  : >{log}
fi
wait=$(/usr/bin/env -i {command} 2>>{log}) || exit
case $wait in
  "" | *[!0-9]* | ?????*) exit 1 ;;
esac
echo $((now + wait)) >due.$$ && mv -f due.$$ due
echo "$wait"
"""
_DATABASE = "mirage.db"
_LOG_FILE = "controller.log"
_LONGEST_LOG = 1 << 20
_LONGEST_WAIT = 700
"""Seconds; a later time is that of a clock that was set."""
_JITTER = 30
"""Seconds over which the jobs that look next are spread: the first one looks for all."""
_OWN = ("HOME", "USER", "LOGNAME", "SHELL")


class Controller(StrEnum):
    """Values of ``--controller``."""

    AUTO = "auto"
    DAEMON = "daemon"
    JOB = "job"


def choose_controller(line: CommandLine, partition: str) -> None:
    """Have the chains' own jobs look after them, where the command line says so, or where no daemon is likely.

    Raises ``UsageError``, and ``ConfigError`` where that is not possible.
    """
    given = line.value("controller") or Controller.AUTO
    if given not in list(Controller):
        raise UsageError("--controller", f"{given!r} is none of {', '.join(Controller)}")
    places = default_places(os.environ, os.getuid())
    if given == Controller.JOB:
        if line.has("socket") or names_daemon():
            raise UsageError(
                "--controller", "job needs no daemon; leave out --socket, MIRAGE_SOCKET and MIRAGE_URL"
            )
        check_submission(partition)
        drive_by_jobs(places)
    elif given == Controller.DAEMON and places.self_driven:
        raise UsageError(
            "--controller",
            f"the jobs of your chains look after them; end these chains, then remove {places.shared}",
        )
    elif given == Controller.AUTO and not line.has("socket") and _is_likely(places):
        check_submission(partition)
        if not places.self_driven:
            show("no daemon answers: the jobs of this chain look after it (--controller job)", err=True)
        drive_by_jobs(places)


def _is_likely(places: Places) -> bool:
    """Whether every node sees the user's home, and no daemon answers or is called by cron."""
    if places.shared is None or places.self_driven:
        return places.self_driven
    if (places.state / _DATABASE).exists():  # the user has a daemon, which does not run now
        return False
    try:
        return bool(network_kind(places.shared)) and not is_served()
    except OSError:
        return False


def check_submission(partition: str) -> None:
    """Raise ``ConfigError`` where jobs on the nodes of the partition may not submit the next link."""
    from mirage.cli.sending import slurm_commands
    from mirage.slurm.shares_and_partitions import PARTITION_ARGUMENTS, partitions_without_submission

    answer = slurm_commands().run(["scontrol", *PARTITION_ARGUMENTS])
    if not answer.status and (closed := partitions_without_submission(answer.out, partition)):
        problem = f"AllocNodes of {', '.join(closed)} lets no job on its nodes submit the next link"
        raise ConfigError("--controller", f"{problem}; use mirage daemon, or mirage install cron")


def drive_by_jobs(places: Places) -> None:
    """Write the script that links run, or write it again after a move of Mirage. Raises ``ConfigError``."""
    from mirage.atomic_file import read_regular, write_atomically
    from mirage.config.loading import load_config
    from mirage.daemon.state_directory import make_private_folder
    from mirage.store.location import locate, make_shared

    if places.shared is None:
        raise ConfigError("--controller", "job is for an ordinary user without $STATE_DIRECTORY; use a daemon")
    old = places.state / _DATABASE
    if not places.self_driven and old.exists():
        raise ConfigError(
            "--controller", f"{old} has the chains of a daemon; end them and the daemon, then move this file away"
        )
    make_private_folder(places.shared.parent, "service.state")
    make_shared(places.shared)
    file, text = places.shared / CONTROLLER, _script(places.shared).encode()
    try:
        if not file.is_file() or read_regular(file) != text:
            write_atomically(file, text)
    except OSError as error:
        raise ConfigError("--controller", f"{file}: cannot be written: {error.strerror}") from error
    loaded = load_config()
    if locate(loaded.config.store.url).directory != places.shared:
        file.unlink(missing_ok=True)
        origin = loaded.origin(("store", "url"))
        raise ConfigError(f"{origin}: store.url", f"job needs the database {places.shared}; remove this key")


def _script(shared: Path) -> str:
    user = pwd.getpwuid(os.getuid())
    own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": "/bin/sh"}
    own |= {name: os.environ[name] for name in _OWN if os.environ.get(name)}
    variables = own | {"PATH": "/usr/bin:/bin"} | slurm_variables() | {"MIRAGE_API__ENABLED": "false"}
    words = [*(f"{name}={value}" for name, value in variables.items()), *mirage_words(), "cycle", "--turn"]
    return _SCRIPT.format(
        shared=shlex.quote(str(shared)),
        log=_LOG_FILE,
        longest=_LONGEST_LOG,
        longest_wait=_LONGEST_WAIT,
        jitter=_JITTER,
        command=shlex.join(words),
    )
