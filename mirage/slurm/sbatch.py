"""A job request as arguments, environment and input of ``sbatch``, and the reply of ``sbatch``.

A job inherits the environment, umask, resource limits and nice value of the submitting shell. ``sbatch`` reads the
last three of its process and passes them on as ``SLURM_UMASK``, ``SLURM_RLIMIT_NOFILE`` and so on, which
slurmstepd applies (as far as ``PropagateResourceLimits`` says) and removes from the job's environment. Another
process submits the links, days later: ``mirage submit`` reads them, and they are sent as these variables.
"""

from __future__ import annotations

import os
import re
import resource
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, NO_RESOURCE_LIMIT, DependencyKind, JobId, job_id_of
from mirage.slurm.duration import spell
from mirage.slurm.jobrequest import said_by_options, unsaid_gres

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.domain.job import BatchScript, Dependency, JobRequest, Seconds

RESOURCES = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
"""The limits that Slurm passes on (src/common/slurm_rlimits_info.c)."""

_UNLIMITED = (1 << 64) - 1


def read_umask() -> int:
    """The umask of this process. Not for several threads: there is no other way to read it than to set it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def read_resource_limits() -> tuple[tuple[str, int], ...]:
    """The soft limits of this process, as ``BatchScript.resource_limits``."""
    return tuple((name, resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]) for name in RESOURCES)


def process_variables(batch: BatchScript) -> dict[str, str]:
    """The variables by which these reach a job; a ``SLURM_UMASK`` of the user's own counts.

    ``sbatch`` overwrites the nice value with that of its process.
    """
    known = batch.umask is not None and "SLURM_UMASK" not in dict(batch.environment)
    umask = {"SLURM_UMASK": f"0{batch.umask:03o}"} if known else {}
    nice = {} if batch.process_nice is None else {"SLURM_PRIO_PROCESS": str(batch.process_nice)}
    return umask | nice | limit_variables(batch)


def limit_variables(batch: BatchScript) -> dict[str, str]:
    """The variables of the resource limits, as ``sbatch`` sets them.

    Without ``--propagate`` it sends all, and slurm.conf says which of them count. With it, it sends those that the
    option names, marked as asked for. ``--get-user-env`` has slurmd take the limits of a login instead.
    Empty: ``sbatch`` is to do what it would do without Mirage, also where it rejects the option.
    """
    if _given("--get-user-env", batch.options) is not None:
        return {}
    asked = _given("--propagate", batch.options)
    names, mark = (RESOURCES, "") if asked is None else (_named(asked), "U")
    return {
        f"SLURM_RLIMIT_{name}": mark + _spelled(value) for name, value in batch.resource_limits if name in names
    }


def _given(option: str, options: Iterable[str]) -> str | None:
    """The value of the last such option, empty where it has none; ``None``: it is not there."""
    values = [word.partition("=")[2] for word in options if word.partition("=")[0] == option]
    return values[-1] if values else None


def _named(asked: str) -> tuple[str, ...]:
    """The limits that ``--propagate=ALL`` or a list names; none where ``sbatch`` does not know one of them."""
    if asked in ("", "ALL"):
        return RESOURCES
    names = tuple(name.removeprefix("RLIMIT_") for name in asked.replace(",", " ").split())
    return names if set(names) <= set(RESOURCES) else ()


def _spelled(value: int) -> str:
    return str(_UNLIMITED if value == NO_RESOURCE_LIMIT else value)


_SLURM_SECRETS = ("SLURM_JWT", "SLURMRESTD_")
"""Beginnings of the names of variables that would let a job act as its owner elsewhere."""

_OF_A_JOB = ("SLURM_", "SLURMD_", "PMI_", "PMIX_")
"""Beginnings of the names of variables that belong to one job, not to what is submitted from within it."""

_OF_A_LINK = "MIRAGE_"

_OF_THE_SITE = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")


def capture(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables to pass on, by name.

    Left out are tokens, and what says "you are within job 123" where the submission is made inside a job.
    """
    dropped: tuple[str, ...] = (*_SLURM_SECRETS, _OF_A_LINK)
    if "SLURM_JOB_ID" in environment:
        dropped += _OF_A_JOB
    return tuple(
        sorted(
            (name, value)
            for name, value in environment.items()
            if name in _OF_THE_SITE or not name.startswith(dropped)
        )
    )


_NOTHING = "#!/bin/sh\n"
_PARSABLE = re.compile(r"([1-9][0-9]{0,17})(?:;\S+)?\n")
_PLANNED = re.compile(r"\bto start at ([0-9]{1,18})(?: a)? using\b")  # Slurm 26.05 writes "at 1795725253 a using"
_DEPENDENCY = {
    DependencyKind.AFTER: "after",
    DependencyKind.AFTERANY: "afterany",
    DependencyKind.AFTEROK: "afterok",
    DependencyKind.AFTERNOTOK: "afternotok",
}
# An sbatch option can be set by an SBATCH_ variable, and a user's are honoured as sbatch itself would. Not these:
# with them a link is not one job of this cluster whose id sbatch prints immediately.
_NOT_FOR_LINKS = ("SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SLURM_CLUSTERS", "SBATCH_WAIT", "SBATCH_WAIT4SWITCH")
_SECRET = re.compile(r"SLURM_JWT|MIRAGE_.*(?:__|TOKEN|SECRET|PASSWORD|CREDENTIAL)", re.DOTALL)
_OWN = ("SLURM_CONF", "SLURM_CONF_SERVER")


def sbatch_arguments(request: JobRequest) -> list[str]:
    """The options of ``sbatch``, without the script and its arguments.

    The user's own options come before those that Mirage cannot do without, since the last one counts.
    """
    batch = request.batch
    return [
        *_size(request),
        *_place(request),
        *_when(request),
        *(batch.options if batch else ()),
        *(["--propagate=NONE"] if batch and limit_variables(batch) else []),
        "--parsable",
        f"--job-name={request.name}",
        *([f"--chdir={batch.directory}"] if batch and batch.directory else []),
        *([f"--comment={request.tag}"] if request.tag else []),
    ]


def _size(request: JobRequest) -> list[str]:
    """Sizes; not those that the user's own options say in other words, such as ``--ntasks``."""
    said = said_by_options(request)
    amounts = unsaid_gres(request) if "gres_per_node" in said else request.gres_per_node
    gres = ",".join(f"{name}:{count}" for name, count in amounts)
    sizes = {
        # One node is what a job gets without the option; given, it changes how Slurm counts tasks and CPUs.
        "nodes": f"--nodes={request.nodes}" if request.nodes != 1 else "",
        "cpus_per_node": f"--mincpus={request.cpus_per_node}" if request.cpus_per_node else "",
        "memory_mb_per_node": f"--mem={request.memory_mb_per_node}M" if request.memory_mb_per_node else "",
    }
    return [
        f"--time={spell(-(-request.limit // 60) * 60)}",
        *(option for field, option in sizes.items() if option and field not in said),
        *([f"--gres={gres}"] if gres else []),
        *(["--exclusive"] if request.exclusive else []),
    ]


def _place(request: JobRequest) -> list[str]:
    features = "&".join(request.features)
    named = {
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "reservation": request.reservation,
        "constraint": features,
        "nodelist": request.node_list,
    }
    return [f"--{option}={value}" for option, value in named.items() if value]


def _when(request: JobRequest) -> list[str]:
    conditions = spell_dependencies(request.dependencies)
    return [
        *([f"--begin={format_sbatch_time(request.begin)}"] if request.begin else []),
        *(["--hold"] if request.held else []),
        *([f"--nice={request.nice}"] if request.nice else []),
        *([f"--dependency={conditions}"] if conditions else []),
        *_requeue(request.requeue),
        *([f"--signal={request.warn.spelling}"] if request.warn else []),
    ]


def _requeue(wanted: bool | None) -> list[str]:
    return [] if wanted is None else ["--requeue" if wanted else "--no-requeue"]


def spell_dependencies(dependencies: Iterable[Dependency]) -> str:
    """As ``--dependency`` and ``scontrol update`` take them."""
    return ",".join(_condition(dependency) for dependency in dependencies)


def _condition(dependency: Dependency) -> str:
    if dependency.kind is DependencyKind.SINGLETON:
        return "singleton"
    delay = f"+{-(-dependency.delay // 60)}" if dependency.delay else ""
    return f"{_DEPENDENCY[dependency.kind]}:{dependency.job_id}{delay}"


def format_sbatch_time(instant: Seconds) -> str:
    """A time as Slurm's options take it whatever the time zone: ``uts`` and epoch seconds."""
    return f"uts{instant}"


def script_of(request: JobRequest) -> bytes:
    """The batch script; a request without one (an estimate) has a script that does nothing."""
    text = request.batch.text if request.batch else _NOTHING
    return text.encode("utf-8", "surrogateescape")


def script_arguments(request: JobRequest) -> tuple[str, ...]:
    """Arguments of the script, as ``$1``, ``$2`` and so on."""
    return request.batch.arguments if request.batch else ()


def submission_folder(request: JobRequest) -> str:
    """Where ``sbatch`` is to run, which jobs read as ``SLURM_SUBMIT_DIR``: where its user was."""
    if request.batch is None:
        return "/"
    return dict(request.batch.environment).get("PWD", "") or request.batch.directory or "/"


def sbatch_environment(request: JobRequest, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of ``sbatch``, and so of the job: what the user had, but nothing secret.

    ``own``: the environment in which Slurm's commands find this cluster; its ``SLURM_CONF`` counts, not the
    user's, and its ``PATH`` where the user has none.
    """
    captured = dict(request.batch.environment) if request.batch else {}
    kept = {
        name: value
        for name, value in captured.items()
        if name not in _NOT_FOR_LINKS and name not in _OWN and not _SECRET.match(name)
    }
    kept.setdefault("PATH", own.get("PATH", "/usr/bin:/bin"))
    process = process_variables(request.batch) if request.batch else {}
    return kept | process | {name: own[name] for name in _OWN if name in own}


def read_job_id(text: str) -> JobId:
    """The answer of ``sbatch --parsable``: ``123`` or ``123;cluster``. Raises ``BadSpelling``.

    Without the end of the line it may be the beginning of a longer number.
    """
    match = _PARSABLE.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "expected a job id, as sbatch --parsable prints it")
    return job_id_of(int(match[1]))


def read_planned_start(text: str) -> Seconds:
    """The start that ``sbatch --test-only`` names (``SLURM_TIME_FORMAT=%s``); ``ABSENT`` where it names none."""
    match = _PLANNED.search(text)
    return int(match[1]) if match else ABSENT
