"""``sbatch`` options that a request has no field for, as fields of a job description.

slurmrestd reads neither ``#SBATCH`` lines nor ``sbatch``'s environment variables, so the script's own lines are
read here; whatever has no field is rejected by name, never dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling, SubmissionRejected
from mirage.domain.job import UNLIMITED
from mirage.slurm import duration, tres
from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.option_values import parse_begin
from mirage.slurm.rest.answers import INFINITE, Record, set_number
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.job import Seconds
    from mirage.slurm.sbatchoptions import Given

Reader = Callable[[str, "Seconds"], Record]


def read_script(script: str, now: Seconds) -> Record:
    """The fields that the script's ``#SBATCH`` lines ask for.

    Raises ``SubmissionRejected`` naming an option that slurmrestd has no field for, or that cannot be read.
    """
    try:
        directives = read_directives(script, SBATCH_LINE, "script")
    except BadSpelling as error:
        raise SubmissionRejected("InvalidOption", str(error)) from None
    if directives.components:
        raise _no_field("heterogeneous jobs (#SBATCH hetjob)")
    return _read(directives.words, now)


def read_options(options: Sequence[str], now: Seconds) -> Record:
    """The fields that these options of ``sbatch`` ask for. Raises ``SubmissionRejected`` as ``read_script``."""
    return _read([Word(option, "options") for option in options], now)


def _read(words: Sequence[Word], now: Seconds) -> Record:
    try:
        given, rest = SBATCH.read(words)
    except BadSpelling as error:
        raise SubmissionRejected("InvalidOption", str(error)) from None
    if rest:
        raise SubmissionRejected("InvalidOption", f"{rest[0].where}: {rest[0].text} is no option")
    fields: Record = {}
    for option in given:
        found = _fields(option, now)
        if (name := "tres_per_node") in fields.keys() & found.keys():  # --gres and --gpus-per-node both count
            found[name] = f"{fields[name]},{found[name]}"
        fields |= found
    return fields


def _fields(option: Given, now: Seconds) -> Record:
    if option.name in _ABOUT_SBATCH:
        return {}
    reader = _READERS.get(option.name)
    if reader is None or (option.name == "export" and (option.value or "").upper() != "ALL"):
        raise _no_field(_as_typed(option))
    try:
        return reader(option.value or "", now)
    except (BadSpelling, ValueError) as error:
        raise SubmissionRejected("InvalidOption", f"{option.spelling}: {error}") from None


def _as_typed(option: Given) -> str:
    """Without the variables that ``mirage submit`` adds to ``--export``."""
    if option.name != "export":
        return option.spelling
    names = (option.value or "").split(",")
    return f"--export={','.join(name for name in names if not name.startswith('MIRAGE_'))}"


def _no_field(spelling: str) -> SubmissionRejected:
    return SubmissionRejected(
        "OptionUnknownToREST",
        f"slurmrestd has no field for {spelling}; omit it, or ask the site for a daemon that runs sbatch",
    )


def minutes(seconds: Seconds) -> Record:
    """A time limit as slurmrestd counts it: whole minutes, rounded up."""
    return INFINITE if seconds >= UNLIMITED else set_number(-(-seconds // 60))


def gres(amounts: tres.Amounts) -> str:
    """Generic resources as TRES, such as ``gres/gpu:a100:4``."""
    return ",".join(f"gres/{name}:{count}" for name, count in amounts)


def signal(name: str, lead: Seconds, *, batch_only: bool) -> Record:
    """Fields for a warning signal ``lead`` seconds before the time limit."""
    flags = {"kill_warning_flags": ["BATCH_JOB"]} if batch_only else {}
    return {"kill_warning_signal": name, "kill_warning_delay": set_number(lead), **flags}


def _as_text(field: str) -> Reader:
    return lambda value, _: {field: value}


def _as_count(field: str) -> Reader:
    return lambda value, _: {field: int(value)}


def _always(**fields: Any) -> Reader:
    return lambda _value, _now: fields


def _gpus(field: str) -> Reader:
    return lambda value, _: {field: ",".join(f"gres/gpu:{item}" for item in value.split(","))}


def _exclusive(value: str, _: Seconds) -> Record:
    return {"shared": [value.lower() if value.lower() in ("user", "mcs") else "none"]}


def _signal(value: str, _: Seconds) -> Record:
    flags, colon, rest = value.rpartition(":")
    name, _at, lead = rest.partition("@")
    if flags.upper() not in ("", "B") or (colon and not flags):
        raise BadSpelling(value, "only B: is known before the signal's name")
    return signal(name.upper().removeprefix("SIG"), int(lead or 60), batch_only=bool(flags))


def _mail_type(value: str, _: Seconds) -> Record:
    names = value.upper().split(",")
    every = ["BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"]
    spelled = [name.replace("TIME_LIMIT_", "TIME=") + "%" * name.startswith("TIME_LIMIT_") for name in names]
    spelled = ["TIME=100%" if name == "TIME_LIMIT" else name for name in spelled]
    return {"mail_type": every if "ALL" in names else [] if "NONE" in names else spelled}


_ABOUT_SBATCH = ("parsable", "quiet", "verbose", "wrap", "comment", "chdir")
"""About how sbatch itself talks; the comment is the tag's, the directory is the request's."""

_TEXTS = {
    "account": "account",
    "batch": "batch_features",
    "bb": "burst_buffer",
    "constraint": "constraints",
    "container": "container",
    "error": "standard_error",
    "extra": "extra",
    "input": "standard_input",
    "job-name": "name",
    "licenses": "licenses",
    "mail-user": "mail_user",
    "mcs-label": "mcs_label",
    "output": "standard_output",
    "partition": "partition",
    "prefer": "prefer",
    "qos": "qos",
    "reservation": "reservation",
    "wckey": "wckey",
}
_COUNTS = {
    "cpus-per-task": "cpus_per_task",
    "mincpus": "minimum_cpus_per_node",
    "ntasks": "tasks",
    "ntasks-per-core": "tasks_per_core",
    "ntasks-per-node": "tasks_per_node",
    "ntasks-per-socket": "tasks_per_socket",
    "sockets-per-node": "sockets_per_node",
    "threads-per-core": "threads_per_core",
}
_READERS: dict[str, Reader] = {
    **{name: _as_text(field) for name, field in _TEXTS.items()},
    **{name: _as_count(field) for name, field in _COUNTS.items()},
    "begin": lambda value, now: {"begin_time": set_number(parse_begin(value, now))},
    "contiguous": _always(contiguous=True),
    "exclude": lambda value, _: {"excluded_nodes": value},
    "exclusive": _exclusive,
    "export": _always(),
    "gpus": _gpus("tres_per_job"),
    "gpus-per-node": _gpus("tres_per_node"),
    "gpus-per-task": _gpus("tres_per_task"),
    "gres": lambda value, _: {"tres_per_node": gres(tres.parse_gres(value))},
    "hold": _always(hold=True),
    "mail-type": _mail_type,
    "mem": lambda value, _: {"memory_per_node": set_number(tres.memory_mb(value))},
    "mem-per-cpu": lambda value, _: {"memory_per_cpu": set_number(tres.memory_mb(value))},
    "nice": lambda value, _: {"nice": int(value or 100)},
    "no-requeue": _always(requeue=False),
    "nodelist": lambda value, _: {"required_nodes": value},
    "nodes": lambda value, _: _nodes(value),
    "open-mode": lambda value, _: {"open_mode": ["APPEND" if value.lower().startswith("a") else "TRUNCATE"]},
    "overcommit": _always(overcommit=True),
    "oversubscribe": _always(shared=["oversubscribe"]),
    "propagate": _always(),  # set by the variables of the resource limits
    "reboot": _always(reboot=True),
    "requeue": _always(requeue=True),
    "signal": _signal,
    "time": lambda value, _: {"time_limit": minutes(duration.parse(value) or UNLIMITED)},
    "time-min": lambda value, _: {"time_minimum": minutes(duration.parse(value))},
    "wait-all-nodes": lambda value, _: {"wait_all_nodes": value == "1"},
}


def _nodes(value: str) -> Record:
    low, _, high = value.partition("-")
    return {"minimum_nodes": int(low), "maximum_nodes": int(high or low)}
