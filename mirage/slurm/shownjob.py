"""A job as ``scontrol show job`` prints it: one value or several on a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.slurm.state import parse_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import JobId, JobState

_WHOLE = ("Command", "WorkDir", "Comment", "StdErr", "StdIn", "StdOut", "SubmitLine")
"""Values that each fill a line, and may hold blanks."""
_NAME = " JobName="
"""The last value on the first line; it may hold blanks too."""
_USER = re.compile(r"(.+)\(([0-9]{1,10})\)")
_NOTHING = ("", "(null)", "N/A", "None", "Unknown")


@dataclass(frozen=True, slots=True)
class ShownJob:
    """Attributes of a job that ``scontrol show job`` prints."""

    job_id: JobId
    uid: int
    """UID of the job's owner."""
    state: JobState
    fields: Mapping[str, str]
    """Further values by Slurm's names, without those that are words for nothing."""

    def value(self, name: str) -> str:
        """The value in Slurm's notation; empty where it is missing."""
        return self.fields.get(name, "")

    def number(self, name: str) -> int:
        """A plain number; 0 where Slurm shows none."""
        text = self.value(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def read_shown_job(text: str, job_id: JobId) -> ShownJob:
    """The job of an answer to ``scontrol show job``, which shows every task of an array.

    Raises ``BadSpelling`` where it is not among them or cannot be read.
    """
    for block in re.split(r"\n\s*\n", text):
        fields = _fields(block)
        if fields.get("JobId") == str(job_id):
            return _job(job_id, fields)
    raise BadSpelling(text, f"scontrol does not show job {job_id}")


def _job(job_id: JobId, fields: Mapping[str, str]) -> ShownJob:
    user = _USER.fullmatch(fields.get("UserId", ""))
    if user is None:
        raise BadSpelling(fields.get("UserId", ""), "expected a user such as alice(1001)")
    return ShownJob(job_id, int(user[2]), parse_state(fields.get("JobState", "")), fields)


def _fields(block: str) -> dict[str, str]:
    """The first value of each name: what follows may be a user's words."""
    found: dict[str, str] = {}
    for line in block.splitlines():
        name, _, value = line.strip().partition("=")
        if name in _WHOLE:
            found.setdefault(name, value.rstrip())
            continue
        words, last, job_name = line.partition(_NAME)
        if last:
            found.setdefault("JobName", job_name)
        for word in words.split():
            name, equals, value = word.partition("=")
            if equals:
                found.setdefault(name, value)
    return {name: value for name, value in found.items() if value not in _NOTHING}
