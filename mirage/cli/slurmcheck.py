"""What can be known of a link before its chain exists: its files, and what Slurm says of its request."""

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
    """Raise ``ConfigError`` where the directory in which links are to run does not exist."""
    directory = request.batch.directory if request.batch else ""
    if directory and not Path(directory).is_dir():
        raise ConfigError("--chdir", f"directory '{directory}' does not exist; {_ANYWAY}")


def check_done_file(path: str) -> None:
    """Raise ``ConfigError`` where the file that ends the chain exists already: no link would be submitted.

    Also where something is there that can never end the chain: a directory, a link that leads nowhere.
    """
    if not path or not os.path.lexists(path):
        return
    if Path(path).is_file():
        problem = f"'{path}' exists already, so the chain would end before its first link; remove it"
    else:
        problem = f"'{path}' is there and is no file that can be read, so it would never count; name another file"
    raise ConfigError("--done-file", f"{problem}, or submit with --no-check")


def check_request(request: JobRequest, commands: Commands) -> str:
    """Ask Slurm whether it would accept the link (``sbatch --test-only``); returns a remark, or nothing.

    Raises ``ConfigError`` with Slurm's words where no retry can fix a rejection. What Slurm rejects for now only
    is no error: the daemon tries again. A Slurm that is not there, or does not answer, says nothing.
    """
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except ClusterUnavailable:
        return ""
    except SubmissionRejected as error:
        if not is_permanent(error.reason) or _nodes_may_be_away(error, request, commands):
            return f"Slurm does not accept the first link now: {error}; Mirage tries again until it does"
        raise ConfigError(request.name, f"Slurm rejects this job: {error}; {_ANYWAY}") from None
    return ""


def why_rejected(request: JobRequest, commands: Commands) -> str:
    """In Slurm's words why it would reject such a job whatever comes; empty: it would not, or does not answer."""
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except SubmissionRejected as error:
        if is_permanent(error.reason) and not _nodes_may_be_away(error, request, commands):
            return f"Slurm rejects such a job: {error}"
    except ClusterUnavailable:
        pass
    return ""


def _nodes_may_be_away(error: SubmissionRejected, request: JobRequest, commands: Commands) -> bool:
    """``--test-only`` takes nodes that are down or drained for nodes that do not exist; ``sbatch`` does not."""
    if error.reason != "BadConstraints":
        return False
    where = [f"--partition={request.partition}"] if request.partition else []
    try:
        answer = commands.run(["sinfo", "--noheader", "--format=%t", *where])
    except ClusterUnavailable:
        return True
    states = [line.strip() for line in answer.out.split(os.linesep) if line.strip()]
    return answer.status != 0 or not all(state.rstrip("*~#!%$@^-").startswith(_AVAILABLE) for state in states)
