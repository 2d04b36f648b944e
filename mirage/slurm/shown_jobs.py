"""Jobs as ``scontrol show job`` prints them, and the options of ``sbatch`` that make further jobs like them.

A job may have more than its ``#SBATCH`` lines say: options of the command line and of the environment, defaults of
the site, changes by ``scontrol update``. Slurm shows the result, not the words in which they were given.
Accounting keeps the command line of ``sbatch``, its words joined by blanks, without quotes. Where words cannot be
separated, nothing is read from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.slurm import tres
from mirage.slurm.job_state import parse_state
from mirage.slurm.sbatchoptions import SBATCH, Given, Word

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirage.domain.job import JobId, JobState

_WRAPPED = "# This script was created by sbatch --wrap."
_FREE = {"comment": "Comment", "job-name": "JobName", "chdir": "WorkDir"}
"""Options whose values may have blanks, and the fields in which ``scontrol`` shows them."""
_OF_ONE_JOB = frozenset({"begin", "hold", "dependency", "kill-on-invalid-dep", "deadline", "comment", "wrap"})
_OF_ONE_JOB |= {"wait", "parsable", "quiet", "verbose", "test-only"}
"""Options that concern the submission of this job alone."""


def options_of_line(line: str, job: ShownJob, script: str) -> tuple[Given, ...] | None:
    """The options in ``line``, such as ``sbatch -N2 train.sh``, without those that concern this job alone.

    ``None`` where words cannot be separated: what follows the options is not the job's script.
    """
    program, *texts = line.split() or [""]
    if PurePath(program).name != "sbatch":
        return None
    name = PurePath(job.value("Command").partition(" ")[0]).name
    command = script.partition(_WRAPPED)[2].split()
    if command:
        texts = _without_wrapped(texts, command)
    for option, field in _FREE.items():
        texts = _joined(texts, option, job.value(field).split())
    try:
        given, rest = SBATCH.read([Word(text, f"job {job.job_id}: {line}") for text in texts])
    except BadSpelling:
        return None
    if (PurePath(rest[0].text).name if rest else "") != ("" if command else name):
        return None
    return tuple(option for option in given if option.name not in _OF_ONE_JOB)


def _joined(texts: list[str], option: str, value: list[str]) -> list[str]:
    """With the words of an option's value, which Slurm shows, as one word again."""
    if len(value) < 2:
        return texts
    for at in range(len(texts)):
        for first in (f"--{option}={value[0]}", value[0]):
            if [texts[at], *texts[at + 1 : at + len(value)]] == [first, *value[1:]]:
                return [*texts[:at], " ".join([first, *value[1:]]), *texts[at + len(value) :]]
    return texts


def _without_wrapped(texts: list[str], command: list[str]) -> list[str]:
    """Without ``--wrap``, whose command is all of the script; further options may follow it."""
    for begin in (["--wrap", *command], [f"--wrap={command[0]}", *command[1:]]):
        for at in range(len(texts)):
            if texts[at] == begin[0] and texts[at : at + len(begin)] == begin:
                return texts[:at] + texts[at + len(begin) :]
    return texts


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


def without_nodes(job: ShownJob) -> ShownJob:
    """The job as if it had requested no nodes by name."""
    return replace(job, fields={name: value for name, value in job.fields.items() if name != "ReqNodeList"})


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


_ALWAYS = {
    "partition": "Partition",
    "account": "Account",
    "qos": "QOS",
    "job-name": "JobName",
    "chdir": "WorkDir",
    "reservation": "Reservation",
    "licenses": "Licenses",
    "constraint": "Features",
    "exclude": "ExcNodeList",
    "nodelist": "ReqNodeList",
    "time-min": "TimeMin",
    "switches": "Switches",
}
"""Options whose value Slurm shows as it was given, or in words that mean the same."""
_FAMILIES = (
    frozenset({"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}),
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"exclusive", "oversubscribe"}),
    frozenset({"requeue", "no-requeue"}),
    frozenset({"nodes", "ntasks"}),
)
"""Options one of which, given for the further jobs, speaks for all."""
_SHOWN = _ALWAYS.keys() | {"time", "nice"}
"""Options of which what Slurm shows says all; they may have been changed since the job was submitted."""
_GPUS = {
    "TresPerNode": "gres",
    "TresPerJob": "gpus",
    "TresPerTask": "gpus-per-task",
    "TresPerSocket": "gpus-per-socket",
}
_SHARED = {"NO": ("exclusive", None), "USER": ("exclusive", "user"), "MCS": ("exclusive", "mcs")}
_SHARED |= {"YES": ("oversubscribe", None)}
_EXCLUSIVE = {"NODE": _SHARED["NO"], "USER": _SHARED["USER"], "MCS": _SHARED["MCS"]}
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def without_chosen(job: ShownJob, options: Iterable[Given], given: Collection[str]) -> tuple[Given, ...]:
    """Those options about which the ones named in ``given`` say nothing, and whose value Slurm does not show.

    Of several partitions it shows the one in which the job runs.
    """
    chosen = _chosen(given)
    untold = (option for option in options if option.name not in _SHOWN or _is_among_others(job, option))
    return tuple(option for option in untold if option.name not in chosen)


def _is_among_others(job: ShownJob, option: Given | None) -> bool:
    if option is None or option.name != "partition":
        return False
    names = (option.value or "").split(",")
    return len(names) > 1 and job.value("Partition") in names


def further_options(job: ShownJob, said: Mapping[str, Given], given: Collection[str]) -> tuple[Given, ...]:
    """Options in addition to those that are ``said`` already; ``given``: names of those that the owner gives.

    Raises ``BadSpelling`` for a job without a time limit: another one never follows it.
    """
    where = f"job {job.job_id}"
    chosen = _chosen(given)
    options = (*_plain(job, said), *_time(job), *_size(job, said), *_memory(job, said), *_gres(job, said))
    options += (*_placing(job), *_sharing(job, said), *_files(job, said))
    return tuple(
        Given(name, value, where)
        for name, value in options
        if name not in chosen and not _is_said(said, name, value)
    )


def _chosen(given: Collection[str]) -> set[str]:
    return set(given).union(*(family for family in _FAMILIES if family & set(given)))


def _is_said(said: Mapping[str, Given], name: str, value: str | None) -> bool:
    return name in said and said[name].value == value


def _plain(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    for option, name in _ALWAYS.items():
        value = job.value(name)
        if option == "partition" and _is_among_others(job, said.get(option)):
            continue
        if option == "constraint" and "prefer" in said and said["prefer"].value == value:
            continue  # Slurm shows features that the job has but does not need in the same place
        if value:
            yield option, value
    if nice := job.number("Nice"):
        yield "nice", str(nice)


def _time(job: ShownJob) -> Iterator[tuple[str, str | None]]:
    limit = job.value("TimeLimit")
    if limit.upper() in ("UNLIMITED", "INFINITE"):
        raise BadSpelling(
            limit, f"job {job.job_id} has no time limit, so no link would ever follow it; give --time"
        )
    if limit and limit != "Partition_Limit":
        yield "time", limit


def _size(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    """Nodes and tasks. A number of nodes that Slurm chose for the tasks is no request for as many."""
    nodes = _RANGE.fullmatch(job.value("NumNodes"))
    count = int(nodes[1]) if nodes and nodes[2] in (None, nodes[1]) else 0
    tasks, each = job.number("NumTasks"), job.number("CPUs/Task")
    per_node = _first_number(job.value("NtasksPerN:B:S:C"))
    by_tasks = "nodes" not in said and "ntasks" in said and said["ntasks"].value == str(tasks)
    if count and not by_tasks and not _within(said, "nodes", count) and (count > 1 or "nodes" in said):
        yield "nodes", str(count)
    if per_node:
        yield "ntasks-per-node", str(per_node)
    elif tasks > 1 and tasks != count:
        yield "ntasks", str(tasks)
    if per_gpu := _per_gpu(job, "CpusPerTres"):
        yield "cpus-per-gpu", str(per_gpu)
    elif each > 1 or "cpus-per-task" in said:
        yield "cpus-per-task", str(max(each, 1))


def _first_number(text: str) -> int:
    first = text.partition(":")[0]
    return int(first) if first.isascii() and first.isdigit() and len(first) < 10 else 0


def _within(said: Mapping[str, Given], name: str, count: int) -> bool:
    """Whether the script asks for ``count``, or for a range that contains it."""
    asked = _RANGE.fullmatch(said[name].value or "") if name in said else None
    return asked is not None and int(asked[1]) <= count <= int(asked[2] or asked[1])


def _memory(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    each = _per_gpu(job, "MemPerTres")
    if "mem-per-gpu" in said or each:
        if each and not ("mem-per-gpu" in said and _megabytes(said["mem-per-gpu"].value or "") == each):
            yield "mem-per-gpu", f"{each}M"
        return  # Slurm shows the memory that it computed from this
    for name, option in (("MinMemoryNode", "mem"), ("MinMemoryCPU", "mem-per-cpu")):
        amount = _megabytes(job.value(name))
        if amount is None or (option in said and _megabytes(said[option].value or "") == amount):
            continue
        yield option, f"{amount}M" if amount else "0"  # all memory: by --mem=0, or where no default is set


def _per_gpu(job: ShownJob, name: str) -> int:
    """Of ``gres:gpu:4``, ``gres/gpu=4``: the number; of memory, in MB."""
    found = re.fullmatch(r"gres[:/]gpu[:=]([0-9]{1,9})", job.value(name))
    return int(found[1]) if found else 0


def _megabytes(text: str) -> int | None:
    try:
        return tres.memory_mb(text)
    except BadSpelling:
        return None


def _gres(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    shown = {name: _generic(job.value(name)) for name in _GPUS}
    if "gres" in said and not any(shown.values()):
        yield "gres", "none"
    for name, option in _GPUS.items():
        wanted = shown[name]
        if not wanted:
            continue
        if option == "gres" and "gpus-per-node" in said and _only_gpus(wanted):
            option = "gpus-per-node"  # noqa: PLW2901 - sbatch would add up both
        if option != "gres":
            wanted = wanted.removeprefix("gpu:") if _only_gpus(wanted) else ""
        if wanted and not (option in said and _generic(said[option].value or "") == wanted):
            yield option, wanted


def _generic(text: str) -> str:
    """``gres:gpu:a100:2``, ``gres/gpu=2``: as ``--gres`` takes it; other resources are left out."""
    items = (item for item in text.split(",") if not re.match(r"(?:cpu|mem|license|bb)\b", item))
    return ",".join(re.sub(r"^gres[:/]", "", item).replace("=", ":") for item in items)


def _only_gpus(text: str) -> bool:
    return text.startswith("gpu:") and "," not in text


def _placing(job: ShownJob) -> Iterator[tuple[str, str | None]]:
    if job.value("Contiguous") == "1":
        yield "contiguous", None
    if bound := job.value("TresBind"):
        yield "gpu-bind", re.sub(r"^(?:gres[:/])?gpu[:/]", "", bound)
    if job.value("GresEnforceBind") == "Yes":
        yield "gres-flags", "enforce-binding"
    _, _, socket, core, *_ = (*job.value("NtasksPerN:B:S:C").split(":"), "", "", "", "")
    if _first_number(socket):
        yield "ntasks-per-socket", socket
    if _first_number(core):
        yield "ntasks-per-core", core


def _sharing(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    if exclusive := job.value("Exclusive"):  # Slurm 26.05, whose OverSubscribe=NO says nothing of whole nodes
        shared = _EXCLUSIVE.get(exclusive)
    else:
        shared = _SHARED.get(job.value("OverSubscribe"))
    if shared is not None:
        yield shared
    if job.value("Requeue") == "0" and "no-requeue" not in said:
        yield "no-requeue", None


def _files(job: ShownJob, said: Mapping[str, Given]) -> Iterator[tuple[str, str | None]]:
    """Slurm shows the names of files with the job's ID in them: each link's own takes its place."""
    out, error = _pattern(job, "StdOut"), _pattern(job, "StdErr")
    if out and not _is_file(job, "StdOut", said.get("output"), "slurm-%j.out"):
        yield "output", out
    apart = job.value("StdErr") != job.value("StdOut")
    if error and (apart or "error" in said) and not _is_file(job, "StdErr", said.get("error"), ""):
        yield "error", error
    if job.value("StdIn") not in ("", "/dev/null") and "input" not in said:
        yield "input", _pattern(job, "StdIn")


def _is_file(job: ShownJob, name: str, said: Given | None, usual: str) -> bool:
    """Whether the file that Slurm shows has the name that the script, or else sbatch, gives it."""
    pattern = (said.value or "") if said is not None else usual
    if "\\" in pattern:  # which leaves all of it as it is
        return said is not None
    number = f"0*{job.job_id}"  # sbatch pads it where a width is given
    known = {"j": number, "A": number, "x": re.escape(job.value("JobName")), "%": "%"}
    parts = re.split(r"%(?:\d*)(.)", pattern)
    filled = (known.get(part, ".*") if k % 2 else re.escape(part) for k, part in enumerate(parts))
    under = "" if pattern.startswith("/") else re.escape(job.value("WorkDir")) + "/"
    return bool(pattern) and re.fullmatch(under + "".join(filled), job.value(name)) is not None


def _pattern(job: ShownJob, name: str) -> str:
    plain = job.value(name).replace("%", "%%")
    return re.sub(rf"(?<![0-9]){job.job_id}(?![0-9])", "%j", plain)


def shown_arguments(job: ShownJob) -> tuple[str, ...]:
    """The arguments of the script; of one with blanks, or behind a path with blanks, several words."""
    return tuple(job.value("Command").split(" ")[1:])
