"""The small shell script around a user's script, where it needs company or arguments.

``sbatch`` gets the script on its standard input, which leaves no room for arguments; and whoever watches over the
service's health has to run beside it. The wrapper becomes the user's script by ``exec``, so that signals, exit
code and the meaning of "batch shell" stay what they are. The script is read from a file that has no name any
more: nothing is left behind, however the job ends, and the folder may be mounted ``noexec``.
"""

from __future__ import annotations

import hashlib
import re
import shlex

_INTERPRETER = re.compile(r"#![ \t]*([^\s]+)[ \t]*([^\n]*?)[ \t]*(?:\n|\Z)")

_HEAD = """\
#!/bin/sh
# Made by mirage submit: runs the script below unchanged.
"""

_WATCH = """\
# Beside it, until it succeeds: the command that tells whether the service can take over.
(
  trap : HUP INT USR1 USR2
  while kill -0 $$; do
    if sh -c {command}; then
      mkdir -p "${{MIRAGE_HANDOVER_FILE%/*}}" && : >"$MIRAGE_HANDOVER_FILE"
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
{watch}exec {command} /dev/fd/3 {arguments}
"""

INTERVAL = 5
"""Seconds between two looks at the service's health."""


def wrap(script: str, arguments: tuple[str, ...], health_command: str = "") -> str:
    """A shell script that runs ``script`` with ``arguments`` by the interpreter that its first line names.

    Where ``health_command`` is given, it is run in the background by ``sh -c`` until it succeeds;
    ``$MIRAGE_HANDOVER_FILE`` is touched then.
    """
    end = f"END_OF_SCRIPT_{hashlib.sha256(script.encode(errors='surrogateescape')).hexdigest()[:16]}"
    watch = _WATCH.format(command=shlex.quote(health_command), interval=INTERVAL) if health_command else ""
    body = _BODY.format(
        end=end,
        script=script.removesuffix("\n"),
        watch=watch,
        command=shlex.join(_interpreter(script)),
        arguments=shlex.join(arguments),
    )
    return _HEAD + body


def wrap_command(command: str) -> str:
    """The script that ``--wrap`` stands for."""
    return f"#!/bin/sh\n# Made from --wrap.\n\n{command}\n"


def _interpreter(script: str) -> tuple[str, ...]:
    """As the kernel reads the first line: a path and at most one argument, blanks and all."""
    match = _INTERPRETER.match(script)
    assert match is not None, "whoever wraps has checked the script"
    return (match[1], match[2]) if match[2] else (match[1],)
