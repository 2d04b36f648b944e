"""``/api/v1/chains``: create, look at and command chains. Everybody sees and touches only their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from mirage.api.access.auditing import note
from mirage.api.access.dependencies import Operator, Reader
from mirage.api.conventions.body import read_body
from mirage.api.conventions.bounds import LARGEST
from mirage.api.conventions.keeping import KeptBodies
from mirage.api.conventions.pages import Cursor, Limit, next_link
from mirage.api.conventions.tags import UNCHANGED, tagged
from mirage.api.documents.chains import (
    AnswerDocument,
    ChainDocument,
    ChainList,
    Explanation,
    chain_document,
    chain_list,
    entry_document,
)
from mirage.api.documents.definition import read_chain
from mirage.api.routes.ownership import own_chain
from mirage.api.routes.petitioner import Petitioner
from mirage.api.routes.selection import Wanted, page_of
from mirage.domain.command import AddChain, CancelChain, PauseChain, ResumeChain
from mirage.domain.errors import NotPermitted, UnknownChain

if TYPE_CHECKING:
    from mirage.api.conventions.ready import ReadyAnswers
    from mirage.api.port import ApiService

_COMMANDS: dict[str, type[PauseChain] | type[ResumeChain] | type[CancelChain]] = {
    "pause": PauseChain,
    "resume": ResumeChain,
    "cancel": CancelChain,
}


def chain_routes(service: ApiService, ready: ReadyAnswers) -> APIRouter:
    """The addresses about chains."""
    routes = APIRouter(prefix="/chains", tags=["chains"])
    _add_lists(routes, service, ready)
    _add_commands(routes, service)
    _add_details(routes, service)
    return routes


def _add_lists(routes: APIRouter, service: ApiService, ready: ReadyAnswers) -> None:
    kept = KeptBodies()

    @routes.get("", response_model=ChainList, responses=UNCHANGED)
    async def list_chains(
        caller: Reader,
        request: Request,
        wanted: Wanted,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Response:
        """One's own chains in order of creation; ``all``: everybody's, for administrators."""
        if wanted.every and not caller.is_admin:
            raise NotPermitted(f"{caller.name} is no administrator of this daemon and sees only own chains")
        status = service.status()
        owner = None if wanted.every else caller.name

        def make() -> tuple[bytes, str | None]:
            page = page_of(wanted.of(status.chains, owner), limit, cursor)
            return chain_list(page, status).model_dump_json().encode(), page.further

        found = await kept.get(status, (owner, wanted, limit, cursor), make)
        headers = {"Link": next_link(request, found.further)} if found.further else {}
        return ready.keep(request, caller, status, tagged(request, found.body, found.tag, headers))


def _add_commands(routes: APIRouter, service: ApiService) -> None:
    petitioner = Petitioner(service)

    @routes.post("", status_code=201)
    async def create_chain(caller: Operator, request: Request) -> AnswerDocument:
        """A new chain; answered once it is stored."""
        body = await read_body(request, LARGEST)
        chain = await run_in_threadpool(read_chain, body, caller, service.chain_defaults)
        note(request.scope, f"create chain for {chain.owner}", chain.chain_id)
        return await petitioner.ask(AddChain(chain, caller.name), chain.chain_id)

    @routes.post("/{chain_id}/{command}")
    async def command_chain(caller: Operator, request: Request, chain_id: str, command: str) -> AnswerDocument:
        """``pause``, ``resume`` or ``cancel``; answered once it is obeyed and stored."""
        if command not in _COMMANDS:
            raise UnknownChain(f"a chain can be told to {', '.join(_COMMANDS)}, not to {command[:40]}")
        record = own_chain(chain_id, caller, service)
        note(request.scope, command, record.chain.chain_id)
        return await petitioner.ask(_COMMANDS[command](record.chain.chain_id, caller.name), record.chain.chain_id)


def _add_details(routes: APIRouter, service: ApiService) -> None:
    @routes.get("/{chain_id}", response_model=ChainDocument, responses=UNCHANGED)
    async def show_chain(caller: Reader, request: Request, chain_id: str) -> Response:
        """One chain with its links."""
        document = chain_document(own_chain(chain_id, caller, service), service.status())
        return tagged(request, document.model_dump_json().encode())

    @routes.get("/{chain_id}/explain")
    def explain_chain(
        caller: Reader, chain_id: str, limit: Annotated[int, Query(ge=1, le=1000)] = 20
    ) -> Explanation:
        """The last decisions about a chain and what led to them, newest first."""
        record = own_chain(chain_id, caller, service)
        entries = service.entries(record.chain.chain_id, limit)
        return Explanation(
            id=record.chain.chain_id,
            sentence=service.status().explained.get(record.chain.chain_id, ""),
            entries=[entry_document(entry) for entry in entries],
        )
