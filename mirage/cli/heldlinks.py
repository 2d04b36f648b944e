"""Held links: their owner submits them in advance, and the daemon only releases them."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import typer

from mirage.backends.cli_actuator import CliActuator
from mirage.client.client import chain_path
from mirage.domain.chain import Chain, ChainId, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.errors import ClusterUnavailable, ConfigError, MirageError, UnknownJob
from mirage.domain.job import JobChange, job_id_of
from mirage.domain.link import NO_JOB
from mirage.domain.script import script_digests
from mirage.provisioner.heldlinks import MOST_AWAITED, awaited

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mirage.backends.execution import CommandRunner
    from mirage.cli.chain_request import ChainRequest
    from mirage.client.client import Client
    from mirage.domain.job import Dependency, JobId

_OVER = ("done", "stopped")
_GONE = ("ended", "lost")
_DIGESTS = {
    "script": "the script differs from the chain's",
    "arguments": "the arguments of the script differ from the chain's",
}


@contextmanager
def held_links(plan: ChainRequest, commands: CommandRunner) -> Iterator[list[JobId]]:
    """Submit the first links held and yield their job IDs.

    They must exist before the daemon knows the chain, or it would find none to release. If the chain or one of the
    links is rejected, the submitted links are cancelled.
    """
    policy = plan.document.get("handover", {}).get("policy", HandoverSettings().policy)
    chain = _chain(plan, plan.chain_id, policy)
    with _submitted(chain, range(1, plan.held_links + 1), {}, (), commands) as jobs:
        yield jobs


def add_held_links(plan: ChainRequest, daemon: Client, commands: CommandRunner) -> tuple[str, list[JobId]]:
    """Submit further held links of a chain; return the chain's ID and their job IDs.

    Raises ``ConfigError`` if the chain needs none or was submitted with other options.
    """
    # Read the queue first: the daemon then knows every link that has already left it.
    tags = _queued(plan.request.user, commands)
    chain = daemon.get(chain_path(plan.chain))
    _check(chain, plan)
    mark = f"mirage:{chain['id']}:"
    jobs = {link["index"]: job_id_of(link["job_id"]) if link["job_id"] else NO_JOB for link in chain["links"]}
    for tag, job_id in tags.items():
        number = tag.removeprefix(mark)
        if number != tag and number.isdecimal():
            jobs[int(number)] = job_id
    missing = (index for index in count(1) if index not in jobs)
    indices = [next(missing) for _ in range(plan.held_links)]
    over = [job_id_of(link["job_id"]) for link in chain["links"] if link["state"] in _GONE and link["job_id"]]
    with _submitted(_chain(plan, chain["id"], chain["handover"]), indices, jobs, over, commands) as added:
        return chain["id"], added


@contextmanager
def _submitted(
    chain: Chain,
    indices: Sequence[int],
    known: Mapping[int, JobId],
    over: Collection[JobId],
    commands: CommandRunner,
) -> Iterator[list[JobId]]:
    """Submit held jobs for these links; ``known``: the jobs of other links, ``over``: ended jobs.

    With one writer they depend on each other, so that no two run together even if their owner releases them.
    """
    jobs = dict(known)
    added: list[JobId] = []
    actuator = CliActuator(commands, chain.owner)
    try:
        for index in indices:
            request = chain.link_request(index, jobs.get(index - 1, NO_JOB))
            apart = awaited(chain, jobs, index, over) if chain.one_writer else ()
            jobs[index] = actuator.submit(replace(request, held=True, dependencies=apart))
            added.append(jobs[index])
            if chain.one_writer:
                for later in sorted(other for other in known if other > index)[:MOST_AWAITED]:
                    _put_behind(known[later], awaited(chain, jobs, later, over), actuator, chain.owner)
        yield added
    except BaseException:
        _take_back(added, actuator, chain.owner)
        raise


def _put_behind(job_id: JobId, awaited: tuple[Dependency, ...], actuator: CliActuator, owner: str) -> None:
    """Make a held link depend also on an earlier one that replaces a cancelled link."""
    with suppress(UnknownJob):  # the job has left the queue
        actuator.update(job_id, owner, JobChange(dependencies=awaited))


def _chain(plan: ChainRequest, chain_id: str, policy: str) -> Chain:
    """Return the chain of the plan's links."""
    request, done = plan.request, plan.document.get("done", {})
    exit_code = done.get("exit_code", None if done.get("file") else 0)
    return Chain(
        ChainId(chain_id), request.name, request.user, request,
        done=DoneCondition(exit_code), handover=HandoverSettings(HandoverPolicy(policy)),
        tasks_state=plan.document.get("tasks_state", ""),
    )  # fmt: skip


def _check(chain: Mapping[str, Any], plan: ChainRequest) -> None:
    """Raise ``ConfigError`` if held links of this plan do not fit the chain."""
    where = f"--chain '{chain['id']}'"
    if chain["owner"] != plan.request.user:
        raise ConfigError(where, f"belongs to {chain['owner']}; only the owner can submit its links")
    if chain["status"] in _OVER:
        raise ConfigError(where, f"is {chain['status']} ({chain['reason']}); submit a new chain")
    if chain["held_links"] is None:
        raise ConfigError(where, "the daemon submits its links itself (acting.mode); omit --held-links")
    asked = _asked(plan)
    if other := [name for name, value in chain["request"].items() if _differs(name, value, asked)]:
        name = other[0]
        there = f"{name} is {chain['request'][name]!r} in the chain and {asked[name]!r} here"
        differs = _DIGESTS.get(name, there)
        raise ConfigError(where, f"{differs}; submit from the same directory with the same script and options")


def _differs(name: str, there: Any, asked: Mapping[str, Any]) -> bool:
    """Compare a field; ignore digests that an older daemon lacks and fields that only a newer one has."""
    known = name in asked and (there or name not in _DIGESTS)
    return bool(known and asked[name] != there)


def _asked(plan: ChainRequest) -> dict[str, Any]:
    """Return the request of each link as the daemon's document."""
    request = plan.request
    assert request.batch is not None
    digests = script_digests(request.batch)
    return {
        "job_name": request.name,
        "partition": request.partition,
        "account": request.account,
        "qos": request.qos,
        "nodes": request.nodes,
        "limit": request.limit,
        "gres_per_node": dict(request.gres_per_node),
        "options": list(request.batch.options),
        "directory": request.batch.directory,
        "script": digests.text,
        "arguments": digests.arguments,
    }


def _queued(user: str, commands: CommandRunner) -> dict[str, JobId]:
    """The user's jobs in the queue, by comment. Raises ``ClusterUnavailable``."""
    answer = commands.run(["squeue", f"--user={user}", "--noheader", "--array", "--format=%A|%k"])
    if answer.status:
        raise ClusterUnavailable(f"squeue: {answer.said}")
    rows = (line.strip().partition("|") for line in answer.out.splitlines())
    return {comment: job_id_of(int(number)) for number, _, comment in rows if number.isdecimal()}


def _take_back(jobs: Sequence[JobId], actuator: CliActuator, user: str) -> None:
    """Cancel held links that will not be released, and report those that remain."""
    left: list[str] = []
    for job_id in jobs:
        try:
            actuator.cancel(job_id, user)
        except UnknownJob:
            continue
        except MirageError as error:
            left.append(str(job_id))
            typer.echo(f"mirage: job {job_id} could not be cancelled: {error}", err=True)
    if left:
        typer.echo(f"mirage: these held links remain; cancel them: scancel {' '.join(left)}", err=True)
    elif jobs:
        typer.echo(f"mirage: cancelled {len(jobs)} held links of the chain", err=True)
