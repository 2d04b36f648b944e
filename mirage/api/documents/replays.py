"""Replays: request, progress and result."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from mirage.api.conventions.described import Described, SentDocument
from mirage.api.conventions.parameters import SHOWN
from mirage.api.documents.instants import instant
from mirage.domain.errors import MirageError
from mirage.domain.instants import read_instant
from mirage.predictors.naming import PATTERN
from mirage.predictors.registry import build_predictor, is_built_in
from mirage.replay.plan import MOST_EPISODES
from mirage.replay.runs import RunState, Wish

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirage.replay.runs import Run

_INSTANT = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?$|^\d{1,12}$"


def _readable(text: str) -> str:
    """Raise ``ValueError`` for an invalid time."""
    try:
        read_instant(text)
    except MirageError as error:
        raise ValueError(str(error)) from None
    return text


def _buildable(name: str) -> str:
    """Raise ``ValueError`` if a built-in predictor rejects its parameter."""
    try:
        if is_built_in(name.partition(":")[0]):
            build_predictor(name)
    except MirageError as error:
        raise ValueError(str(error)) from None
    return name


_Instant = Annotated[str, Field(pattern=_INSTANT), AfterValidator(_readable)]
_Predictor = Annotated[str, Field(pattern=f"^{PATTERN}$"), AfterValidator(_buildable)]
_Name = Annotated[str, Field(max_length=140), SHOWN]


class ReplayRequest(SentDocument):
    """Request of a replay: trace, period, predictors and chain."""

    trace: _Name
    """An available trace file, or ``generated:PRESET:SEED``."""
    start: _Instant
    """Start of the first episode: a date, a date and time (UTC), or epoch seconds."""
    end: _Instant
    """Latest start of an episode, in the same notation."""
    predictors: Annotated[list[_Predictor], Field(min_length=1, max_length=12)] = Field(
        default=["reactive", "quantile"]
    )
    """Predictors to compare; each is simulated on every episode."""
    cluster: _Name = ""
    """An available cluster file or a preset; empty: the daemon's cluster."""
    nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Nodes per link."""
    limit: Annotated[int, Field(ge=60, le=31_622_400)] = 172_800
    """Time limit per link, in seconds."""
    every: Annotated[int, Field(ge=600, le=31_622_400)] = 14_400
    """Seconds between episode starts."""
    tick: Annotated[int, Field(ge=60, le=86_400)] = 600
    """Seconds between decisions."""
    links: Annotated[int, Field(ge=2, le=100)] = 2
    """Links per episode."""
    partition: Annotated[str, Field(max_length=64, pattern="^[A-Za-z0-9_.+-]*$")] = ""
    """Partition; empty: the cluster's default."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if read_instant(self.start) > read_instant(self.end):
            raise ValueError("end: is before start")
        if (read_instant(self.end) - read_instant(self.start)) // self.every >= MOST_EPISODES:
            raise ValueError(f"every: more than {MOST_EPISODES} episodes between start and end")
        return self


class ReplayDocument(Described):
    """A replay and its progress."""

    id: str
    """Replay ID."""
    by: str
    """User who requested it."""
    state: RunState
    """State of the replay."""
    created: str | None
    """Time of the request."""
    started: str | None
    """Start time; ``null``: not started."""
    ended: str | None
    """End time; ``null``: not ended."""
    problem: str
    """Reason of a failure; otherwise empty."""
    done: int
    """Episodes simulated."""
    total: int | None
    """Episodes in all; ``null``: not yet known."""
    request: ReplayRequest
    """The request."""


class ReplayResult(ReplayDocument):
    """A replay with its result."""

    result: dict[str, Any] | None
    """Result, as in ``mirage replay --json``; ``null`` until done."""


class ReplayList(Described):
    """Stored replays and available files."""

    files: list[str]
    """Available trace and cluster files."""
    replays: list[ReplayDocument]
    """Replays of all users, newest first."""


def wish_of(request: ReplayRequest) -> Wish:
    """Return the replay specification."""
    return Wish(**request.model_dump() | {"predictors": tuple(request.predictors)})


def replay_document(run: Run) -> ReplayDocument:
    """Return the replay without its result."""
    return ReplayDocument(**_fields(run))


def replay_result(run: Run, result: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a ``ReplayResult`` as JSON, in parts; ``result``: its document, empty if there is no result."""
    yield replay_document(run).model_dump_json().encode().removesuffix(b"}") + b',"result":'
    empty = True
    for part in result:
        empty = False
        yield part
    yield b"null}" if empty else b"}"


def _fields(run: Run) -> dict[str, Any]:
    return {
        "id": run.run_id,
        "by": run.by,
        "state": run.state,
        "created": instant(run.created),
        "started": instant(run.started),
        "ended": instant(run.ended),
        "problem": run.problem,
        "done": run.done,
        "total": run.total or None,
        # An old request is shown even if it would be invalid today.
        "request": ReplayRequest.model_construct(**asdict(run.wish) | {"predictors": list(run.wish.predictors)}),
    }
