"""Replays: what is asked for, how far it is, what came of it."""

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
    """Raises ``ValueError`` where it is no time of a trace."""
    try:
        read_instant(text)
    except MirageError as error:
        raise ValueError(str(error)) from None
    return text


def _buildable(name: str) -> str:
    """Raises ``ValueError`` where a predictor that is part of Mirage does not take its parameter."""
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
    """What to replay."""

    trace: _Name
    """A file that is offered, or ``generated:PRESET:SEED``."""
    start: _Instant
    """The first episode: a date, a date and time (UTC), or seconds since the epoch."""
    end: _Instant
    """No episode starts after this."""
    predictors: Annotated[list[_Predictor], Field(min_length=1, max_length=12)] = Field(
        default=["reactive", "quantile"]
    )
    """Who is to decide; each plays every episode."""
    cluster: _Name = ""
    """A file that is offered, or a preset; empty: the daemon's own cluster."""
    nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Of each link."""
    limit: Annotated[int, Field(ge=60, le=31_622_400)] = 172_800
    """Of each link, seconds."""
    every: Annotated[int, Field(ge=600, le=31_622_400)] = 14_400
    """Between episodes, seconds."""
    tick: Annotated[int, Field(ge=60, le=86_400)] = 600
    """Between decisions, seconds."""
    links: Annotated[int, Field(ge=2, le=100)] = 2
    """Of each episode."""
    partition: Annotated[str, Field(max_length=64, pattern="^[A-Za-z0-9_.+-]*$")] = ""
    """Empty: the cluster's default one."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if read_instant(self.start) > read_instant(self.end):
            raise ValueError("end: is before start")
        if (read_instant(self.end) - read_instant(self.start)) // self.every >= MOST_EPISODES:
            raise ValueError(f"every: more than {MOST_EPISODES} episodes between start and end")
        return self


class ReplayDocument(Described):
    """One run."""

    id: str
    """Names it."""
    by: str
    """Who asked for it."""
    state: RunState
    """How far it is."""
    created: str | None
    """When it was asked for."""
    started: str | None
    """When its turn came."""
    ended: str | None
    """When it was done, failed or was ended."""
    problem: str
    """Why it failed."""
    done: int
    """Episodes played."""
    total: int | None
    """Episodes to be played; ``null``: not known yet."""
    request: ReplayRequest
    """What was asked for."""


class ReplayResult(ReplayDocument):
    """One run with what came of it."""

    result: dict[str, Any] | None
    """As ``mirage replay --json`` writes it; ``null`` until it is done."""


class ReplayList(Described):
    """Runs that are kept, newest first."""

    files: list[str]
    """Traces and cluster files that are offered."""
    replays: list[ReplayDocument]
    """Everybody's."""


def wish_of(request: ReplayRequest) -> Wish:
    """What the daemon is to play."""
    return Wish(**request.model_dump() | {"predictors": tuple(request.predictors)})


def replay_document(run: Run) -> ReplayDocument:
    """How far it is."""
    return ReplayDocument(**_fields(run))


def replay_result(run: Run, result: Iterable[bytes]) -> Iterator[bytes]:
    """A ``ReplayResult``, part by part; ``result`` is its document, empty where there is none."""
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
        # One that was asked for long ago is shown whatever would be rejected today.
        "request": ReplayRequest.model_construct(**asdict(run.wish) | {"predictors": list(run.wish.predictors)}),
    }
