"""Build a chain's request from a command line and a script: read and check all, send nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.backends.marked_jobs import comment_options
from mirage.cli.chainoptions import CHAIN, chain_document, held_links, new_chain_id
from mirage.domain.bounds import LARGEST_SCRIPT, REQUEST
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.slurm import batchscript
from mirage.slurm.jobrequest import Sources, Surroundings, read_request
from mirage.slurm.sbatch import capture
from mirage.slurm.sbatchoptions import SBATCH, Options, Takes, Word, given_by_environment, option_table
from mirage.slurm.shown_jobs import further_options, without_chosen
from mirage.slurm.wrapper import wrap, wrap_command

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from mirage.domain.job import JobRequest, Seconds
    from mirage.slurm.sbatchoptions import Given
    from mirage.slurm.shown_jobs import ShownJob

COMMAND_ONLY = (
    *option_table(Takes.NOTHING, "dry-run json no-check no-wait"),
    *option_table(Takes.VALUE, "socket chain controller"),
)
COMMAND = Options((*CHAIN.own, *COMMAND_ONLY))
SUBMIT = Options(SBATCH.own, beside=COMMAND)

_CHAIN_ONLY = frozenset(option.name for option in CHAIN.own) - {"held-links", "health-command", "tasks-state"}
"""Options that apply to the chain only, not to its links."""
_CHAIN_NAMES = frozenset(option.name for option in COMMAND.own)
_ADOPTION = Options((*COMMAND.own, *option_table(Takes.NOTHING, "if-marked")))
ADOPT = Options(SBATCH.own, beside=_ADOPTION)
ADOPT_NAMES = frozenset(option.name for option in _ADOPTION.own)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Arguments of ``mirage submit``."""

    sbatch: tuple[Given, ...]
    chain: dict[str, Given]
    script: str
    """File of the script; empty: standard input, or ``--wrap``."""
    arguments: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Whether one of these options is given."""
        return any(given.name in names for given in self.sbatch) or any(name in self.chain for name in names)

    def value(self, name: str) -> str | None:
        """The last value of an option; ``None`` where it is not given."""
        values = [given.value for given in (*self.sbatch, *self.chain.values()) if given.name == name]
        return values[-1] if values else None


@dataclass(frozen=True, slots=True)
class Shell:
    """Process state that a job inherits; the defaults mean "unknown"."""

    umask: int | None = None
    resource_limits: tuple[tuple[str, int], ...] = ()
    nice: int | None = None
    other_group: str = ""
    """The shell's group, if it is not the user's primary group (``newgrp``, ``sg``)."""


@dataclass(frozen=True, slots=True)
class SubmissionContext:
    """What a plan reads from the machine."""

    user: str
    environment: dict[str, str]
    directory: str
    now: Seconds
    default_limit: Callable[[str], Seconds]
    read_stdin: Callable[[], bytes]
    shell: Shell = Shell()


@dataclass(frozen=True, slots=True)
class ChainRequest:
    """A chain, ready to be sent."""

    document: dict[str, Any]
    """Request body for the daemon."""
    request: JobRequest
    held_links: int
    remarks: tuple[str, ...]
    chain: str = ""
    """ID or name of the chain to which only held links are added; empty: a new chain."""

    @property
    def chain_id(self) -> str:
        """Return the ID of the new chain."""
        return str(self.document["chain_id"])


@dataclass(frozen=True, slots=True)
class Followed:
    """An adopted job: it is link 1, and further links follow it."""

    job: ShownJob
    script: str
    """As stored by Slurm."""
    options: tuple[Given, ...]
    """Known options of the command line with which it was submitted."""


class BadRequest(BadSpelling):
    """Options, script or environment exceed what a link may have."""

    def __init__(self, problem: str) -> None:
        super().__init__("", problem)
        self.args = (f"the job: {problem}",)


def read_command_line(
    argv: Sequence[str], table: Options = SUBMIT, own: Container[str] = _CHAIN_NAMES
) -> CommandLine:
    """Options of ``sbatch`` and those named ``own``, then the script and its arguments. Raises ``BadSpelling``."""
    words = [Word(word, "command line") for word in argv]
    for word in words:
        if word.text == ":":
            raise BadSpelling(":", "a heterogeneous job cannot be a link: Mirage schedules one job at a time")
    given, rest = table.read(words)
    chain = {option.name: option for option in given if option.name in own}
    sbatch = tuple(option for option in given if option.name not in own)
    script, *arguments = [word.text for word in rest] or [""]
    return CommandLine(sbatch, chain, script, tuple(arguments))


def read_job(line: CommandLine, outside: SubmissionContext) -> tuple[JobRequest, tuple[Given, ...]]:
    """Return the request of one job and its effective ``sbatch`` options. Raises as ``make_plan`` does."""
    text, name = _script(line, outside) if line.script else ("#!/bin/sh\n", "sbatch")
    label = name if line.script else "stdin"
    batchscript.check_script(text, label)
    sources = Sources(_sbatch_lines(text, label, line), given_by_environment(outside.environment), line.sbatch)
    around = Surroundings(name, outside.user, outside.directory, outside.now, outside.default_limit)
    request, _ = read_request(sources, around, text)
    return request, tuple(sources.effective().values())


def make_plan(line: CommandLine, outside: SubmissionContext, followed: Followed | None = None) -> ChainRequest:
    """Return the chain that command line, script and environment describe.

    ``followed``: take the script and the options that the command line omits from this job. Raises ``BadSpelling``
    and ``ConfigError`` with the place of the error, and what ``default_limit`` raises.
    """
    chain_document(line.chain, outside.directory, None)  # wrong options are reported before a script is awaited,
    if followed is None:
        text, name = _script(line, outside)
        label = name if line.script or line.has("wrap") else "stdin"
    else:
        text, name, label = (
            followed.script,
            followed.job.value("JobName"),
            f"the script of job {followed.job.job_id}",
        )
    batchscript.check_script(text, label)
    beside = given_by_environment(outside.environment) if followed is None else ()
    sources = Sources(_sbatch_lines(text, label, line), beside, line.sbatch)
    if followed is not None:
        sources = _as_followed(sources, followed)
    around = Surroundings(name, outside.user, outside.directory, outside.now, outside.default_limit)
    options = _chain_lines(text, label) | (_commented(followed.job) if followed else {}) | line.chain
    held, chain = held_links(options), line.value("chain")
    added = _check_addition(line, chain, held) if chain is not None else ()
    chain_document(options, outside.directory, None)  # and before Slurm is asked for a time limit
    request, remarks = read_request(sources, around, text)
    if followed is not None and request.begin:
        request = replace(request, begin=outside.now)  # such an option was about its first link
    request = _as_submitted(request, line, options, outside)
    assert request.batch is not None
    if problem := REQUEST.problem(request):
        raise BadRequest(problem)
    document = chain_document(options, request.batch.directory, request.warn)
    document.setdefault("name", request.name)
    chain_id = new_chain_id(document["name"], outside.user)
    document |= {"chain_id": chain_id, "owner": outside.user, "request": _plain(request)}
    remarks = (*remarks, *added)
    if group := outside.shell.other_group:
        remarks = (*remarks, f"links run with your primary group, not with {group} of this shell; see newgrp(1)")
    return ChainRequest(document, request, held, remarks, chain or "")


def _as_followed(sources: Sources, followed: Followed) -> Sources:
    """Add the options of the job outside its script. Options of the command line override them."""
    given = [option.name for option in sources.command]
    submitted = without_chosen(followed.job, followed.options, given)
    said = Sources(sources.script, submitted).effective()
    beside = Sources(environment=submitted, command=further_options(followed.job, said, given))
    return replace(sources, environment=tuple(beside.effective().values()))


def _check_addition(line: CommandLine, chain: str, held: int) -> tuple[str, ...]:
    """Return remarks on options that do not change an existing chain. Raises ``BadSpelling``."""
    if not chain or not held:
        raise BadSpelling(f"--chain={chain}", "adds held links to a chain; give its ID and --held-links N")
    idle = sorted(name for name in line.chain if name in _CHAIN_ONLY)
    names = ", ".join(f"--{name}" for name in idle)
    return (f"--chain: the chain keeps its settings; {names} has no effect",) if idle else ()


def _script(line: CommandLine, outside: SubmissionContext) -> tuple[str, str]:
    """Return the text of the script and the default job name."""
    command = line.value("wrap")
    if command is not None:
        if line.script:
            raise BadSpelling(line.script, "a script or its arguments are not permitted with --wrap")
        return wrap_command(command), "wrap"
    if not line.script:
        return outside.read_stdin().decode("utf-8", "surrogateescape"), "sbatch"
    path = _found(line.script, outside)
    try:
        with path.open("rb") as file:  # a pipe, too, as sbatch does; one byte too many is rejected later
            return file.read(LARGEST_SCRIPT + 1).decode("utf-8", "surrogateescape"), path.name
    except OSError as error:
        raise ConfigError(line.script, f"cannot be read: {error.strerror}") from error


def _found(script: str, outside: SubmissionContext) -> Path:
    """Find a script as ``sbatch`` does: in the working directory, then in ``PATH`` for a bare name."""
    path = Path(outside.directory, script)
    if path.exists() or "/" in script:
        return path
    return Path(shutil.which(script, os.R_OK, outside.environment.get("PATH")) or path)


def _sbatch_lines(text: str, label: str, line: CommandLine) -> tuple[Given, ...]:
    foreign = batchscript.foreign_line(text)
    if foreign and not line.has("ignore-pbs"):
        problem = "directive of another batch system; write #SBATCH lines, or give --ignore-pbs"
        raise BadSpelling(label, f"line {foreign}: {problem}")
    directives = batchscript.read_directives(text, batchscript.SBATCH_LINE, label)
    if directives.components:
        raise BadSpelling("#SBATCH hetjob", f"{directives.components[0]}: a heterogeneous job cannot be a link")
    return _only_options(SBATCH, directives.words)


def _chain_lines(text: str, label: str) -> dict[str, Given]:
    directives = batchscript.read_directives(text, batchscript.MIRAGE_LINE, label)
    return {given.name: given for given in _only_options(CHAIN, directives.words)}


def _commented(job: ShownJob) -> dict[str, Given]:
    """Options of the chain in the comment of an adopted job, ``mirage: --links 5``."""
    options = " ".join((comment_options(job.value("Comment")) or "").split())
    return _chain_lines(f"{batchscript.MIRAGE_LINE} {options}\n", f"the comment of job {job.job_id}")


def _only_options(table: Options, words: Sequence[Word]) -> tuple[Given, ...]:
    given, rest = table.read(words)
    if rest:
        raise BadSpelling(
            rest[0].text,
            f"{rest[0].where}: expected an option such as --links=12; a value with blanks needs quotes",
        )
    return given


def _as_submitted(
    request: JobRequest, line: CommandLine, options: dict[str, Given], outside: SubmissionContext
) -> JobRequest:
    """Add what the job inherits from the shell, and the wrapper of ``--health-command``."""
    assert request.batch is not None
    text = request.batch.text
    health = options["health-command"].value or "" if "health-command" in options else ""
    batch = replace(
        request.batch,
        text=wrap(text, health) if health else text,
        environment=capture(outside.environment),
        arguments=line.arguments,
        umask=outside.shell.umask,
        resource_limits=outside.shell.resource_limits,
        process_nice=outside.shell.nice,
    )
    return replace(request, batch=batch)


def _plain(request: JobRequest) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(request)
