"""Job ids and exit codes as sacct prints them."""

from __future__ import annotations

import re

from mirage.domain.errors import BadSpelling

MAX_ARRAY_TASKS = 4_000_001
"""Slurm's own ceiling on MaxArraySize (man slurm.conf)."""

_JOB = re.compile(r"[0-9]{1,18}(?:_[0-9]{1,18}|\+[0-9]{1,9})?")
_STEP = re.compile(r"[0-9]{1,18}(?:[_+][0-9]{1,18})?\.\S+")
_PENDING_ARRAY = re.compile(r"([0-9]{1,18})_\[([^\[\]%]*)(?:%[0-9]{1,9})?\]")
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_EXIT = re.compile(r"([0-9]{1,5})(?::([0-9]{1,3}))?")


def is_step(text: str) -> bool:
    """Whether the id is a job step's, such as ``123.batch`` or ``123_4.0``."""
    return "." in text and _STEP.fullmatch(text) is not None


def expand_job_ids(text: str) -> list[str]:
    """``123``, ``123_4`` and ``123+1`` as they are; the tasks of a pending array such as ``123_[5-9,12%2]``.

    A list that Slurm has cut short (it ends in ``...``) stays as it is, since its tasks are not known. Raises
    ``BadSpelling``.
    """
    if _JOB.fullmatch(text):
        return [text]
    match = _PENDING_ARRAY.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "is not a job id such as 123, 123_4, 123_[5-9%2] or 123+1")
    if match[2].endswith("..."):
        return [text]
    ranges = [_tasks(part, text) for part in match[2].split(",")]
    if sum(len(r) for r in ranges) > MAX_ARRAY_TASKS:
        raise BadSpelling(text, f"names more than {MAX_ARRAY_TASKS:,} tasks")
    return [f"{match[1]}_{task}" for tasks in ranges for task in tasks]


def _tasks(part: str, text: str) -> range:
    match = _TASKS.fullmatch(part)
    if match is None:
        raise BadSpelling(text, f"[{part[:20]}] is not an array index or a range such as 5-9 or 0-20:4")
    low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if high < low or step == 0:
        raise BadSpelling(text, f"the range {part} is empty")
    return range(low, high + 1, step)


def parse_exit_code(text: str) -> int:
    """``code:signal`` as one number: the code, or 128 + signal where a signal ended the job (as shells say it).

    Empty text is 0. Raises ``BadSpelling``.
    """
    match = _EXIT.fullmatch(text or "0")
    if match is None:
        raise BadSpelling(text, "expected an exit code such as 0:0, 1:0 or 0:15")
    code, signal = int(match[1]), int(match[2] or 0)
    return code if code or not signal else 128 + signal
