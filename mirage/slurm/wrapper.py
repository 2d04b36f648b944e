"""The shell script around a user's script: for its health, its arguments, or a chain that may be over.

The wrapper writes the user's script into its file, which slurmd gives to the job's user, and executes that:
``$0``, arguments, signals, exit code and the meaning of "batch shell" stay what they are. Where the file cannot be
written, it executes one that has no name any more. Nothing is left behind, however the job ends.

``Gate`` has the lines by which a link that was queued ahead sees that the job before it has ended the chain. Slurm
starts such a link once its nodes are free or its dependency is met. The daemon sees what ended the chain up to a
cycle later, or not at all while it is down.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, UNLIMITED, WARNED_EARLY, JobState
from mirage.slurm.batchscript import read_interpreter, sbatch_lines
from mirage.slurm.duration import spell
from mirage.slurm.job_state import NOT_ON_NODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.domain.job import JobId, Seconds

_FILTERS = (
    *("ACCOUNT", "CLUSTERS", "FEDERATION", "FORMAT", "FORMAT2", "LICENSES", "LOCAL", "NAMES", "PARTITION"),
    *("PRIORITY", "QOS", "SIBLING", "SORT", "STATES", "USERS"),
)
_EXITED = (JobState.FAILED, JobState.OUT_OF_MEMORY)
"""Ends that are no failure once Slurm has warned the job."""
_HAS_RUN = '[ "$mirage_end" -gt "$mirage_start" ] 2>/dev/null'
"""A job that is cancelled while it is pending starts and ends at one time."""
_QUESTION = """\
# The link before may have ended the chain just before this one started.
mirage_squeue() (
  unset {filters}
  export SLURM_TIME_FORMAT=%s LC_ALL=C
  mirage_asked=:
  set -f
  IFS=:
  # A squeue of the user's own may print other columns: the system's is asked first.
  for mirage_place in /usr/bin /bin $PATH; do
    unset IFS
    [ -x "$mirage_place/squeue" ] || continue
    case $mirage_asked in
      *":$mirage_place:"*) continue ;;
      :/usr/bin:) [ "$mirage_place/squeue" -ef /usr/bin/squeue ] && continue ;;
    esac
    mirage_asked=$mirage_asked$mirage_place:
    mirage_said=$(
      mirage_run timeout 30 "$mirage_place/squeue" --noheader --states=all --jobs={job} \\
        --Format=State:.20,exit_code:.12,StartTime:.24,EndTime:.24,TimeLimit:.20 2>&1
    ) && mirage_said=0:$mirage_said || mirage_said=$?:$mirage_said
    set -- ${{mirage_said#*:}}
    while [ $# -gt 4 ]; do
      case $1:${{2%%:*}}:${{3##[A-Z]*}}:${{4##[A-Z]*}} in
        *[!A-Z_]*:*:*:* | *:*[!0-9]*:*:* | *:*:*[!0-9]*:* | *:*:*:*[!0-9]*) shift ;;
        *) echo "$1 $2 $3 $4 $5"; exit ;;
      esac
    done
    case $mirage_said in
      0: | *"Invalid job id"*) exit ;;
    esac
  done
  [ "$mirage_asked" = : ] || echo NO_ANSWER
)
mirage_ask() {{
  read -r mirage_state mirage_code mirage_start mirage_end mirage_limit <<END
$(mirage_squeue)
END
}}
mirage_ends() {{
  echo "mirage: job {job}, the link before, has ended the chain ($mirage_state): this link does not run" >&2
  exit "$1"
}}
mirage_ask
{wait}{conditions}unset -f mirage_squeue mirage_ask mirage_ends
unset mirage_state mirage_code mirage_start mirage_end mirage_limit
"""
_WAIT = """\
# Its nodes are free while it is suspended; it may write once it is resumed, and only one link may.
mirage_told={told} mirage_last=
mirage_waits() {{
  case $mirage_state in
    "" | {over}) return 1 ;;
    NO_ANSWER) [ "$mirage_told" ] ;;
    *) mirage_told=1 ;;
  esac
}}
while mirage_waits; do
  [ "$mirage_last" = "$mirage_state" ] ||
    echo "mirage: job {job}, the link before, is $mirage_state: this one waits for its end" >&2
  mirage_last=$mirage_state
  mirage_run sleep {interval}
  mirage_ask
done
unset -f mirage_waits
unset mirage_told mirage_last
"""
_INTERVAL = 15
"""Seconds between two checks of a predecessor that is not over."""
_CONDITION = """\
if {test}; then
  mirage_ends {code}
fi
"""
_FILE = """\
# The file that says that the work is done.
if [ -e {file} ]; then
  printf 'mirage: %s exists, which has ended the chain: this link does not run\\n' {file} >&2
  exit 0
fi
"""
_DIRECTORY = """\
# Where a node lacks the directory Slurm runs the job in another one, without what the links before have saved.
[ . -ef {directory} ] || cd {directory} 2>/dev/null || {{
  printf 'mirage: %s is missing on %s: this link does not run\\n' {directory} "${{SLURMD_NODENAME:-its node}}" >&2
  exit {code}
}}
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """The ends of the previous job that end the chain, and the directory without which a link does not run."""

    job: JobId
    """The job before."""
    done_code: int | None = None
    """The exit code that says that the work is done; ``None``: no code does."""
    done_file: str = ""
    """The file that says so, where it is there; empty: none does."""
    stops: tuple[JobState, ...] = ()
    """Ends of a job that has run which stop the chain."""
    warn_lead: Seconds = ABSENT
    """Time before its limit at which Slurm warns that job; ``ABSENT``: no warning."""
    limit: Seconds = ABSENT
    """That job's time limit as far as is known; with any other one the job may have been warned."""
    alone: bool = False
    """Whether nothing may run next to that job: then the link waits until it is over."""
    bound: bool = False
    """Whether its nodes alone keep the link back: then it waits also where Slurm does not answer.

    A link that depends on the job before starts after its end in any case.
    """
    directory: str = ""
    """Absolute path of the working directory; empty: not checked."""

    def lines(self) -> str:
        """Lines for ``sh`` that exit where the chain is over, and first wait where the job before is not.

        Where no ``squeue`` is found, or it does not know the job any more, they do nothing. So it is where Slurm
        does not answer, unless the link waits for the job, or is ``bound``.

        The exit code is the one that says that the work is done, or else one that does not.
        """
        directory = ""
        if self.directory.startswith("/"):
            directory = _DIRECTORY.format(directory=shlex.quote(self.directory), code=self._not_done)
        conditions = "".join(self._conditions())
        question = ""
        if conditions or self.alone:
            told = "1" if self.bound else ""
            over = " | ".join(NOT_ON_NODES)
            wait = _WAIT.format(job=self.job, interval=_INTERVAL, told=told, over=over) if self.alone else ""
            filters = " ".join([*(f"SQUEUE_{each}" for each in _FILTERS), "SLURM_CLUSTERS"])
            question = _QUESTION.format(filters=filters, job=self.job, wait=wait, conditions=conditions)
        return directory + question + (_FILE.format(file=shlex.quote(self.done_file)) if self.done_file else "")

    def _conditions(self) -> Iterable[str]:
        unwarned = self._unwarned()
        other_code = self._not_done
        if self.done_code == 0 and unwarned is not None:
            yield _condition((JobState.COMPLETED,), unwarned, 0)
        if self.done_code:
            raw, spelled = self.done_code << 8, f"{self.done_code}:0"
            test = f'{{ [ "$mirage_code" = {raw} ] || [ "$mirage_code" = {spelled} ]; }}'
            yield _condition((JobState.FAILED,), test, self.done_code)
        if own := [state for state in self.stops if state in _EXITED] if unwarned is not None else []:
            yield _condition(own, unwarned or "", other_code)
        if others := [state for state in self.stops if state not in (*_EXITED, JobState.CANCELLED)]:
            yield _condition(others, "", other_code)
        if JobState.CANCELLED in self.stops:
            yield _condition((JobState.CANCELLED,), _HAS_RUN, other_code)

    @property
    def _not_done(self) -> int:
        """An exit code that does not say that the work is done."""
        return 2 if self.done_code == 1 else 1

    def _unwarned(self) -> str | None:
        """The test that Slurm cannot have warned the job; empty: it never does; ``None``: unknown."""
        if self.warn_lead == ABSENT:
            return ""
        if self.limit in (ABSENT, UNLIMITED) or (first := self.limit - self.warn_lead - WARNED_EARLY) <= 0:
            return None
        limit = spell(self.limit)
        same = f'{{ [ "$mirage_limit" = {limit} ] || [ "$mirage_limit" = {limit.lstrip("0:")} ]; }}'
        return f'{same} && [ "$mirage_start" -ge 0 ] && [ "$mirage_end" -lt $((mirage_start + {first})) ]'


def _condition(states: Iterable[JobState], test: str, code: int) -> str:
    state = " || ".join(f'[ "$mirage_state" = {state.name} ]' for state in states)
    return _CONDITION.format(test=f"{{ {state}; }} && {test}" if test else state, code=code)


_PLAIN_SHELLS = ("sh", "dash", "ash", "busybox")
_HEAD = """\
#!{shell}
# Made by mirage submit: runs the script below unchanged.
{lines}"""

_WATCH = """\
# Next to it, until it succeeds: the command that tells whether the service can take over. It is no child of the
# script, which may wait for all of its own.
( (
  trap : HUP INT USR1 USR2
  mirage_told=
  while kill -0 $$; do
    if /bin/sh -c {command}; then
      mirage_run mkdir -p "${{MIRAGE_HANDOVER_FILE%/*}}"
      # Never through a link that another user has made.
      if (set -C; : >"$MIRAGE_HANDOVER_FILE") || [ -e "$MIRAGE_HANDOVER_FILE" ]; then
        break
      fi
      [ "$mirage_told" ] ||
        echo "mirage: $MIRAGE_HANDOVER_FILE cannot be created, so this link never counts as ready" >>/proc/$$/fd/2
      mirage_told=1
    fi
    mirage_run sleep {interval}
  done
) </dev/null >/dev/null 2>&1 3<&- & )
"""

_CONTROLLER = """\
# Next to it: a look at the chains of this user, for whom no daemon stays. It says in how many seconds the next one
# is due.
( (
  trap '' HUP INT USR1 USR2
  mirage_when=now
  while kill -0 $$; do
    mirage_wait=$(/bin/sh {file} $mirage_when)
    mirage_when=
    case $mirage_wait in
      "" | *[!0-9]* | ?????*) mirage_wait={interval} ;;
    esac
    mirage_run sleep "$mirage_wait"
  done
) </dev/null >/dev/null 2>&1 3<&- & )
"""
_LOOK_EVERY = 60
"""Seconds until the next look where the last one said nothing."""

_BODY = """\
mirage_run() (
  PATH=${{PATH:+$PATH:}}/usr/bin:/bin  # the script's own may have none of these
  command "$@"  # no function of the user's with this name
)
mirage_text() {{
  mirage_run cat <<'{end}'
{script}
{end}
}}
mirage_open() {{
  mirage_script=$(mirage_run mktemp "$1/mirage.XXXXXX" 2>/dev/null) || return 1
  (TMPDIR=$1; mirage_text >|"$mirage_script") 2>/dev/null && command exec 3<"$mirage_script"
  set -- $? "$mirage_script"
  mirage_run rm -f "$2"
  return "$1"
}}
mirage_open "${{TMPDIR:-/tmp}}" || mirage_open /tmp || mirage_open /dev/shm || mirage_open /var/tmp || {{
  echo "mirage: no directory for temporary files has room for the script" >&2
  exit 126
}}
# A requeued job is not ready again, whatever its last run has said.
if [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ] && [ -n "${{MIRAGE_HANDOVER_FILE:-}}" ]; then
  mirage_run rm -f "$MIRAGE_HANDOVER_FILE"
fi
unset mirage_script
{before}{{
  # In a shell of its own: the check of health may write to this one's stderr.
  if (mirage_run chmod u+w "$0" && mirage_run cat <&3 >|"$0" && mirage_run chmod u-w "$0") 2>/dev/null; then
    command exec 3<&-
    command exec "$0" "$@"
  fi
  command exec {command} /dev/fd/3 "$@"
  exit 126
}}
"""
"""The last block is read as a whole before it is run: by then the file that it stands in holds another script."""

_WRAPPED = re.compile(
    r"#![^\n]*\n# Made by mirage submit: .*?^  mirage_run cat <<'END_OF_SCRIPT_(?P<end>[0-9a-f]{16})'\n"
    r"(?P<script>.*?)\nEND_OF_SCRIPT_(?P=end)\n(?P<rest>.*)",
    re.DOTALL | re.MULTILINE,
)
_ARGUMENTS = re.compile(r"^unset mirage_script\nset -- (.*?)\n\{\n", re.DOTALL | re.MULTILINE)

INTERVAL = 5
"""Seconds between two checks of the service's health."""


def wrap(script: str, health_command: str) -> str:
    """A shell script that runs ``script`` and, next to it, ``health_command`` by ``sh -c`` until that succeeds.

    ``$MIRAGE_HANDOVER_FILE`` is touched then.
    """
    return _around(script, _WATCH.format(command=shlex.quote(health_command), interval=INTERVAL))


def attended(script: str, controller: str) -> str:
    """A shell script that runs ``script`` and, next to it, again and again the shell script in ``controller``.

    That one prints the seconds until it is due again. Raises ``BadSpelling`` as ``with_arguments`` does.
    """
    watch = _CONTROLLER.format(file=shlex.quote(controller), interval=_LOOK_EVERY)
    return _around(script, watch, sbatch_lines(script, "script"))


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


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """The parts of a wrapper that Mirage made."""

    script: str
    arguments: tuple[str, ...]
    """Arguments that the wrapper gives to the script; empty also where Slurm gives them."""
    gated: bool
    """Whether it is that of a link with a predecessor."""


def unwrapped(text: str) -> Unwrapped | None:
    """The user's script in a wrapper, or in wrappers around each other; ``None`` for any other script."""
    arguments: tuple[str, ...] = ()
    gated, script = False, text
    while found := _WRAPPED.match(script):
        script, around = found["script"], found["rest"]
        if hashlib.sha256(script.encode(errors="surrogatepass")).hexdigest()[:16] != found["end"]:
            script += "\n"  # the line break of the last line stands before the end
        gated |= "mirage_squeue" in around or "\n[ . -ef " in around
        if given := _ARGUMENTS.search(around):
            with suppress(ValueError):  # the wrapper was edited
                arguments = tuple(shlex.split(given[1]))
    return None if script is text else Unwrapped(script, arguments, gated)
