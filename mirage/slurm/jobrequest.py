"""What a user's ``sbatch`` options ask for, as a ``JobRequest`` and the options that it has no field for.

The script is submitted as it is, so ``sbatch`` reads its ``#SBATCH`` lines again each time; what is given on the
command line then counts more. A renderer puts ``batch.options`` after the options made from the request's fields,
and leaves out the fields that ``said_by_options`` names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling
from mirage.domain.job import UNLIMITED, BatchScript, JobRequest, Seconds
from mirage.slurm import duration, tres
from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.option_values import check_mail_type, parse_begin, read_signal
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.slurm.sbatchoptions import Given

REFUSED = {
    "array": "a chain follows one job, not an array: submit one chain for each task",
    "wait": "a chain outlives the command line: watch it with mirage chains",
    "test-only": "use --dry-run",
    "dependency": "every link would carry it: submit when that job has ended, or use --begin",
    "deadline": "every link would carry the same time: bound the chain with --total-time or --links",
    "clusters": "a chain stays on the cluster of its daemon",
    "cluster-constraint": "a chain stays on the cluster of its daemon",
    "uid": "links are submitted in your own name",
    "gid": "links are submitted in your own name",
    "external": "an external job runs no script",
    "kill-on-invalid-dep": "links have no dependencies",
}
"""Options that cannot work in a chain, and why."""

_HELD = "sbatch would hold every link, not the first alone: remove it, and give --hold to mirage submit"

_MOST_DIGITS = 18
ABOUT_SBATCH = ("parsable", "quiet", "verbose", "help", "usage", "version", "autocomplete", "wrap", "comment")
"""About how sbatch itself talks, or read elsewhere; a comment would displace the link's tag."""

_SLOTS = {"no-requeue": "requeue", "oversubscribe": "exclusive", "mem-per-cpu": "mem", "mem-per-gpu": "mem"}
"""Options of which only the last counts."""

_SAID = {
    "nodes": ("nodes", "ntasks", "gpus", "nodelist", "nodefile"),
    "gres_per_node": ("gpus-per-node", "gpus", "gpus-per-task", "gpus-per-socket"),
    "cpus_per_node": ("cpus-per-task", "ntasks", "ntasks-per-node", "mincpus", "cpus-per-gpu"),
    "memory_mb_per_node": ("mem-per-cpu", "mem-per-gpu"),
}
_GRES = "gres"
"""Passed on as it was given next to an option for GPUs: ``sbatch`` judges what both say."""
_OWN_VARIABLES = "MIRAGE_CHAIN_ID,MIRAGE_LINK,MIRAGE_PREV_JOBID,MIRAGE_HANDOVER_FILE,MIRAGE_TASKS_STATE"

_COUNT = re.compile(r"([0-9]{1,9})([kKmM]?)")
_NODE_RANGE = re.compile(r"([0-9]{1,9}[kKmM]?)-[0-9]{1,9}[kKmM]?")
_FEATURES = re.compile(r"[\w.:-]+(?:&[\w.:-]+)*")
_PLAIN_NICE = 100


@dataclass(frozen=True, slots=True)
class Sources:
    """Options by where they come from; each counts more than the one before."""

    script: tuple[Given, ...] = ()
    environment: tuple[Given, ...] = ()
    command: tuple[Given, ...] = ()

    def effective(self) -> dict[str, Given]:
        """The options that count, by slot, in the order given.

        Raises ``BadSpelling`` for two of one source that exclude each other.
        """
        found: dict[str, Given] = {}
        for source in (self.script, self.environment, self.command):
            memory = {given.name for given in source if _slot(given) == "mem"}
            if len(memory) > 1:
                raise BadSpelling(" ".join(f"--{name}" for name in sorted(memory)), "exclude each other")
            for given in source:
                found.pop(_slot(given), None)
                found[_slot(given)] = given
        return found


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Values that a request takes from its place of submission."""

    name: str
    """The job's name where no option gives one."""
    user: str
    directory: str
    """Absolute: where the job runs where no option says otherwise."""
    now: Seconds
    default_limit: Callable[[str], Seconds]
    """The time limit that a partition (empty: the default one) gives to jobs without one."""


def read_request(sources: Sources, around: Surroundings, script: str) -> tuple[JobRequest, tuple[str, ...]]:
    """The request, its batch script without environment, and remarks about options that do not count.

    Raises ``BadSpelling`` naming the place of an option that cannot be read or cannot work in a chain, and
    whatever ``default_limit`` raises.
    """
    effective = sources.effective()
    _refuse(effective.values())
    _refuse_held(sources.script)
    changes: dict[str, Any] = {"directory": around.directory}
    options: list[Given] = []
    both = effective.keys() & set(_SAID["gres_per_node"])
    for given in effective.values():
        if given.name not in ABOUT_SBATCH:
            found, kept = _read(given, around)
            changes |= found
            options += (given,) if given.name == _GRES and both else kept
    directory = changes.pop("directory")
    limit = changes.pop("limit", None)
    if limit is None:
        limit = around.default_limit(changes.get("partition", ""))
    batch = BatchScript(script, tuple(given.spelling for given in options), directory=directory)
    request = replace(JobRequest(around.name, around.user, limit, batch=batch), **changes)
    return _with_sums(request, {given.name: given for given in options}), _remarks(effective)


def said_by_options(request: JobRequest) -> frozenset[str]:
    """Fields of ``request`` that its batch options say, perhaps in other words: not to be rendered again."""
    if request.batch is None:
        return frozenset()
    named = {option.removeprefix("--").partition("=")[0] for option in request.batch.options}
    return frozenset(field for field, options in _SAID.items() if named & set(options))


def unsaid_gres(request: JobRequest) -> tres.Amounts:
    """Generic resources that no option requests, where the options request GPUs in another notation."""
    if request.batch is not None and any(option.startswith(f"--{_GRES}=") for option in request.batch.options):
        return ()
    return tuple((name, count) for name, count in request.gres_per_node if name.partition(":")[0] != "gpu")


def names_nodes(request: JobRequest) -> bool:
    """Whether the request asks for nodes by name, in its options or its script."""
    if request.node_list or request.batch is None:
        return bool(request.node_list)
    given = _given(request.batch)
    return given is None or bool(given.keys() & {"nodelist", "nodefile"})


def may_use_partitions(request: JobRequest) -> bool:
    """Whether the request names several partitions, in its field, its options or its script."""
    if "," in request.partition or request.batch is None:
        return "," in request.partition
    given = _given(request.batch)
    return given is None or ("partition" in given and "," in (given["partition"].value or ""))


def may_spread(request: JobRequest) -> bool:
    """Whether Slurm may give a further such job more nodes than this one has: no option says how many.

    A job of one task stays on one node, unless its GPUs are counted for the whole job and its tasks are not.
    """
    if request.batch is None:
        return False
    given = _given(request.batch)
    if given is None:
        return True
    if "nodes" in given:
        low, _, high = (given["nodes"].value or "").partition("-")
        return not _is_count(low) or high not in ("", low)
    if request.nodes != 1 and "nodes" not in said_by_options(request):
        return False
    return _amount(given["ntasks"]) != 1 if "ntasks" in given else "gpus" in given


def _given(batch: BatchScript) -> dict[str, Given] | None:
    """The options that count, of the script and those passed on; ``None``: sbatch may read them in another way."""
    try:
        words = read_directives(batch.text, SBATCH_LINE, "script").words
        passed = [Word(text, "options") for text in batch.options]
        return {each.name: each for source in (words, passed) for each in SBATCH.read(source)[0]}
    except BadSpelling:
        return None


def _slot(given: Given) -> str:
    return _SLOTS.get(given.name, given.name)


def _refuse(effective: Iterable[Given]) -> None:
    for given in effective:
        if given.name in REFUSED:
            raise BadSpelling(given.spelling, f"{given.where}: cannot work in a chain: {REFUSED[given.name]}")


def check_directives(text: str, label: str) -> None:
    """Raise ``BadSpelling`` for a script whose ``#SBATCH`` lines cannot be read or cannot work in a chain."""
    directives = read_directives(text, SBATCH_LINE, label)
    given, _ = SBATCH.read(directives.words)
    _refuse(given)
    _refuse_held(given)


def _refuse_held(script: Iterable[Given]) -> None:
    """Raise ``BadSpelling`` for a script that asks for a hold: no other option takes that back."""
    for given in script:
        if given.name == "hold":
            raise BadSpelling(given.spelling, f"{given.where}: {_HELD}")


def _remarks(effective: dict[str, Given]) -> tuple[str, ...]:
    if "comment" not in effective:
        return ()
    given = effective["comment"]
    return (f"{given.where}: {given.spelling} is left out: the comment carries the mark of the link",)


_DEFAULTS = {field.name: field.default for field in fields(JobRequest)}


def _read(given: Given, around: Surroundings) -> tuple[dict[str, Any], tuple[Given, ...]]:
    """Fields that the option sets, and the option itself where it has to be passed on."""
    if given.name in _SAID_OPTIONS:
        return {}, (given,)
    reader = _READERS.get(given.name)
    if reader is None:
        return {}, (given,)
    try:
        changes = reader(given.value or "", around)
    except BadSpelling as error:
        raise BadSpelling(given.spelling, f"{given.where}: {error.problem}") from None
    # A field that has its default value renders nothing: the option must be given, lest the script's line counts.
    vain = not changes or any(_DEFAULTS.get(name) == value for name, value in changes.items())
    rewritten = changes.pop("option", None)
    if rewritten is not None:
        given = replace(given, value=rewritten)
    return changes, (given,) if vain or rewritten is not None else ()


_SAID_OPTIONS = frozenset(option for options in _SAID.values() for option in options) - {"nodes"}


def _nodes(text: str, _: Surroundings) -> dict[str, Any]:
    match = _NODE_RANGE.fullmatch(text)
    return {"nodes": _count(match[1] if match else text), "option": text}


def _count(text: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "expected a number such as 4")
    return int(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]


def _time(text: str, _: Surroundings) -> dict[str, Any]:
    seconds = duration.parse(text) or UNLIMITED  # 0 means no limit
    return {"limit": min(-(-seconds // 60) * 60, UNLIMITED)}  # Slurm counts whole minutes, rounded up


def _exclusive(text: str, _: Surroundings) -> dict[str, Any]:
    return {"exclusive": True} if text in ("", "exclusive") else {}


def _begin(text: str, around: Surroundings) -> dict[str, Any]:
    return {"begin": parse_begin(text, around.now)}


def _nice(text: str, _: Surroundings) -> dict[str, Any]:
    if text and re.fullmatch(r"[+-]?[0-9]{1,10}", text) is None:
        raise BadSpelling(text, "expected a whole number")
    return {"nice": int(text or _PLAIN_NICE)}


def _signal(text: str, _: Surroundings) -> dict[str, Any]:
    warn, before_reservations = read_signal(text)
    return {"warn": warn, "option": text} if before_reservations else {"warn": warn}


def _mail_type(text: str, _: Surroundings) -> dict[str, Any]:
    check_mail_type(text)
    return {"option": text}


def _constraint(text: str, _: Surroundings) -> dict[str, Any]:
    return {"features": tuple(text.split("&"))} if _FEATURES.fullmatch(text) else {}


def _export(text: str, _: Surroundings) -> dict[str, Any]:
    """The link's own variables must reach it, whatever else does not."""
    if text.upper() == "ALL":
        return {"option": text}
    return {"option": _OWN_VARIABLES if text.upper() in ("NONE", "NIL") else f"{text},{_OWN_VARIABLES}"}


def _chdir(text: str, around: Surroundings) -> dict[str, Any]:
    return {"directory": text if text.startswith("/") else f"{around.directory}/{text}"}


def _text(field: str) -> Callable[[str, Surroundings], dict[str, Any]]:
    return lambda text, _: {field: text} if text else {}


_READERS: dict[str, Callable[[str, Surroundings], dict[str, Any]]] = {
    "job-name": _text("name"),
    "partition": _text("partition"),
    "account": _text("account"),
    "qos": _text("qos"),
    "reservation": _text("reservation"),
    "nodes": _nodes,
    "time": _time,
    "mem": lambda text, _: {"memory_mb_per_node": tres.memory_mb(text)},
    "gres": lambda text, _: {"gres_per_node": tres.parse_gres(text)},
    "constraint": _constraint,
    "exclusive": _exclusive,
    "oversubscribe": lambda _text, _: {"exclusive": False},
    "begin": _begin,
    "hold": lambda _text, _: {"held": True},
    "nice": _nice,
    "requeue": lambda text, _: {"requeue": True} | ({"option": text} if text else {}),
    "no-requeue": lambda _text, _: {"requeue": False},
    "signal": _signal,
    "mail-type": _mail_type,
    "chdir": _chdir,
    "export": _export,
}


def _with_sums(request: JobRequest, options: dict[str, Given]) -> JobRequest:
    """The request with what the options passed on amount to on each node, where that is certain."""
    amounts = {name: _amount(options[name]) for name in _SAID_OPTIONS & options.keys()}
    changes: dict[str, Any] = {}
    nodes = _nodes_for_certain(amounts, options)
    if nodes:
        changes["nodes"] = nodes
    if cpus := _cpus(amounts, nodes):
        changes["cpus_per_node"] = cpus
    named = any(name.partition(":")[0] == "gpu" for name, _ in request.gres_per_node)
    if not named and (gpus := _gpus(options, nodes)):
        changes["gres_per_node"] = (*request.gres_per_node, gpus)
    if "mem-per-cpu" in options and cpus:
        changes["memory_mb_per_node"] = cpus * tres.memory_mb(options["mem-per-cpu"].value or "")
    return replace(request, **changes)


def _amount(given: Given) -> int:
    return int(given.value) if given.value and _is_count(given.value) else 0


def _is_count(text: str) -> bool:
    """Whether Python converts the number; ``sbatch`` judges others, such as those of some thousand digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _nodes_for_certain(amounts: dict[str, int], options: dict[str, Given]) -> int:
    """Number of nodes that Slurm will allocate; 0 where it may choose."""
    if "nodes" in options:
        return _amount(options["nodes"])
    if amounts.get("ntasks-per-node") and amounts.get("ntasks"):
        return -(-amounts["ntasks"] // amounts["ntasks-per-node"])
    chooses = amounts.get("ntasks", 1) != 1 or options.keys() & set(_SAID["nodes"]) - {"ntasks"}
    return 0 if chooses else 1


def _cpus(amounts: dict[str, int], nodes: int) -> int:
    each = amounts.get("cpus-per-task", 1)
    if "ntasks-per-node" in amounts:
        tasks = amounts["ntasks-per-node"]
    elif nodes:
        tasks, left = divmod(amounts.get("ntasks", nodes if "cpus-per-task" in amounts else 0), nodes)
        tasks = 0 if left else tasks
    else:
        tasks = 0
    return max(tasks * each, amounts.get("mincpus", 0))


def _gpus(options: dict[str, Given], nodes: int) -> tuple[str, int] | None:
    for name, share in (("gpus-per-node", 1), ("gpus", nodes)):
        text = options[name].value if name in options else None
        if not text or not share:
            continue
        kind, _, count = text.rpartition(":")
        if _is_count(count) and int(count) % share == 0:
            return (f"gpu:{kind}" if kind else "gpu"), int(count) // share
    return None
