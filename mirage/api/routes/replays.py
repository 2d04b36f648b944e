"""``/api/v1/replays``: simulations of submission policies on a trace."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, BinaryIO

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.dependencies import Operator, Reader
from mirage.api.conventions.threads import ThreadRoute, run_in_thread
from mirage.api.documents.replays import (
    ReplayDocument,
    ReplayList,
    ReplayRequest,
    ReplayResult,
    replay_document,
    replay_result,
    wish_of,
)
from mirage.domain.errors import NotPermitted
from mirage.replay.runs import TooManyRuns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.api.access.caller import Caller
    from mirage.api.port import ApiService
    from mirage.replay.runs import ReplayRuns, Run

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

    @routes.get("/{replay_id}", summary="One replay and its result", response_model=ReplayResult)
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


def _opened(runs: ReplayRuns, replay_id: str, caller: Caller) -> tuple[Run, BinaryIO | None]:
    run = _found(runs, replay_id, caller)
    return run, runs.open_result(run)


def _parts(file: BinaryIO | None) -> Iterator[bytes]:
    if file is None:
        return
    with file:
        while part := file.read(_PART):
            yield part


def _found(runs: ReplayRuns, replay_id: str, caller: Caller) -> Run:
    run = runs.of(replay_id)
    if run is None or not caller.may_touch(run.by):
        raise HTTPException(404, f"there is no replay {replay_id}")
    return run
