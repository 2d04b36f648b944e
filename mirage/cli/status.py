"""``mirage status``: the daemon, Slurm and the user's chains on one screen, and what to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mirage.cli.asking import AsJson, Socket, whole
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.silence import STANDS_BY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.client.client import Client
    from mirage.client.documents import Chain

_CLUSTER = ("snapshot", "stale_since", "backend", "slurm_version", "now")
_ORDER = ("failed", "down", "paused", "starting", "up", "done", "cancelled")
"""States of chains, the worst first."""
_NO_AGENT = "not running; without it Mirage cannot submit or cancel your jobs"
_SHOWN = 10
_QUIET = ("done", "cancelled")
"""States that are only counted, not listed."""


def status_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Show the state of the daemon, of Slurm and of your chains on one screen, and what to do."""
    with exit_codes():
        client = connect(socket)
        document = _document(client)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.columns import print_table
    from mirage.client.documents import Chain
    from mirage.client.reading import read_all

    chains = _ordered(read_all(Chain, document["chains"]))
    agent = [("Agent", _NO_AGENT)] if _lacks_agent(document, chains) else []
    print_table([("Daemon", _daemon(document)), *agent, ("Slurm", _slurm(document)), ("Chains", _counts(chains))])
    listed = [chain for chain in chains if chain.state not in _QUIET or chain.running is not None]
    if listed:
        show("")
        print_table([("CHAIN", "STATE", "SINCE", "LINKS", "JOBID", "REASON"), *map(_row, listed[:_SHOWN])])
        if len(listed) > _SHOWN:
            show(f"and {len(listed) - _SHOWN} more: mirage chains")
    todo = list(_todo(document, chains))
    if todo:
        show("")
    for line in todo:
        show(f"-> {line}")


def _document(client: Client) -> dict[str, Any]:
    chains = whole(client, "/chains", "chains", limit=1_000)["chains"]
    cluster = client.get("/cluster")
    return {
        "daemon": {"version": client.version(), "since": _since(client)},
        "cluster": {name: cluster[name] for name in _CLUSTER},
        "agent": cluster.get("agent"),
        "sentence": cluster["loop"]["sentence"],
        "chains": chains,
    }


def _since(client: Client) -> str | None:
    """Return the time of the socket, which the daemon creates at its start; ``None`` over the network."""
    try:
        made = Path(client.transport.address.socket).stat().st_mtime if client.transport.address.socket else None
    except OSError:
        return None
    return None if made is None else datetime.fromtimestamp(made, UTC).isoformat()


def _ordered(chains: Sequence[Chain]) -> list[Chain]:
    places = {state: place for place, state in enumerate(_ORDER)}

    def place(chain: Chain) -> tuple[bool, int]:
        lives_on = chain.over and chain.running is not None  # its job takes nodes though nothing follows
        return not chain.rejection, places["starting"] if lives_on else places.get(chain.state, len(_ORDER))

    return sorted(chains, key=place)


def _lacks_agent(document: dict[str, Any], chains: Sequence[Chain]) -> bool:
    return document["agent"] is False and any(not chain.over or chain.running is not None for chain in chains)


def _daemon(document: dict[str, Any]) -> str:
    from mirage.cli.instants import clock, instant_of

    daemon, snapshot = document["daemon"], document["cluster"]["snapshot"]
    since = f", running since {clock(instant_of(daemon['since']))}" if daemon["since"] else ""
    if document["sentence"].startswith(STANDS_BY):
        return f"Mirage {daemon['version']}{since}; {document['sentence']}"
    polled = (
        f"polled the cluster at {clock(instant_of(snapshot))}" if snapshot else "has not polled the cluster yet"
    )
    return f"Mirage {daemon['version']}{since}; {polled}"


def _slurm(document: dict[str, Any]) -> str:
    from mirage.cli.instants import clock, instant_of

    cluster = document["cluster"]
    version = f"Slurm {cluster['slurm_version']}" if cluster["slurm_version"] else "Slurm"
    name = "simulated" if cluster["backend"] == "simulated" else version
    if cluster["stale_since"]:
        return f"{name} has not replied since {clock(instant_of(cluster['stale_since']))}"
    return f"{name} replies" if cluster["snapshot"] else f"{name}: not polled yet"


def _counts(chains: Sequence[Chain]) -> str:
    states = [chain.state for chain in chains]
    return ", ".join(f"{states.count(state)} {state}" for state in _ORDER if state in states) or "none"


def _row(chain: Chain) -> tuple[str, ...]:
    from mirage.cli.chaintables import reason_of
    from mirage.cli.instants import NOTHING, clock

    job = str(chain.running.job_id) if chain.running else NOTHING
    reason = chain.rejection or reason_of(chain)
    return (chain.id, chain.state.upper(), clock(chain.since), str(len(chain.links)), job, reason)


def _todo(document: dict[str, Any], chains: Sequence[Chain]) -> Iterator[str]:
    """What the user can do, most urgent first."""
    if _lacks_agent(document, chains):
        yield "start your agent: mirage agent"
    if document["cluster"]["stale_since"]:
        yield "Mirage submits nothing until Slurm replies: try squeue, then mirage doctor"
    stands_by = document["sentence"].startswith(STANDS_BY)
    if stands_by:
        yield "this daemon accepts no commands; use the machine that leads"
    for chain in chains[:_SHOWN]:
        if chain.rejection and not chain.over:
            yield f"{chain.id}: Slurm rejects the next link; see mirage explain {chain.id}"
        elif chain.state == "paused":
            yield f"{chain.id}: mirage explain {chain.id}; then mirage chain resume {chain.id}"
        elif chain.state == "failed":
            yield f"{chain.id}: mirage chain logs {chain.id}; then submit it again"
        elif chain.state == "down":
            yield f"{chain.id}: mirage explain {chain.id}"
    if not chains and not stands_by:
        yield "create a chain: mirage submit SCRIPT"
