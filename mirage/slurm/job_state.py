"""Job IDs, states and exit codes as squeue, sacct and the controller print them: long, short and truncated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, JobState

if TYPE_CHECKING:
    from mirage.domain.job import Job


def exit_code_of_status(text: str) -> int:
    """A raw wait status (768, 15), as squeue prints it, as shells say it: the code, or 128 + the signal.

    Of a job whose script could not be started it is 4021, which scontrol shows as 0:53. Raises ``BadSpelling``.
    """
    if not text.isdecimal() or len(text) > 10:
        raise BadSpelling(text, "expected a wait status such as 0, 256 or 15")
    status = int(text)
    code, signal = status >> 8 & 0xFF, status & 0x7F
    return 128 + signal if 0 < signal < 0x7F else code


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


# man squeue, JOB STATE CODES: code, name, base state. Flags such as COMPLETING stand next to a base state that
# is not printed: the one meant is that of a job which still holds its nodes, or has left, as the flag says.
_STATES: tuple[tuple[str, str, JobState], ...] = (
    ("BF", "BOOT_FAIL", JobState.BOOT_FAIL),
    ("CA", "CANCELLED", JobState.CANCELLED),
    ("CD", "COMPLETED", JobState.COMPLETED),
    ("CF", "CONFIGURING", JobState.RUNNING),
    ("CG", "COMPLETING", JobState.COMPLETED),
    ("DL", "DEADLINE", JobState.DEADLINE),
    ("EX", "EXPEDITING", JobState.PENDING),
    ("F", "FAILED", JobState.FAILED),
    ("LF", "LAUNCH_FAILED", JobState.FAILED),
    ("NF", "NODE_FAIL", JobState.NODE_FAIL),
    ("OOM", "OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
    ("PD", "PENDING", JobState.PENDING),
    ("PU", "POWER_UP_NODE", JobState.RUNNING),
    ("PR", "PREEMPTED", JobState.PREEMPTED),
    ("RF", "REQUEUE_FED", JobState.PENDING),
    ("RG", "RECONFIG_FAIL", JobState.FAILED),
    ("RH", "REQUEUE_HOLD", JobState.PENDING),
    ("RD", "RESV_DEL_HOLD", JobState.PENDING),
    ("RQ", "REQUEUED", JobState.PREEMPTED),  # sacct --duplicates: this run ended, the job went back to the queue
    ("RS", "RESIZING", JobState.RUNNING),
    ("RV", "REVOKED", JobState.CANCELLED),
    ("R", "RUNNING", JobState.RUNNING),
    ("SI", "SIGNALING", JobState.RUNNING),
    ("SE", "SPECIAL_EXIT", JobState.PENDING),
    ("SO", "STAGE_OUT", JobState.COMPLETED),
    ("ST", "STOPPED", JobState.RUNNING),
    ("S", "SUSPENDED", JobState.SUSPENDED),
    ("TO", "TIMEOUT", JobState.TIMEOUT),
)
NOT_ON_NODES = tuple(
    name
    for _, name, state in _STATES
    if state not in (JobState.RUNNING, JobState.SUSPENDED) and name != "COMPLETING"
)
"""Names of states in which a job has no process on its nodes; in any other, also one that is new, it may."""
NODES_BOOT = frozenset({"CONFIGURING", "POWER_UP_NODE"})
"""States of a job that has nodes which are not ready: its script has not begun, and its start will move."""
_ROOT = ("0", "root")
_LAUNCH = 30
"""Seconds from a job's start within which a prolog fails."""
_BY_TEXT = {text: state for code, name, state in _STATES for text in (code, name)}


def parse_state(text: str) -> JobState:
    """The state in ``COMPLETED``, ``CANCELLED by 1000``, ``OUT_OF_ME+``, ``CA`` and the like, in any case.

    Raises ``BadSpelling``; also for a truncated name that could be several states.
    """
    words = text.upper().split()
    word = words[0] if words else ""
    if word in _BY_TEXT:
        return _BY_TEXT[word]
    if word.endswith("+"):
        found = {state for _, name, state in _STATES if len(word) > 1 and name.startswith(word[:-1])}
        if len(found) == 1:
            return found.pop()
    raise BadSpelling(text, "is not a job state such as COMPLETED, TIMEOUT or CANCELLED")


def parse_end(text: str, exit_code: int = 0) -> JobState:
    """As ``parse_state``, of a job in accounting: a ``CANCELLED`` without a UID is by the cluster.

    slurmdbd ends in this way the jobs that a slurmctld no longer knows after it lost its state, and slurmctld
    those that it will never start; a cancelled job is ``CANCELLED by`` a UID. But a slurmctld that is started
    again reports the jobs that it knows again, without the UID: an ``exit_code`` shows that a signal ended such a
    job; if the exit code is 0, the time of the end has to decide.
    """
    return JobState.NODE_FAIL if names_no_user(text) and not exit_code else parse_state(text)


def failed_launch(canceller: str, owner: str, ran: int) -> bool:
    """Whether a job that was cancelled after ``ran`` seconds never began: its node could not start it.

    Where a prolog fails, slurmd has the job requeued; one that may not be is cancelled in root's name. An
    administrator's cancellation within the first seconds looks the same; a link follows after it, too.
    """
    return canceller in _ROOT and owner not in _ROOT and 0 <= ran <= _LAUNCH


def may_be_unlaunched(job: Job) -> bool:
    """Whether a job that the queue shows as cancelled may be one that its node could not start.

    The queue does not say who cancelled it.
    """
    soon = job.start == ABSENT or job.end - job.start <= _LAUNCH
    return job.state is JobState.CANCELLED and bool(job.node_list) and soon


def canceller_of(text: str) -> str:
    """The UID in ``CANCELLED by 1000``; empty where it is missing."""
    words = text.split()
    return words[2] if len(words) == 3 and words[0].upper() == "CANCELLED" else ""


def names_no_user(text: str) -> bool:
    """Whether this is a ``CANCELLED`` that does not say by whom."""
    return text.strip().upper() == "CANCELLED"
