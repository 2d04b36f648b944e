"""The options with which a job was submitted: the command line of ``sbatch`` that accounting keeps.

Slurm joins its words by blanks, without quotes. Where words cannot be separated, nothing is read from it.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.slurm.sbatchoptions import SBATCH, Given, Word

if TYPE_CHECKING:
    from mirage.slurm.shownjob import ShownJob

_WRAPPED = "# This script was created by sbatch --wrap."
_FREE = {"comment": "Comment", "job-name": "JobName", "chdir": "WorkDir"}
"""Options whose values may have blanks, and the fields in which ``scontrol`` shows them."""
_OF_ONE_JOB = frozenset({"begin", "hold", "dependency", "kill-on-invalid-dep", "deadline", "comment", "wrap"})
_OF_ONE_JOB |= {"wait", "parsable", "quiet", "verbose", "test-only"}
"""Options that concern the submission of this job alone."""


def options_of_line(line: str, job: ShownJob, script: str) -> tuple[Given, ...] | None:
    """The options in ``line``, such as ``sbatch -N2 train.sh``, without those that concern this job alone.

    ``None`` where words cannot be separated: what follows the options is not the job's script.
    """
    program, *texts = line.split() or [""]
    if PurePath(program).name != "sbatch":
        return None
    name = PurePath(job.value("Command").partition(" ")[0]).name
    command = script.partition(_WRAPPED)[2].split()
    if command:
        texts = _without_wrapped(texts, command)
    for option, field in _FREE.items():
        texts = _joined(texts, option, job.value(field).split())
    try:
        given, rest = SBATCH.read([Word(text, f"job {job.job_id}: {line}") for text in texts])
    except BadSpelling:
        return None
    if (PurePath(rest[0].text).name if rest else "") != ("" if command else name):
        return None
    return tuple(option for option in given if option.name not in _OF_ONE_JOB)


def _joined(texts: list[str], option: str, value: list[str]) -> list[str]:
    """With the words of an option's value, which Slurm shows, as one word again."""
    if len(value) < 2:
        return texts
    for at in range(len(texts)):
        for first in (f"--{option}={value[0]}", value[0]):
            if [texts[at], *texts[at + 1 : at + len(value)]] == [first, *value[1:]]:
                return [*texts[:at], " ".join([first, *value[1:]]), *texts[at + len(value) :]]
    return texts


def _without_wrapped(texts: list[str], command: list[str]) -> list[str]:
    """Without ``--wrap``, whose command is all of the script; further options may follow it."""
    for begin in (["--wrap", *command], [f"--wrap={command[0]}", *command[1:]]):
        for at in range(len(texts)):
            if texts[at] == begin[0] and texts[at : at + len(begin)] == begin:
                return texts[:at] + texts[at + len(begin) :]
    return texts
