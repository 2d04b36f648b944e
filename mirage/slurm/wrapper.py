"""The small shell script around a user's script: for its health, its arguments, or a chain that may be over.

The wrapper writes the user's script into its file, which slurmd gives to the job's user, and executes that:
``$0``, arguments, signals, exit code and the meaning of "batch shell" stay what they are. Where the file cannot be
written, it executes one that has no name any more. Nothing is left behind, however the job ends.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mirage.slurm.batchscript import read_interpreter, sbatch_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.slurm.gate import Gate

_PLAIN_SHELLS = ("sh", "dash", "ash", "busybox")
_HEAD = """\
#!{shell}
# Made by mirage submit: runs the script below unchanged.
{lines}"""

_WATCH = """\
# Beside it, until it succeeds: the command that tells whether the service can take over.
(
  trap : HUP INT USR1 USR2
  while kill -0 $$; do
    if /bin/sh -c {command}; then
      mirage_run mkdir -p "${{MIRAGE_HANDOVER_FILE%/*}}"
      (set -C; : >"$MIRAGE_HANDOVER_FILE")  # never through a link that another user has made
      break
    fi
    mirage_run sleep {interval}
  done
) </dev/null >/dev/null 2>&1 3<&- &
"""

_BODY = """\
mirage_run() (
  PATH=${{PATH:+$PATH:}}/usr/bin:/bin  # the script's own may have none of these
  "$@"
)
mirage_text() {{
  mirage_run cat <<'{end}'
{script}
{end}
}}
mirage_open() {{
  mirage_script=$(mirage_run mktemp "$1/mirage.XXXXXX" 2>/dev/null) || return 1
  (TMPDIR=$1; mirage_text >|"$mirage_script") 2>/dev/null && exec 3<"$mirage_script"
  set -- $? "$mirage_script"
  mirage_run rm -f "$2"
  return "$1"
}}
mirage_open "${{TMPDIR:-/tmp}}" || mirage_open /tmp || mirage_open /dev/shm || mirage_open /var/tmp || {{
  echo "mirage: no directory for temporary files has room for the script" >&2
  exit 126
}}
unset mirage_script
{before}{{
  if {{ mirage_run chmod u+w "$0" && mirage_run cat <&3 >|"$0" && mirage_run chmod u-w "$0"; }} 2>/dev/null; then
    exec 3<&-
    exec "$0" "$@"
  fi
  exec {command} /dev/fd/3 "$@"
}}
"""
"""The last block is read as a whole before it is run: by then the file that it stands in holds another script."""

INTERVAL = 5
"""Seconds between two checks of the service's health."""


def wrap(script: str, health_command: str) -> str:
    """A shell script that runs ``script`` and, next to it, ``health_command`` by ``sh -c`` until that succeeds.

    ``$MIRAGE_HANDOVER_FILE`` is touched then.
    """
    return _around(script, _WATCH.format(command=shlex.quote(health_command), interval=INTERVAL))


def with_arguments(script: str, arguments: Sequence[str]) -> str:
    """A shell script that runs ``script`` with ``arguments``, for a Slurm that takes a script alone.

    Raises ``BadSpelling`` for a script whose first line names no interpreter, or is longer than the kernel reads.
    """
    return _around(script, f"set -- {shlex.join(arguments)}\n")


def gated(script: str, gate: Gate) -> str:
    """A shell script that runs ``script``, unless the job before has ended the chain as ``gate`` says.

    ``sbatch`` finds its lines as before. Raises ``BadSpelling`` as ``with_arguments`` does.
    """
    return _around(script, gate.lines(), sbatch_lines(script, "script"))


def _around(script: str, before: str, lines: str = "") -> str:
    """The wrapper that does ``before``, lines of shell, and runs ``script`` in its place, below ``lines``."""
    end = f"END_OF_SCRIPT_{hashlib.sha256(script.encode(errors='surrogatepass')).hexdigest()[:16]}"
    interpreter = read_interpreter(script, "script")
    # dash drops exported functions from the environment, as it does without a wrapper where the script is for dash
    shell = interpreter[0] if PurePosixPath(interpreter[0]).name in _PLAIN_SHELLS else "/bin/bash"
    body = _BODY.format(end=end, script=script.removesuffix("\n"), before=before, command=shlex.join(interpreter))
    return _HEAD.format(shell=shell, lines=lines) + body


def wrap_command(command: str) -> str:
    """The script that ``--wrap`` stands for."""
    return f"#!/bin/sh\n# Made from --wrap.\n\n{command}\n"
