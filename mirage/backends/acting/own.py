"""Actions in a process of the user, by Slurm's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.links_only import Identity, LinksOnly
from mirage.backends.backgroundfiles import CheckLimits, local_files
from mirage.backends.cli_actuator import CliActuator
from mirage.domain.errors import BadSpelling, ClusterUnavailable, UnknownJob
from mirage.domain.files import WatchedFile
from mirage.domain.job import ABSENT
from mirage.slurm import wording
from mirage.slurm.state import parse_state

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.domain.files import FileState
    from mirage.domain.job import JobId, JobState

_EPOCH, _END = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}, "\x1e"
_SHAPE = "%i %u %V %T %k"
_TIMEOUT, _PATIENCE = 3.0, 4.0
"""Seconds; less than the next order waits for an agent that is busy."""


def own_links(commands: Commands, user: str) -> LinksOnly:
    """Acts on the links of ``user``, who is the user of this process, and on nothing else."""
    files = local_files(CheckLimits(timeout=_TIMEOUT))

    def check(paths: tuple[str, ...]) -> tuple[FileState, ...]:
        return files.ask([WatchedFile(user, path) for path in paths], _PATIENCE)

    return LinksOnly(CliActuator(commands, user), user, lambda job_id: identify(commands, job_id), check)


def identify(commands: Commands, job_id: JobId) -> Identity:
    """Owner, comment, submission time and state of a job.

    Raises ``UnknownJob`` and ``ClusterUnavailable``.
    """
    what = f"squeue --jobs={job_id}"
    answer = commands.run(
        ["squeue", "--noheader", "--all", "--states=all", f"--jobs={job_id}", f"--format={_SHAPE}{_END}"],
        environment=commands.environment | _EPOCH,
    )
    if answer.status:
        raise wording.refused_act(answer.said, what)
    *rows, _ = answer.out.split(_END)
    if not rows:
        raise UnknownJob(f"{what}: no such job")
    if len(rows) > 1:
        raise ClusterUnavailable(f"{what}: expected one job, found {len(rows)}")
    cells = rows[0].strip().split(" ", maxsplit=4)
    if len(cells) < 4:
        raise ClusterUnavailable(f"{what}: {rows[0].strip()[:80]!r} is no job")
    shown, user, submit, word, *comment = cells
    instant = int(submit) if submit.isdecimal() else ABSENT
    return Identity(user, "".join(comment).strip(), instant, _state(word), alone=shown == str(job_id))


def _state(word: str) -> JobState | None:
    try:
        return parse_state(word)
    except BadSpelling:
        return None
