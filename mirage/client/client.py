"""The daemon as an object: each method is one address of the API."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from mirage.client.address import TOKEN_VARIABLE, Address, default_address
from mirage.client.documents import (
    Answer,
    Chain,
    ChainPage,
    Explanation,
    Predictions,
    QueuedJob,
    QueuePage,
    Replay,
    Tasks,
)
from mirage.client.errors import Refusal
from mirage.client.events import read_events
from mirage.client.predictors import ModelAnswer, Predictors, ShadowResults
from mirage.client.reading import read, read_all
from mirage.client.records import Records
from mirage.client.transport import Transport

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping

    from mirage.client.documents import Event
    from mirage.client.predictors import ShadowResult

_QUIET = 60.0
"""Seconds without even a heartbeat after which a stream of events counts as cut."""


class Client:
    """Asks one daemon; safe to share between threads, holds no connection between two calls.

    ``address`` is a socket's path or a URL; not given: ``$MIRAGE_SOCKET``, ``$MIRAGE_URL``, one's own daemon or
    the machine's. Over a URL a ``token`` says who asks (``$MIRAGE_TOKEN``); ``tls`` is a context of one's own for
    https. Every method raises ``DaemonUnreachable`` where nobody answers and ``Refusal`` where the daemon says no.
    """

    def __init__(self, address: str = "", token: str = "", *, tls: ssl.SSLContext | None = None) -> None:
        place = Address.parse(address) if address else default_address()
        self.transport = Transport(
            place, token or ("" if place.socket else os.environ.get(TOKEN_VARIABLE, "")), tls
        )

    # Chains

    def chains(self, *, everybody: bool = False) -> Records[Chain]:
        """One's own chains in order of creation; all users's, for administrators."""
        return Records(self.iterate_chains(everybody=everybody))

    def iterate_chains(self, *, everybody: bool = False, page: int = 0) -> Iterator[Chain]:
        """The same, page by page as one goes; ``page``: chains at a time, 0: as many as the daemon likes."""
        for document in self.pages("/chains", all=everybody or None, limit=page or None):
            yield from read(ChainPage, document).chains

    def chain_page(self, *, everybody: bool = False, limit: int = 0, cursor: str | None = None) -> ChainPage:
        """One page, with the state of the loop; ``cursor`` is the ``next`` of the page before."""
        return read(ChainPage, self.get("/chains", all=everybody or None, limit=limit or None, cursor=cursor))

    def chain(self, chain: str) -> Chain:
        """One chain, by its id or by its name where that is yours."""
        return read(Chain, self.get(chain_path(chain)))

    def create_chain(self, definition: Mapping[str, Any]) -> Answer:
        """A new chain, stored when this returns. ``mirage submit --dry-run --json`` shows what one looks like."""
        return read(Answer, self.post("/chains", definition))

    def pause(self, chain: str) -> Answer:
        """Submit no further link until resumed; those on the cluster stay."""
        return self._command(chain, "pause")

    def resume(self, chain: str) -> Answer:
        """Continue with a chain that is paused."""
        return self._command(chain, "resume")

    def cancel(self, chain: str) -> Answer:
        """End a chain, its running links too."""
        return self._command(chain, "cancel")

    def explain(self, chain: str, limit: int = 20) -> Explanation:
        """The last decisions about a chain and what led to them."""
        return read(Explanation, self.get(f"{chain_path(chain)}/explain", limit=limit))

    def timeline(self, chain: str, limit: int = 500) -> Any:
        """A chain over time: links, handovers, what was predicted; the document as it comes."""
        return self.get(f"{chain_path(chain)}/timeline", limit=limit)

    def tasks(self, chain: str) -> Tasks:
        """How the tasks within a chain's links stand, where it was submitted with ``--tasks-state``."""
        return read(Tasks, self.get(f"{chain_path(chain)}/tasks"))

    # The queue, and what may come of it

    def predictions(
        self, *, partition: str = "", nodes: int = 1, limit: str | int = "", **more: str | None
    ) -> Predictions:
        """When a job of this shape would start if submitted now, by every predictor, each with its past error.

        ``limit``: seconds, or as Slurm's ``--time``; ``more``: gres, account, qos, predictor.
        """
        shape = {"partition": partition or None, "nodes": nodes, "limit": limit or None, **more}
        return read(Predictions, self.get("/predictions", **shape))

    def queue(self, *, user: str = "", partition: str = "", state: str = "") -> Records[QueuedJob]:
        """Pending and running jobs by their numbers; ``user`` may be ``me``."""
        wanted = {"user": user or None, "partition": partition or None, "state": state or None}
        return Records(self._jobs("/queue", wanted))

    def pending_jobs(self) -> Records[QueuedJob]:
        """One's own pending jobs with when they may start."""
        return Records(self._jobs("/jobs", {}))

    def cluster(self) -> Any:
        """Partitions, nodes and jobs by state; the document as it comes."""
        return self.get("/cluster")

    def predictors(self) -> Predictors:
        """Which predictors there are, which are at work and how good they have been, and the models kept."""
        return read(Predictors, self.get("/predictors"))

    def shadow_results(self, span: int | None = None) -> Records[ShadowResult]:
        """Predictors compared on real handovers, by partition; ``span``: how far back, in seconds (30 days)."""
        return read(ShadowResults, self.get("/predictors/shadow", span=span)).predictors

    def promote(self, name: str, version: str, *, force: bool = False) -> ModelAnswer:
        """Put a kept version of a model in use; for administrators. ``force``: also if it did worse in shadow."""
        wish = {"version": version, "force": force}
        return read(ModelAnswer, self.post(f"{predictor_path(name)}/promote", wish))

    def roll_back(self, name: str) -> ModelAnswer:
        """Put the version of a model in use again that was before; for administrators."""
        return read(ModelAnswer, self.post(f"{predictor_path(name)}/rollback"))

    def replays(self) -> Records[Replay]:
        """Replays that the daemon keeps, newest first, and how far they are."""
        return Records(read_all(Replay, self.get("/replays")["replays"]))

    def replay(self, replay: str) -> Replay:
        """One of them, with its result once it is done."""
        return read(Replay, self.get(_below("/replays", replay)))

    def start_replay(self, trace: str, start: str, end: str, **more: Any) -> Replay:
        """Ask for a replay of a trace that the daemon offers, or of ``generated:PRESET:SEED``.

        ``more``: predictors, cluster, nodes, limit, every, tick, links, partition (durations in seconds).
        """
        return read(Replay, self.post("/replays", {"trace": trace, "start": start, "end": end, **more}))

    def delete_replay(self, replay: str) -> None:
        """Forget a replay; one that runs is ended."""
        self.transport.ask("DELETE", _below("/replays", replay))

    # What happens, and what the process is

    def events(self, after: str = "") -> Iterator[Event]:
        """What happens to chains that one may see, as it happens; ends when the daemon does.

        ``after``: the id of the last event known; those since then come first.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        return read_events(self.transport.lines("/events", headers, timeout=_QUIET), after)

    def version(self) -> str:
        """The daemon's."""
        return str(self.transport.ask_root("/version")["version"])

    def get(self, path: str, **query: object) -> Any:
        """The document at any address below ``/api/v1``; what is ``None`` is not asked for."""
        given = {name: _spelled(value) for name, value in query.items() if value is not None}
        return self.transport.ask("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, document: object = None) -> Any:
        """Ask for something at any address below ``/api/v1``; each call has a key that makes it safe to repeat."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self.transport.ask("POST", path, document, headers=headers)

    def patch(self, path: str, document: object) -> Any:
        """Change something at any address below ``/api/v1``."""
        return self.transport.ask("PATCH", path, document)

    def pages(self, path: str, **query: object) -> Iterator[Any]:
        """The documents at an address that answers page by page; each begins where the one before says."""
        cursor: object = None
        while True:
            document = self.get(path, **query, cursor=cursor)
            yield document
            cursor = document.get("next") if isinstance(document, dict) else None
            if cursor is None:
                return

    def _jobs(self, path: str, wanted: Mapping[str, object]) -> Iterator[QueuedJob]:
        for document in self.pages(path, **wanted):
            yield from read(QueuePage, document).jobs

    def _command(self, chain: str, command: str) -> Answer:
        return read(Answer, self.post(f"{chain_path(chain)}/{command}"))


def chain_path(chain: str) -> str:
    """Of one chain, by id or name. Raises ``Refusal`` for what can be no part of a path."""
    return _below("/chains", chain)


def predictor_path(name: str) -> str:
    """Of one predictor. Raises ``Refusal`` for what can be no part of a path."""
    return _below("/predictors", name)


def _below(path: str, name: str) -> str:
    why = ""
    if "/" in name or name in (".", ".."):
        why = "a name with a slash is asked for by its id"
    elif not name:
        why = "the name is empty"
    elif not name.isprintable():  # nor what is no UTF-8
        why = "names are printable text in UTF-8"
    if why:
        raise Refusal(404, f"there is no {name[:80]!r} in {path}: {why}")
    return f"{path}/{quote(name, safe='')}"


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
