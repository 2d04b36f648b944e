"""pyslurm's objects as records in slurmrestd's newest shape, and job descriptions as pyslurm's arguments.

What differs between pyslurm 22.5 and 25.11 in what Mirage reads or writes is here, and nowhere else.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import SubmissionRejected, UnsupportedSlurm
from mirage.slurm.node_text import kind_of
from mirage.slurm.rest.answers import INFINITE, UNSET, Record, set_number
from mirage.slurm.rest.versions import exit_record, state_words

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS_SINCE = (24, 5)
"""Before, ``JobSubmitDescription`` takes a warning signal and forgets it."""


def job_record(job: Any) -> Record:
    """One ``pyslurm.Job``. Raises ``BadSpelling`` for a state that is none."""
    return {
        "job_id": job.id,
        "name": _words(job, "name"),
        "user_name": _words(job, "user_name"),
        "user_id": job.user_id,
        "account": _words(job, "account"),
        "partition": job.partition,
        "qos": job.qos,
        "node_count": set_number(job.num_nodes),
        "time_limit": _minutes(job.time_limit),
        "submit_time": _instant(job.submit_time),
        "eligible_time": _instant(job.eligible_time),
        "start_time": _instant(job.start_time),
        "end_time": _instant(job.end_time),
        "priority": UNSET if job.priority is None else set_number(job.priority),
        "nice": job.nice or 0,
        "comment": _words(job, "comment"),
        "nodes": job.allocated_nodes,
        "required_nodes": job.required_nodes,
        "exit_code": _exit(job),
        "job_state": state_words(job.state),
        "state_reason": _words(job, "state_reason"),
        "array_task_string": job.array_tasks_waiting,
        "tres_req_str": _gres_asked(job),
    }


def _gres_asked(job: Any) -> str:
    """As TRES, where Slurm reports it: pyslurm does not show GPUs that are asked for in all or for each task."""
    nodes = job.num_nodes or 1
    return ",".join(f"gres/{name}={int(count) * nodes}" for name, count in (job.gres_per_node or {}).items())


def past_job_record(job: Any) -> Record:
    """One ``pyslurm.db.Job``. Raises ``BadSpelling`` as above."""
    return {
        "job_id": job.id,
        "name": _words(job, "name"),
        "user": _words(job, "user_name"),
        "partition": job.partition,
        "nodes": job.nodelist,
        "allocation_nodes": job.num_nodes or 0,
        "comment": {"job": _words(job, "comment")},
        "exit_code": _exit(job),
        "state": {"current": state_words(job.state)},
        "time": {
            "submission": job.submit_time or 0,
            "start": job.start_time or 0,
            "end": job.end_time or 0,
            "limit": _minutes(job.time_limit),
        },
    }


def _words(thing: Any, name: str) -> str | None:
    """A text; bytes of users that pyslurm cannot decode cost this text alone."""
    try:
        text: str | None = getattr(thing, name)
    except UnicodeDecodeError:
        return "\N{REPLACEMENT CHARACTER}"
    return text


def node_record(node: Any) -> Record:
    """One ``pyslurm.Node``; its state is a text such as IDLE, MIXED+DRAIN or DRAINED, as sinfo's in capitals."""
    base, *flags = node.state.lower().split("+")
    kind = kind_of(base)
    drains = kind == "idle" and bool(set(flags) & _DRAINING)
    return {"name": node.name, "partitions": list(node.partitions), "state": _STATE["down" if drains else kind]}


def arguments(description: Record, version: tuple[int, int]) -> dict[str, Any]:
    """Arguments of ``JobSubmitDescription``, without the script.

    Raises ``SubmissionRejected`` naming a field for which this version has no argument.
    """
    if "kill_warning_signal" in description and version < SIGNALS_SINCE:
        raise _no_argument("a warning signal (--signal)", version)
    # Else pyslurm asks for one task in all; without a number of nodes Slurm does the same.
    found: dict[str, Any] = {"ntasks": description.get("minimum_nodes", 1)}
    for name, value in description.items():
        if name in _SAME:
            found[name] = value
        elif name in _OTHERWISE:
            found |= _OTHERWISE[name](value)
        else:
            raise _no_argument(name, version)
    return found | _nodes(description) | _cpus(description, version) | _warning(description)


def changes(description: Record) -> dict[str, Any]:
    """Arguments of ``JobSubmitDescription`` for a change. Raises ``UnsupportedSlurm`` where it lacks one."""
    found: dict[str, Any] = {}
    if "hold" in description:
        found["priority"] = 0 if description["hold"] else _RELEASED
    if "nice" in description:
        found["nice"] = str(description["nice"])  # the number 0 is taken for "as it is"
    if "begin_time" in description:
        found["begin_time"] = description["begin_time"]["number"]
    if "required_nodes" in description:
        if not description["required_nodes"]:
            raise UnsupportedSlurm("pyslurm cannot clear a job's required nodes; the cli backend can")
        found["required_nodes"] = description["required_nodes"]
    if "dependency" in description:
        found["dependencies"] = description["dependency"]
    return found


_RELEASED = 0xFFFFFFFF
_DRAINING = {"drain", "fail", "not_responding", "maintenance", "maint", "invalid_reg", "inval"}
_STATE = {"idle": ["IDLE"], "allocated": ["ALLOCATED"], "down": ["DOWN"]}


def _minutes(limit: int | str | None) -> Record:
    return UNSET if limit is None else INFINITE if isinstance(limit, str) else set_number(limit)


def _instant(seconds: int | None) -> Record:
    return set_number(seconds) if seconds else UNSET


def _exit(job: Any) -> Record:
    return exit_record(job.exit_code or 0, job.exit_code_signal or 0)


def _no_argument(what: str, version: tuple[int, int]) -> SubmissionRejected:
    return SubmissionRejected(
        "OptionUnknownToPyslurm", f"pyslurm {version[0]}.{version[1]} has nothing for {what}"
    )


def _nodes(description: Record) -> dict[str, Any]:
    if "minimum_nodes" not in description:
        return {}
    return {"nodes": f"{description['minimum_nodes']}-{description['maximum_nodes']}"}


def _cpus(description: Record, version: tuple[int, int]) -> dict[str, Any]:
    """CPUs per node as one task a node: pyslurm's ``min_cpus_per_node`` sets a minimum for the whole job."""
    cpus = description.get("minimum_cpus_per_node")
    if not cpus:
        return {}
    if description.keys() & {"tasks", "tasks_per_node", "cpus_per_task"}:
        raise _no_argument("CPUs per node next to tasks (--mincpus)", version)
    return {"ntasks_per_node": 1, "cpus_per_task": cpus}


def _warning(description: Record) -> dict[str, Any]:
    if "kill_warning_signal" not in description:
        return {}
    number = int(getattr(signal, f"SIG{description['kill_warning_signal']}"))
    batch = "B:" if "BATCH_JOB" in description.get("kill_warning_flags", ()) else ""
    return {"signal": f"{batch}{number}@{description['kill_warning_delay']['number']}"}


def _renamed(name: str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {name: value}


def _memory(name: str) -> Callable[[Record], dict[str, Any]]:
    return lambda value: {name: f"{value['number']}M"}


def _time(name: str) -> Callable[[Record], dict[str, Any]]:
    return lambda value: {name: "unlimited" if value["infinite"] else value["number"]}


def _gpus(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {name: value.replace("gres/gpu:", "")}


def _gres(value: str) -> dict[str, Any]:
    pairs = (item.removeprefix("gres/").rpartition(":") for item in value.split(","))
    return {"gres_per_node": {name: int(count) for name, _, count in pairs}}


def _said_elsewhere(_: Any) -> dict[str, Any]:
    return {}


_SHARING = {"none": "no", "oversubscribe": "yes", "user": "user", "mcs": "mcs"}

_SAME = frozenset(
    (
        *("account", "comment", "constraints", "container", "cpus_per_task", "excluded_nodes", "licenses"),
        *("mail_user", "mcs_label", "name", "overcommit", "qos", "required_nodes", "sockets_per_node"),
        *("standard_error", "standard_output", "threads_per_core", "wait_all_nodes", "wckey"),
    )
)

_OTHERWISE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "argv": lambda value: {"script_args": value[1:]},  # pyslurm puts the script first
    "batch_features": _renamed("batch_constraints"),
    "begin_time": lambda value: {"begin_time": value["number"]},
    "contiguous": _renamed("requires_contiguous_nodes"),
    "current_working_directory": _renamed("working_directory"),
    "dependency": _renamed("dependencies"),
    "environment": lambda value: {"environment": dict(item.split("=", 1) for item in value)},
    "hold": lambda _: {"priority": 0},
    "kill_warning_delay": _said_elsewhere,
    "kill_warning_flags": _said_elsewhere,
    "kill_warning_signal": _said_elsewhere,
    "mail_type": lambda value: {"mail_types": [item.lower() for item in value]},
    "maximum_nodes": _said_elsewhere,
    "memory_per_cpu": _memory("memory_per_cpu"),
    "memory_per_node": _memory("memory_per_node"),
    "minimum_cpus_per_node": _said_elsewhere,
    "minimum_nodes": _said_elsewhere,
    "nice": lambda value: {"nice": str(value)},
    "open_mode": lambda value: {"log_files_open_mode": value[0].lower()},
    "partition": _renamed("partitions"),
    "reboot": _renamed("requires_node_reboot"),
    "requeue": _renamed("is_requeueable"),
    "reservation": _renamed("reservations"),
    "script": _said_elsewhere,
    "shared": lambda value: {"resource_sharing": _SHARING[value[0]]},
    "standard_input": _renamed("standard_in"),
    "tasks": _renamed("ntasks"),
    "tasks_per_core": _renamed("ntasks_per_core"),
    "tasks_per_node": _renamed("ntasks_per_node"),
    "tasks_per_socket": _renamed("ntasks_per_socket"),
    "time_limit": _time("time_limit"),
    "time_minimum": _time("time_limit_min"),
    "tres_per_job": _gpus("gpus"),
    "tres_per_node": _gres,
    "tres_per_task": _gpus("gpus_per_task"),
}
