"""Checks before a chain exists: files of the links, and whether Slurm would accept their request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.cli_actuator import CliActuator
from mirage.domain.errors import ClusterUnavailable, ConfigError, SubmissionRejected
from mirage.slurm.rejections import is_permanent

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.domain.job import JobRequest

_AVAILABLE = ("alloc", "idle", "mix", "comp", "resv", "plnd")
_ANYWAY = "correct it, or submit with --no-check"


def check_directory(request: JobRequest) -> None:
    """Raise ``ConfigError`` if the working directory of the links does not exist."""
    directory = request.batch.directory if request.batch else ""
    if directory and not Path(directory).is_dir():
        raise ConfigError("--chdir", f"directory '{directory}' does not exist; {_ANYWAY}")


def check_done_file(path: str) -> None:
    """Raise ``ConfigError`` if the done-file exists already: no link would be submitted.

    Also for a directory or a dangling symbolic link, which could never end the chain.
    """
    if not path or not os.path.lexists(path):
        return
    if Path(path).is_file():
        problem = f"'{path}' already exists, so the chain would end before its first link; remove the file"
    else:
        problem = f"'{path}' is not a readable file, so it could never end the chain; name another file"
    raise ConfigError("--done-file", f"{problem}, or submit with --no-check")


def check_request(request: JobRequest, commands: Commands) -> str:
    """Ask Slurm whether it would accept the link (``sbatch --test-only``); return a remark or an empty text.

    Raises ``ConfigError`` with Slurm's message if no retry can fix the rejection. A temporary rejection is only a
    remark, because the daemon retries. If Slurm does not reply there is no remark.
    """
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except ClusterUnavailable:
        return ""
    except SubmissionRejected as error:
        if not is_permanent(error.reason) or _nodes_may_be_away(error, request, commands):
            return f"Slurm does not accept the first link now: {error}; Mirage retries until Slurm accepts it"
        raise ConfigError(request.name, f"Slurm rejects this job: {error}; {_ANYWAY}") from None
    return ""


def why_rejected(request: JobRequest, commands: Commands) -> str:
    """Return Slurm's message if it would reject such a job permanently; else an empty text."""
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except SubmissionRejected as error:
        if is_permanent(error.reason) and not _nodes_may_be_away(error, request, commands):
            return f"Slurm rejects such a job: {error}"
    except ClusterUnavailable:
        pass
    return ""


def _nodes_may_be_away(error: SubmissionRejected, request: JobRequest, commands: Commands) -> bool:
    """``--test-only`` treats down and drained nodes as missing; ``sbatch`` does not."""
    if error.reason != "BadConstraints":
        return False
    where = [f"--partition={request.partition}"] if request.partition else []
    try:
        answer = commands.run(["sinfo", "--noheader", "--format=%t", *where])
    except ClusterUnavailable:
        return True
    states = [line.strip() for line in answer.out.split(os.linesep) if line.strip()]
    return answer.status != 0 or not all(state.rstrip("*~#!%$@^-").startswith(_AVAILABLE) for state in states)
