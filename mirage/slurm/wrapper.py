"""The small shell script around a user's script: its health is watched, or slurmrestd takes no arguments for it.

The wrapper writes the user's script into its own file, which slurmd gives to the job's user, and executes that:
``$0``, arguments, signals, exit code and the meaning of "batch shell" stay what they are. Where the file cannot be
written, it executes one that has no name any more. Nothing is left behind, however the job ends.
"""

from __future__ import annotations

import hashlib
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mirage.slurm.batchscript import read_interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN_SHELLS = ("sh", "dash", "ash", "busybox")
_HEAD = """\
#!{shell}
# Made by mirage submit: runs the script below unchanged.
"""

_WATCH = """\
# Beside it, until it succeeds: the command that tells whether the service can take over.
(
  trap : HUP INT USR1 USR2
  while kill -0 $$; do
    if sh -c {command}; then
      mkdir -p "${{MIRAGE_HANDOVER_FILE%/*}}"
      (set -C; : >"$MIRAGE_HANDOVER_FILE")  # never through a link that another user has made
      break
    fi
    sleep {interval}
  done
) </dev/null >/dev/null 2>&1 3<&- &
"""

_BODY = """\
mirage_script=$(mktemp "${{TMPDIR:-/tmp}}/mirage.XXXXXX") || exit
cat >"$mirage_script" <<'{end}' || exit
{script}
{end}
exec 3<"$mirage_script"
rm -f "$mirage_script"
unset mirage_script
{before}{{
  if {{ chmod u+w "$0" && cat <&3 >"$0" && chmod u-w "$0"; }} 2>/dev/null; then
    exec 3<&-
    exec "$0" "$@"
  fi
  exec {command} /dev/fd/3 "$@"
}}
"""
"""The last block is read as a whole before it is run: by then the file that it stands in holds another script."""

INTERVAL = 5
"""Seconds between two looks at the service's health."""


def wrap(script: str, health_command: str) -> str:
    """A shell script that runs ``script`` and, beside it, ``health_command`` by ``sh -c`` until that succeeds.

    ``$MIRAGE_HANDOVER_FILE`` is touched then.
    """
    return _around(script, _WATCH.format(command=shlex.quote(health_command), interval=INTERVAL))


def with_arguments(script: str, arguments: Sequence[str]) -> str:
    """A shell script that runs ``script`` with ``arguments``, for a Slurm that takes a script alone.

    Raises ``BadSpelling`` for a script whose first line names no interpreter, or is longer than the kernel reads.
    """
    return _around(script, f"set -- {shlex.join(arguments)}\n")


def _around(script: str, before: str) -> str:
    """The wrapper that does ``before``, lines of shell, and runs ``script`` in its own place."""
    end = f"END_OF_SCRIPT_{hashlib.sha256(script.encode(errors='surrogateescape')).hexdigest()[:16]}"
    interpreter = read_interpreter(script, "script")
    # dash drops exported functions from the environment, as it does without a wrapper where the script is for dash
    shell = interpreter[0] if PurePosixPath(interpreter[0]).name in _PLAIN_SHELLS else "/bin/bash"
    body = _BODY.format(end=end, script=script.removesuffix("\n"), before=before, command=shlex.join(interpreter))
    return _HEAD.format(shell=shell) + body


def wrap_command(command: str) -> str:
    """The script that ``--wrap`` stands for."""
    return f"#!/bin/sh\n# Made from --wrap.\n\n{command}\n"
