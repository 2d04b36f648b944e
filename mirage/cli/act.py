"""``mirage-act``: the helper that ``sudo`` runs as a job's owner. It processes one request from stdin.

It trusts neither its caller nor its environment: see ``mirage.backends.user_side`` and ``links_only``.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

from mirage.backends.execution import CommandRunner
from mirage.backends.user_side import own_links, serve
from mirage.ownprocess import end_with_parent

_PATH = "/usr/local/bin:/usr/bin:/bin"
_OF_THE_SITE = ("SLURM_CONF", "MIRAGE_SOCKET")
_TIMEOUT = 30.0
"""Timeout of a Slurm command, in seconds."""
_PR_SET_DUMPABLE = 4  # linux/prctl.h


def main() -> None:
    """Entry point. Takes no arguments and never runs as root."""
    if len(sys.argv) > 1:
        sys.exit("mirage-act takes no arguments: it reads a request from standard input")
    if os.getuid() == 0 or os.geteuid() != os.getuid():
        sys.exit("mirage-act runs only as an ordinary user; run it with sudo -u USER")
    _close_off()
    user = pwd.getpwuid(os.getuid()).pw_name
    environment = _environment(user)
    serve(sys.stdin.buffer, sys.stdout, own_links(CommandRunner(environment, _TIMEOUT), user, environment))


def _close_off() -> None:
    """Forbid its user to trace this process, and end it with sudo, so that a stopped process does not remain.

    It counts among the daemon's processes and their limits.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit(f"mirage-act: prctl: {os.strerror(ctypes.get_errno())}")
    try:
        end_with_parent()
    except OSError as error:
        sys.exit(f"mirage-act: {error.strerror}")


def _environment(user: str) -> dict[str, str]:
    """Return the environment of Slurm's commands. The site can set variables in sudo's ``env_file``."""
    home = pwd.getpwnam(user).pw_dir
    settings = {"PATH": os.environ.get("MIRAGE_ACT_PATH", _PATH), "HOME": home, "USER": user, "LOGNAME": user}
    return settings | {name: os.environ[name] for name in _OF_THE_SITE if os.environ.get(name)}


if __name__ == "__main__":
    main()
