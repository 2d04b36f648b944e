"""A ``JobRequest`` as a job description in the newest shape, and changes to a pending job.

Some variables of a job's environment are set by ``sbatch`` because of its options, as in src/sbatch/opt.c
(``set_envs`` and ``_opt_verify``) and src/common/env.c (``set_env_from_opts``) of Slurm. slurmctld and slurmd set
others, also for jobs of slurmrestd.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from mirage.domain.errors import SubmissionRejected
from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.jobrequest import said_by_options, unsaid_gres
from mirage.slurm.rest.answers import Record, set_number
from mirage.slurm.rest.options import gres, minutes, read_options, read_script, signal
from mirage.slurm.rest.versions import NEWEST
from mirage.slurm.sbatch import process_variables, sbatch_arguments, spell_dependencies, submission_folder
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import BatchScript, JobChange, JobRequest, Seconds

_COUNTS = {
    "cpus-per-task": ("SLURM_CPUS_PER_TASK",),
    "ntasks": ("SLURM_NPROCS", "SLURM_NTASKS"),
    "ntasks-per-core": ("SLURM_NTASKS_PER_CORE",),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks-per-socket": ("SLURM_NTASKS_PER_SOCKET",),
    "threads-per-core": ("SLURM_THREADS_PER_CORE",),
}
_TEXTS = {
    "dependency": "SLURM_JOB_DEPENDENCY",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
}
_MULTIPLY = ("sockets-per-node", "threads-per-core")
"""``sbatch`` multiplies the nodes by these if no number of tasks is given."""

_PLAIN = re.compile(r"[0-9]{1,9}", re.ASCII)

_LAST_GPUS_PER_TASK, _LAST_OPEN_MODE = 39, 41
"""The newest versions of the API whose Slurm (23.02, 24.05) has an ``sbatch`` that sets these."""


def option_variables(request: JobRequest, version: int) -> dict[str, str]:
    """Those of the options of the script and the request, with which ``sbatch`` would have been called.

    A count that is no plain number sets none. Raises ``BadSpelling`` for options that cannot be read.
    """
    given = _given(request)
    found = {name: str(count) for option, count in _counts(given).items() for name in _COUNTS[option]}
    found |= {name: given[option] for option, name in _TEXTS.items() if given.get(option)}
    if version > _LAST_GPUS_PER_TASK:
        found.pop("SLURM_GPUS_PER_TASK", None)
    if "open-mode" in given and version <= _LAST_OPEN_MODE:
        found["SLURM_OPEN_MODE"] = "a" if given["open-mode"].lower().startswith("a") else "t"
    if "container" in given and request.batch and "SLURM_CONTAINER" not in dict(request.batch.environment):
        found["SLURM_CONTAINER"] = given["container"]
    return found


def _given(request: JobRequest) -> dict[str, str]:
    """The last value of each option: those of the script count less."""
    script = read_directives(request.batch.text, SBATCH_LINE, "script").words if request.batch else ()
    own = [Word(text, "options") for text in sbatch_arguments(request)]
    return {option.name: option.value or "" for words in (script, own) for option in SBATCH.read(words)[0]}


def _counts(given: Mapping[str, str]) -> dict[str, int]:
    plain = {option: int(value) for option, value in given.items() if _PLAIN.fullmatch(value)}
    counts = {option: plain[option] for option in _COUNTS if option in plain}
    low, _, high = given.get("nodes", "").partition("-")
    multiply = [plain[option] for option in _MULTIPLY if option in plain]
    if (
        multiply
        and _PLAIN.fullmatch(low)
        and high in ("", low)
        and not {"ntasks", "ntasks-per-node"} & counts.keys()
    ):
        counts["ntasks"] = max(int(low), 1)
        for factor in multiply:
            counts["ntasks"] *= factor
    return counts


LONG_AGO = 1_000_000
"""A begin time that has passed: "immediately", since 0 means "unchanged" to Slurm."""

_SECRET = ("SLURM_JWT", "SLURMRESTD_")
"""Beginnings of the names of variables that no job may have: they would let it act as a daemon does."""

_MEMORY = frozenset(("memory_per_node", "memory_per_cpu"))
"""To Slurm they are one number."""

_LEAST_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
"""Slurm rejects an empty one."""


def describe(request: JobRequest, now: Seconds, host: str = "", version: int = NEWEST) -> Record:
    """All that the request asks for. Its fields count more than the script's lines, its options more than both.

    ``now`` is what relative begin times among the options are relative to, ``host`` is the one that submits,
    ``version`` the API's, which decides what Slurm's ``sbatch`` would put into the environment.
    Raises ``SubmissionRejected`` for a request without a batch script, and naming an option that slurmrestd has
    no field for.
    """
    batch = request.batch
    if batch is None:
        raise SubmissionRejected("JobScriptMissing", f"job {request.name}: there is nothing to run")
    _check_texts(request.name, batch)
    script, asked, options = read_script(batch.text, now), _asked(request), read_options(batch.options, now)
    if "tres_per_node" in asked and "--gpus-per-node" in "".join(batch.options):  # both count, as for sbatch
        options["tres_per_node"] = f"{asked['tres_per_node']},{options['tres_per_node']}"
    return {
        **_last_counts(script, asked, options),
        "comment": request.tag,
        "current_working_directory": batch.directory or "/",
        "environment": _environment(request, batch, host, version),
        "script": batch.text,
        **({"argv": [request.name, *batch.arguments]} if batch.arguments else {}),
    }


def describe_change(change: JobChange) -> Record:
    """Fields to send for a change of a pending job; unchanged ones are left out."""
    fields: Record = {}
    if change.held is not None:
        fields["hold"] = change.held
    if change.nice is not None:
        fields["nice"] = change.nice
    if change.begin is not None:
        fields["begin_time"] = set_number(max(change.begin, LONG_AGO))
    if change.node_list is not None:
        fields["required_nodes"] = change.node_list
    if change.dependencies is not None:
        fields["dependency"] = spell_dependencies(change.dependencies)
    return fields


def _last_counts(*sources: Record) -> Record:
    """All fields of the sources; a later source replaces a field of an earlier one, also under another name."""
    found: Record = {}
    for source in sources:
        if _MEMORY & source.keys():
            found = {name: value for name, value in found.items() if name not in _MEMORY}
        found |= source
    return found


def _asked(request: JobRequest) -> Record:
    """The fields of the request that ask for something, but for those that its options set in another notation."""
    said = said_by_options(request)
    wishes: Record = {
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "reservation": request.reservation,
        "required_nodes": request.node_list,
        "constraints": "&".join(request.features),
        "dependency": spell_dependencies(request.dependencies),
        "hold": request.held,
        "nice": request.nice,
        "shared": ["none"] if request.exclusive else None,
        "begin_time": set_number(request.begin) if request.begin else None,
        "minimum_cpus_per_node": 0 if "cpus_per_node" in said else request.cpus_per_node,
        "memory_per_node": _memory(0 if "memory_mb_per_node" in said else request.memory_mb_per_node),
        "tres_per_node": gres(unsaid_gres(request) if "gres_per_node" in said else request.gres_per_node),
    }
    if request.warn:
        wishes |= signal(request.warn.name, request.warn.lead, batch_only=request.warn.batch_only)
    return {
        "name": request.name,
        **(
            {}
            if "nodes" in said or request.nodes == 1
            else {"minimum_nodes": request.nodes, "maximum_nodes": request.nodes}
        ),
        "time_limit": minutes(request.limit),
        **({} if request.requeue is None else {"requeue": request.requeue}),
        **{name: value for name, value in wishes.items() if value},
    }


def _memory(megabytes: int) -> Record | None:
    return set_number(megabytes) if megabytes else None


def _check_texts(name: str, batch: BatchScript) -> None:
    """Raise ``SubmissionRejected`` for what JSON cannot carry: it would reach the job as something else."""
    text = "".join((batch.text, *batch.options, *batch.arguments, *itertools.chain(*batch.environment)))
    problem = "hold a NUL" if "\0" in text else ""
    try:
        text.encode()
    except UnicodeEncodeError:
        problem = "hold bytes that are not UTF-8, which only sbatch can pass on (cluster.backend = cli)"
    if problem:
        raise SubmissionRejected("InvalidText", f"job {name}: script, options, arguments or environment {problem}")


def _environment(request: JobRequest, batch: BatchScript, host: str, version: int) -> list[str]:
    """``NAME=value`` each, without secrets, never empty; with what ``sbatch`` adds of its process and options."""
    own = {name: value for name, value in batch.environment if not name.startswith(_SECRET)}
    least = {} if own else _LEAST_ENVIRONMENT
    added = process_variables(batch) | {"SLURM_SUBMIT_DIR": submission_folder(request)}
    added |= {"SLURM_SUBMIT_HOST": host} if host else {}
    added |= option_variables(request, version)
    return [f"{name}={value}" for name, value in (own | least | added).items()]
