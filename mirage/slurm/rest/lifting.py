"""Records of every version lifted to the newest shape, step by step.

Each step takes the fields that Mirage reads from one version to the next; steps at which these do not change are
not there (41 to 46 add fields, and rename none of these). Steps change their record in place: ``lift`` gives them
a copy, with no more than the fields that they need.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling
from mirage.slurm import hostlist
from mirage.slurm.rest.fields import INFINITE, UNSET, Record, set_number, text, whole, wrong
from mirage.slurm.state import NODES_BOOT, parse_state

if TYPE_CHECKING:
    from collections.abc import Sequence

Step = Callable[[Record], None]


class Kind(Enum):
    """The object that a record describes, with the fields that are read."""

    JOB = (
        "job_id name user_name user_id account partition qos node_count time_limit submit_time eligible_time "
        "start_time end_time priority nice comment nodes required_nodes exit_code job_state state_reason "
        "state_description array_task_id array_task_string tres_alloc_str tres_req_str"
    )
    """``/slurm/.../jobs``: the controller's jobs."""
    PAST_JOB = (
        "job_id name user account partition qos constraints nodes allocation_nodes comment exit_code state time "
        "tres"
    )
    """``/slurmdb/.../jobs``: the accounting's jobs."""
    NODE = "name state state_flags partitions"


_FIELDS = {kind: tuple(kind.value.split()) for kind in Kind}


def lift(kind: Kind, version: int, record: Record) -> Record:
    """The fields of ``kind`` in the newest shape. Raises ``BadSpelling`` for a field of an unknown form."""
    if not _is_record(record):
        raise BadSpelling(repr(record)[:40], "expected an object")
    lifted = {name: record.get(name) for name in _FIELDS[kind]}
    for since, step in _STEPS[kind]:
        if version < since:
            step(lifted)
    return lifted


def with_partitions(nodes: Sequence[Record], partitions: Sequence[Record]) -> list[Record]:
    """v0.0.36's nodes do not name their partitions: they follow from its partitions' host lists.

    Raises ``BadSpelling``.
    """
    of: dict[str, list[str]] = {}
    for partition in filter(_is_record, partitions):
        for name in hostlist.expand(text(partition, "nodes")):
            of.setdefault(name, []).append(text(partition, "name"))
    return [node | {"partitions": of.get(text(node, "name"), [])} if _is_record(node) else node for node in nodes]


def _is_record(value: object) -> bool:
    return type(value) is dict


def _node_37(node: Record) -> None:
    """v0.0.36 has no flags next to a node's state, so a drained node looks like an idle one."""
    node["state_flags"] = []


def _past_job_38(job: Record) -> None:
    """Up to v0.0.37 the start in accounting is the time of eligibility; the time it ran is right."""
    times = dict(_inside(job, "time"))
    end, elapsed, suspended = (whole(times, name) for name in ("end", "elapsed", "suspended"))
    job["time"] = times | {"start": end - elapsed - suspended if end else times.get("start")}


def _job_39(job: Record) -> None:
    """Up to v0.0.38 numbers are plain, and null where Slurm has none: no limit, or not an array's task."""
    job["time_limit"] = _numbered(job, "time_limit", INFINITE)
    for name in ("node_count", "priority", "array_task_id"):
        job[name] = _numbered(job, name, UNSET)
    job["nice"] = 0 if job["nice"] is None else job["nice"]


def _past_job_39(job: Record) -> None:
    """Up to v0.0.38 the time limit is plain, and null where the job had none; so is the start of one without."""
    times = dict(_inside(job, "time"))
    job["time"] = times | {"limit": _numbered(times, "limit", UNSET), "start": times.get("start") or 0}


def _node_39(node: Record) -> None:
    """Up to v0.0.38 the base state is a text in lower case, its flags are a separate list."""
    state, flags = node["state"], node["state_flags"]
    if type(state) is not str or type(flags) is not list:
        raise wrong(node, "state", "a text, with a list of flags")
    node["state"] = [state, *flags]


def _job_40(job: Record) -> None:
    """Up to v0.0.39 the state is one word, times are plain, and the exit code is what wait(2) gives."""
    job["job_state"] = _one_state(job, "job_state")
    for name in ("submit_time", "eligible_time", "start_time", "end_time"):
        job[name] = set_number(whole(job, name))
    status = job["exit_code"].get("number") if type(job["exit_code"]) is dict else job["exit_code"]
    if type(status) is not int:
        raise wrong(job, "exit_code", "a wait status")
    job["exit_code"] = exit_record(status >> 8 & 0xFF, status & 0x7F)


def _past_job_40(job: Record) -> None:
    """Up to v0.0.39 the state is one word and a job that exits with any code is shown as SUCCESS with 0.

    Where the state says otherwise, the code is not known.
    """
    state = dict(_inside(job, "state"))
    state["current"] = _one_state(state, "current")
    told = _inside(job, "exit_code")
    signal = _inside(told, "signal") if told.get("signal") else {}
    code, number = told.get("return_code"), signal.get("signal_id", 0)
    job["state"] = state
    unknown = not code and not number and "FAILED" in state["current"]
    job["exit_code"] = exit_record(None if unknown or number else code or 0, number)


def _numbered(record: Record, name: str, absent: Record) -> Record:
    value = record.get(name)
    if value is None:
        return absent
    if type(value) is dict:  # v0.0.39 has both forms
        return value
    if type(value) is not int:
        raise wrong(record, name, "a whole number or null")
    return UNSET if value == _NO_VAL else INFINITE if value == _INFINITE else set_number(value)


def _one_state(record: Record, name: str) -> list[str]:
    value = record.get(name)
    if type(value) is not str:
        raise wrong(record, name, "a state")
    return state_words(value)


def state_words(word: str) -> list[str]:
    """One word for a job's state as the list that newer versions have: a flag's, where one stands in its place.

    COMPLETING hides what the job came to, so it counts as running still. Raises ``BadSpelling``.
    """
    upper = word.upper()
    return list(_FLAG_ALONE[upper]) if upper in _FLAG_ALONE else [parse_state(upper).name]


def exit_record(code: int | None, signal: int) -> Record:
    """An exit code in the newest shape; ``None``: not known."""
    return {
        "return_code": UNSET if code is None else set_number(code),
        "signal": {"id": set_number(signal) if signal else UNSET},
    }


def _inside(record: Record, name: str) -> dict[str, Any]:
    value = record.get(name)
    if type(value) is not dict:
        raise wrong(record, name, "an object")
    return value


_FLAG_ALONE = {
    **{name: ("RUNNING", name) for name in NODES_BOOT},
    "COMPLETING": ("RUNNING", "COMPLETING"),
    "STAGE_OUT": ("RUNNING", "COMPLETING"),
    "REQUEUED": ("PENDING",),
    "REQUEUE_FED": ("PENDING",),
}
"""Flags that up to v0.0.39 stand in place of the state."""

_NO_VAL, _INFINITE = 0xFFFFFFFE, 0xFFFFFFFF

_STEPS: dict[Kind, tuple[tuple[int, Step], ...]] = {
    Kind.JOB: ((39, _job_39), (40, _job_40)),
    Kind.PAST_JOB: ((38, _past_job_38), (39, _past_job_39), (40, _past_job_40)),
    Kind.NODE: ((37, _node_37), (39, _node_39)),
}
"""For each kind the steps in order, each with the version to which it leads."""
