"""``mirage-act``: the helper that ``sudo`` runs as a job's owner. Reads one order, acts, answers.

It trusts neither its caller nor its environment: see ``mirage.backends.acting.helper`` and ``links_only``.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

from mirage.backends.acting.helper import serve
from mirage.backends.acting.own import own_links
from mirage.backends.execution import Commands
from mirage.ownprocess import end_with_parent

_PATH = "/usr/local/bin:/usr/bin:/bin"
_TIMEOUT = 30.0
"""Seconds that one of Slurm's commands may take."""
_PR_SET_DUMPABLE = 4  # linux/prctl.h


def main() -> None:
    """Entry point. Takes no arguments, and never acts for root."""
    if len(sys.argv) > 1:
        sys.exit("mirage-act takes no arguments: it reads an order from its standard input")
    if os.getuid() == 0 or os.geteuid() != os.getuid():
        sys.exit("mirage-act acts for ordinary users only; run it with sudo -u USER")
    _close_off()
    user = pwd.getpwuid(os.getuid()).pw_name
    serve(sys.stdin.buffer, sys.stdout, own_links(Commands(_environment(user), _TIMEOUT), user))


def _close_off() -> None:
    """Its user cannot trace this process from here on, and one who stops it does not keep it: it ends with sudo.

    It is among the daemon's own processes, and its bounds are the daemon's.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit(f"mirage-act: prctl: {os.strerror(ctypes.get_errno())}")
    try:
        end_with_parent()
    except OSError as error:
        sys.exit(f"mirage-act: {error.strerror}")


def _environment(user: str) -> dict[str, str]:
    """Of Slurm's commands. What the site has to say comes through sudo's own ``env_file``."""
    home = pwd.getpwnam(user).pw_dir
    settings = {"PATH": os.environ.get("MIRAGE_ACT_PATH", _PATH), "HOME": home, "USER": user, "LOGNAME": user}
    conf = os.environ.get("SLURM_CONF")
    return settings | ({"SLURM_CONF": conf} if conf else {})


if __name__ == "__main__":
    main()
