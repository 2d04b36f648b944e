"""The daemon as an object: each method is one endpoint of the REST API, and events are read as they are sent."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from mirage.client.address import TOKEN_VARIABLE, Address, default_address
from mirage.client.documents import (
    Answer,
    Chain,
    ChainPage,
    Event,
    Explanation,
    Predictions,
    QueuedJob,
    QueuePage,
    Replay,
    Tasks,
)
from mirage.client.errors import Refusal
from mirage.client.predictors import ModelAnswer, Predictors, ShadowResults
from mirage.client.records import Records, read, read_all
from mirage.client.transport import Transport

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Iterator, Mapping

    from mirage.client.predictors import ShadowResult


def read_events(lines: Iterable[str], last: str = "") -> Iterator[Event]:
    """Parse by the rules of the HTML standard: an empty line ends an event, unknown fields are ignored.

    ``last`` is the id that holds until the stream names one.
    """
    kind, data = "", list[str]()
    for line in lines:
        if not line:
            if data:
                yield Event(last, kind or "message", _document("\n".join(data)))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                kind = value
            case "data":
                data.append(value)
            case "id":
                last = value


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_QUIET = 60.0
"""Seconds without a heartbeat after which an event stream counts as broken."""


class Client:
    """Client of one daemon; thread-safe, without open connections between calls.

    ``address`` is the path of a socket or a URL; default: ``$MIRAGE_SOCKET``, ``$MIRAGE_URL``, the user's daemon
    or the machine's. A URL needs a ``token`` (default ``$MIRAGE_TOKEN``); ``tls`` replaces the TLS context for
    https. Every method raises ``DaemonUnreachable`` without a daemon and ``Refusal`` if the daemon rejects the
    request.
    """

    def __init__(self, address: str = "", token: str = "", *, tls: ssl.SSLContext | None = None) -> None:
        place = Address.parse(address) if address else default_address()
        self.transport = Transport(
            place, token or ("" if place.socket else os.environ.get(TOKEN_VARIABLE, "")), tls
        )

    # Chains

    def chains(self, *, everybody: bool = False) -> Records[Chain]:
        """Return the caller's chains in order of creation; with ``everybody``, for administrators, those of all
        users."""
        return Records(self.iterate_chains(everybody=everybody))

    def iterate_chains(self, *, everybody: bool = False, page: int = 0) -> Iterator[Chain]:
        """Iterate over chains and read further pages when needed; ``page``: chains per page, 0: the default."""
        for document in self.pages("/chains", all=everybody or None, limit=page or None):
            yield from read(ChainPage, document).chains

    def chain_page(self, *, everybody: bool = False, limit: int = 0, cursor: str | None = None) -> ChainPage:
        """Return one page with the state of the loop; ``cursor`` is ``next`` of the page before."""
        return read(ChainPage, self.get("/chains", all=everybody or None, limit=limit or None, cursor=cursor))

    def chain(self, chain: str) -> Chain:
        """Return one chain by ID, or by name if it belongs to the caller."""
        return read(Chain, self.get(chain_path(chain)))

    def create_chain(self, definition: Mapping[str, Any]) -> Answer:
        """Create a chain, stored when this returns. ``mirage submit --dry-run --json`` shows a definition."""
        return read(Answer, self.post("/chains", definition))

    def pause(self, chain: str) -> Answer:
        """Submit no further link until the chain is resumed; pending and running links stay."""
        return self._command(chain, "pause")

    def resume(self, chain: str) -> Answer:
        """Resume a paused chain."""
        return self._command(chain, "resume")

    def cancel(self, chain: str) -> Answer:
        """Cancel a chain with its pending and running links."""
        return self._command(chain, "cancel")

    def explain(self, chain: str, limit: int = 20) -> Explanation:
        """Return the last decisions about a chain and their reasons."""
        return read(Explanation, self.get(f"{chain_path(chain)}/explain", limit=limit))

    def timeline(self, chain: str, limit: int = 500) -> Any:
        """Return links, handovers and forecasts of a chain over time, as the plain document."""
        return self.get(f"{chain_path(chain)}/timeline", limit=limit)

    def tasks(self, chain: str) -> Tasks:
        """Return the states of the tasks in a chain that was submitted with ``--tasks-state``."""
        return read(Tasks, self.get(f"{chain_path(chain)}/tasks"))

    # Queue and predictions

    def predictions(
        self, *, partition: str = "", nodes: int = 1, limit: str | int = "", **more: str | None
    ) -> Predictions:
        """Return when such a job would start if submitted now, by every predictor, with its past error.

        ``limit``: seconds, or in the format of Slurm's ``--time``; ``more``: gres, account, qos, predictor.
        """
        shape = {"partition": partition or None, "nodes": nodes, "limit": limit or None, **more}
        return read(Predictions, self.get("/predictions", **shape))

    def queue(self, *, user: str = "", partition: str = "", state: str = "") -> Records[QueuedJob]:
        """Return pending and running jobs, ordered by job ID; ``user`` may be ``me``."""
        wanted = {"user": user or None, "partition": partition or None, "state": state or None}
        return Records(self._jobs("/queue", wanted))

    def pending_jobs(self) -> Records[QueuedJob]:
        """Return the caller's pending jobs with predicted start times."""
        return Records(self._jobs("/jobs", {}))

    def cluster(self) -> Any:
        """Return partitions, nodes and jobs by state, as the plain document."""
        return self.get("/cluster")

    def predictors(self) -> Predictors:
        """Return the predictors with their roles and past errors, and the model registry."""
        return read(Predictors, self.get("/predictors"))

    def shadow_results(self, span: int | None = None) -> Records[ShadowResult]:
        """Return predictors compared on real handovers, by partition; ``span``: period in seconds (30 days)."""
        return read(ShadowResults, self.get("/predictors/shadow", span=span)).predictors

    def promote(self, name: str, version: str, *, force: bool = False) -> ModelAnswer:
        """Promote a registered version; for administrators. ``force``: even if it was worse in shadow."""
        wish = {"version": version, "force": force}
        return read(ModelAnswer, self.post(f"{predictor_path(name)}/promote", wish))

    def roll_back(self, name: str) -> ModelAnswer:
        """Return to the version that was active before; for administrators."""
        return read(ModelAnswer, self.post(f"{predictor_path(name)}/rollback"))

    def replays(self) -> Records[Replay]:
        """Return the daemon's replays with their progress, newest first."""
        return Records(read_all(Replay, self.get("/replays")["replays"]))

    def replay(self, replay: str) -> Replay:
        """Return one replay, with its result when it is done."""
        return read(Replay, self.get(_below("/replays", replay)))

    def start_replay(self, trace: str, start: str, end: str, **more: Any) -> Replay:
        """Start a replay of a trace that the daemon offers, or of ``generated:PRESET:SEED``.

        ``more``: predictors, cluster, nodes, limit, every, tick, links, partition (durations in seconds).
        """
        return read(Replay, self.post("/replays", {"trace": trace, "start": start, "end": end, **more}))

    def delete_replay(self, replay: str) -> None:
        """Delete a replay; a running one is stopped."""
        self.transport.ask("DELETE", _below("/replays", replay))

    # Events and raw requests

    def events(self, after: str = "") -> Iterator[Event]:
        """Yield events of the chains that the caller may see, until the daemon stops.

        ``after``: ID of the last known event; the missed events come first.
        """
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        return read_events(self.transport.lines("/events", headers, timeout=_QUIET), after)

    def version(self) -> str:
        """Return the version of the daemon."""
        return str(self.transport.ask_root("/version")["version"])

    def get(self, path: str, **query: object) -> Any:
        """Read a document at a path below ``/api/v1``; query parameters that are ``None`` are left out."""
        given = {name: _spelled(value) for name, value in query.items() if value is not None}
        return self.transport.ask("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, document: object = None) -> Any:
        """Send a request to a path below ``/api/v1``, with an idempotency key that makes retries safe."""
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self.transport.ask("POST", path, document, headers=headers)

    def patch(self, path: str, document: object) -> Any:
        """Change a document at a path below ``/api/v1``."""
        return self.transport.ask("PATCH", path, document)

    def pages(self, path: str, **query: object) -> Iterator[Any]:
        """Yield all pages of a paged list."""
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
    """Return the path of a chain, by ID or name. Raises ``Refusal`` for a name that cannot be in a path."""
    return _below("/chains", chain)


def predictor_path(name: str) -> str:
    """Return the path of a predictor. Raises ``Refusal`` for a name that cannot be in a path."""
    return _below("/predictors", name)


def _below(path: str, name: str) -> str:
    why = ""
    if "/" in name or name in (".", ".."):
        why = "for a name with a slash, use the ID"
    elif not name:
        why = "the name is empty"
    elif not name.isprintable():  # also false for text that is not UTF-8
        why = "names are printable text in UTF-8"
    if why:
        raise Refusal(404, f"no {name[:80]!r} in {path}: {why}")
    return f"{path}/{quote(name, safe='')}"


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
