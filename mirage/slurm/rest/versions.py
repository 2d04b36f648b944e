"""Versions of slurmrestd's API: records lifted to the newest shape, job descriptions lowered from it.

Each step takes the fields that Mirage reads or writes from one version to the next. Lifting: versions at which
these do not change have no step (41 to 46 add fields, and rename none of these). Steps change their record in
place: ``lift`` gives them a copy, with no more than the fields that they need. Lowering: from v0.0.46 to v0.0.40
the fields are the same, and from v0.0.38 to v0.0.36.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling, SubmissionRejected, UnsupportedSlurm
from mirage.slurm import hostlist
from mirage.slurm.job_state import NODES_BOOT, parse_state
from mirage.slurm.rest.answers import INFINITE, UNSET, Record, set_number, text, whole, wrong
from mirage.slurm.wrapper import with_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


OLDEST, NEWEST = 36, 46

KNOWN = tuple(range(NEWEST, OLDEST - 1, -1))
"""Newest first, as they are tried. Slurm 22.05 offers 36-38, 23.02 up to 39, 24.11 40-42, 26.05 42-45."""

_PATH = re.compile(r"/slurm/(v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})/")


def spell(version: int) -> str:
    """Format an API version as in a path: ``v0.0.38`` for 38."""
    return f"v0.0.{version}"


def offered(paths: Iterable[str]) -> tuple[str, ...]:
    """The versions in the paths of an OpenAPI document such as ``/slurm/v0.0.38/jobs``, each once, sorted."""
    found = {match[1] for path in paths if (match := _PATH.match(path))}
    return tuple(sorted(found, key=lambda text: [int(part) for part in text[1:].split(".")]))


def unsupported(where: str, found: tuple[str, ...]) -> UnsupportedSlurm:
    """The error to raise where none of ``KNOWN`` is offered."""
    known = f"{spell(OLDEST)} to {spell(NEWEST)}"
    return UnsupportedSlurm(
        f"{where} offers {', '.join(found) or 'no version of the REST API'}; Mirage knows {known}"
    )


def lower_submission(version: int, description: Record) -> Record:
    """The body of ``POST .../job/submit``. Raises ``SubmissionRejected`` for what the version has no field for."""
    if version >= 40:
        return {"job": description}
    description = _to_39(description)
    if version == 39:
        return {"job": description}
    lowered = _to_38(description, version)
    return {"script": lowered.pop("script"), "job": lowered}


def lower_change(version: int, change: Record) -> Record:
    """The body of ``POST .../job/{id}``. Raises ``SubmissionRejected`` as above."""
    if version >= 40:
        return change
    lowered = _to_39(change)
    # v0.0.39 wants an environment of every description, a change's too
    return lowered | {"environment": []} if version == 39 else _to_38(lowered, version)


def _to_39(description: Record) -> Record:
    """v0.0.39 has plain times, and writes generic resources as ``gres:gpu:4`` does."""
    lowered = dict(description)
    if "begin_time" in lowered:
        lowered["begin_time"] = lowered["begin_time"]["number"]
    for name in ("tres_per_node", "tres_per_job", "tres_per_task"):
        if name in lowered:
            lowered[name] = lowered[name].replace("gres/", "gres:")
    return lowered


def _to_38(description: Record, version: int) -> Record:
    """Up to v0.0.38 fields are ``sbatch``'s options: texts, mostly, under other names."""
    if "BATCH_JOB" in description.get("kill_warning_flags", ()):
        raise _no_field("a warning to the batch shell alone (--signal=B:)", version)
    description = _without_arguments(description)
    lowered: Record = {}
    for name, value in description.items():
        if name in _SAME:
            lowered[name] = value
        elif name in _OTHERWISE:
            lowered |= _OTHERWISE[name](value)
        else:
            raise _no_field(name, version)
    if description.get("minimum_nodes") != description.get("maximum_nodes"):
        lowered["nodes"] = f"{description['minimum_nodes']}-{description['maximum_nodes']}"
    if "kill_warning_delay" in description:
        lowered["signal"] += f"@{description['kill_warning_delay']['number']}"
    return lowered


def _without_arguments(description: Record) -> Record:
    """With a script that has its arguments within: there is a field, but slurmrestd 22.05.8 crashes on it."""
    if "argv" not in description:
        return description
    others = {name: value for name, value in description.items() if name != "argv"}
    try:
        return others | {"script": with_arguments(description["script"], description["argv"][1:])}
    except BadSpelling as error:
        raise SubmissionRejected("InvalidScript", str(error)) from None


def _no_field(what: str, version: int) -> SubmissionRejected:
    advice = "omit it, or ask the site for a newer version"
    return SubmissionRejected("OptionUnknownToREST", f"{spell(version)} has no field for {what}; {advice}")


def _renamed(name: str) -> Callable[[Any], Record]:
    return lambda value: {name: value}


def _without_type(name: str) -> Callable[[str], Record]:
    return lambda value: {name: value.replace("gres:gpu:", "")}


def _time(name: str) -> Callable[[Record], Record]:
    return lambda value: {name: "UNLIMITED" if value["infinite"] else value["number"]}


def _memory(name: str) -> Callable[[Record], Record]:
    return lambda value: {name: f"{value['number']}M"}


_SAME = frozenset(
    (
        *(
            "account",
            "batch_features",
            "burst_buffer",
            "comment",
            "constraints",
            "container",
            "cpus_per_task",
        ),
        *("current_working_directory", "dependency", "hold", "licenses", "mail_user", "mcs_label"),
        *("minimum_cpus_per_node", "name", "nice", "partition", "prefer", "qos", "reservation", "script"),
        *("sockets_per_node", "standard_error", "standard_input", "standard_output", "tasks", "tasks_per_core"),
        *("tasks_per_node", "tasks_per_socket", "threads_per_core", "wckey"),
    )
)

_OTHERWISE: dict[str, Callable[[Any], Record]] = {
    "begin_time": lambda value: {"begin_time": f"uts{value}"},
    "environment": lambda value: {"environment": dict(item.split("=", 1) for item in value)},
    "excluded_nodes": _renamed("exclude_nodes"),
    "kill_warning_delay": lambda _: {},  # set with the signal
    "kill_warning_signal": _renamed("signal"),
    "mail_type": lambda value: {"mail_type": ",".join(value) or "NONE"},
    "maximum_nodes": lambda _: {},  # set with the minimum
    "memory_per_cpu": _memory("memory_per_cpu"),
    "memory_per_node": _memory("memory_per_node"),
    "minimum_nodes": _renamed("nodes"),
    "open_mode": lambda value: {"open_mode": value[0].lower()},
    "requeue": lambda value: {"requeue" if value else "no_requeue": True},
    "required_nodes": _renamed("nodelist"),
    "shared": lambda value: {"exclusive": "exclusive" if value == ["none"] else value[0]},
    "time_limit": _time("time_limit"),
    "time_minimum": _time("time_minimum"),
    "tres_per_job": _without_type("gpus"),
    "tres_per_node": lambda value: {"gres": value.replace("gres:", "")},
    "tres_per_task": _without_type("gpus_per_task"),
    "wait_all_nodes": lambda value: {"wait_all_nodes": str(int(value))},
}
