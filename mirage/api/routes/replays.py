"""``/api/v1/replays``: simulations of submission policies on a trace: request, progress and result."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Self

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AfterValidator, Field, model_validator
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.dependencies import Operator, Reader
from mirage.api.conventions.documents import SHOWN, Described, SentDocument, instant
from mirage.api.conventions.threads import ThreadRoute, run_in_thread
from mirage.domain.bounds import read_instant
from mirage.domain.errors import MirageError, NotPermitted
from mirage.predictors.members import PATTERN
from mirage.predictors.registry import build_predictor, is_built_in
from mirage.replay.plan import MOST_EPISODES
from mirage.replay.runs import ReplaySpec, RunState, TooManyRuns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.replay.runs import ReplayJob, ReplayRuns

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


class ReplayResultDocument(ReplayDocument):
    """A replay with its result."""

    result: dict[str, Any] | None
    """Result, as in ``mirage replay --json``; ``null`` until done."""


class ReplayList(Described):
    """Stored replays and available files."""

    files: list[str]
    """Available trace and cluster files."""
    replays: list[ReplayDocument]
    """Replays of all users, newest first."""


def wish_of(request: ReplayRequest) -> ReplaySpec:
    """Return the replay specification."""
    return ReplaySpec(**request.model_dump() | {"predictors": tuple(request.predictors)})


def replay_document(run: ReplayJob) -> ReplayDocument:
    """Return the replay without its result."""
    return ReplayDocument(**_fields(run))


def replay_result(run: ReplayJob, result: Iterable[bytes]) -> Iterator[bytes]:
    """Yield a ``ReplayResultDocument`` as JSON, in parts; ``result``: its document, empty if there is none."""
    yield replay_document(run).model_dump_json().encode().removesuffix(b"}") + b',"result":'
    empty = True
    for part in result:
        empty = False
        yield part
    yield b"null}" if empty else b"}"


def _fields(run: ReplayJob) -> dict[str, Any]:
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


_PART = 256 << 10
RunId = Annotated[str, Path(pattern="^[0-9a-f]{12}$")]


def replay_routes(service: ApiService) -> APIRouter:
    """Return the routes of replays."""
    routes = APIRouter(route_class=ThreadRoute, prefix="/replays", tags=["replays"])

    @routes.get("", summary="Replays")
    def list_replays(caller: Reader) -> ReplayList:
        """List the caller's replays (administrators: all), newest first, and the available files."""
        runs = _runs(service)
        shown = [replay_document(run) for run in reversed(runs.all()) if caller.may_touch(run.by)]
        return ReplayList(files=list(runs.files()), replays=shown)

    @routes.post("", status_code=202, summary="Start a replay")
    def start_replay(caller: Operator, request: Request, wanted: ReplayRequest) -> ReplayDocument:
        """Queue a replay. Replays run one at a time, at the lowest priority; query the result later."""
        try:
            run = _runs(service).submit(wish_of(wanted), caller.name)
        except TooManyRuns as error:
            raise HTTPException(429, str(error)) from None
        note(request.scope, f"start replay {run.run_id}")
        return replay_document(run)

    @routes.get("/{replay_id}", summary="One replay and its result", response_model=ReplayResultDocument)
    async def show_replay(caller: Reader, request: Request, replay_id: RunId) -> Response:
        """Return the progress of a replay; once done, the document of `mirage replay --json`."""
        runs = _runs(service)
        run, file = await run_in_thread(caller.name, _opened, runs, replay_id, caller)
        if file is not None:
            service.gate.charge(caller, request, os.fstat(file.fileno()).st_size)
        return StreamingResponse(replay_result(run, _parts(file)), media_type="application/json")

    @routes.delete("/{replay_id}", status_code=204, summary="Delete a replay")
    def delete_replay(caller: Operator, request: Request, replay_id: RunId) -> Response:
        """Delete one of the caller's replays (administrators: any); a running one is stopped."""
        runs = _runs(service)
        run = _found(runs, replay_id, caller)
        note(request.scope, f"delete replay {replay_id} of {run.by}")
        runs.remove(replay_id)
        return Response(status_code=204)

    return routes


def _runs(service: ApiService) -> ReplayRuns:
    if service.replays is None:
        raise NotPermitted("replays are off: replays.most of this daemon is 0")
    return service.replays


def _opened(runs: ReplayRuns, replay_id: str, caller: Caller) -> tuple[ReplayJob, BinaryIO | None]:
    run = _found(runs, replay_id, caller)
    return run, runs.open_result(run)


def _parts(file: BinaryIO | None) -> Iterator[bytes]:
    if file is None:
        return
    with file:
        while part := file.read(_PART):
            yield part


def _found(runs: ReplayRuns, replay_id: str, caller: Caller) -> ReplayJob:
    run = runs.of(replay_id)
    if run is None or not caller.may_touch(run.by):
        raise HTTPException(404, f"there is no replay {replay_id}")
    return run
