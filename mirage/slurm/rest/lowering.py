"""Job descriptions lowered from the newest shape to an older version's, step by step.

Each step takes the fields that Mirage writes from one version to the one before; from v0.0.46 to v0.0.40 these
are the same, and from v0.0.38 to v0.0.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling, SubmissionRejected
from mirage.slurm.rest.versions import spell
from mirage.slurm.wrapper import with_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.slurm.rest.fields import Record


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
