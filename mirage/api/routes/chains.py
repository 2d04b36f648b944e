"""``/api/v1/chains``: create, look at and command chains. Everybody sees and touches only their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from mirage.api.access.caller import Operator, Reader
from mirage.api.conventions.body import read_body
from mirage.api.documents.chains import (
    AnswerDocument,
    ChainDocument,
    ChainList,
    Explanation,
    chain_document,
    entry_document,
    instant,
)
from mirage.api.documents.definition import read_chain
from mirage.api.routes.ownership import own_chain
from mirage.api.routes.petitioner import Petitioner
from mirage.domain.command import AddChain, CancelChain, PauseChain, ResumeChain
from mirage.domain.errors import NotPermitted, UnknownChain

if TYPE_CHECKING:
    from mirage.api.port import ApiService

LARGEST = 8 << 20
"""Bytes of a chain's document: a script and an environment, with room to spare."""

_COMMANDS: dict[str, type[PauseChain] | type[ResumeChain] | type[CancelChain]] = {
    "pause": PauseChain,
    "resume": ResumeChain,
    "cancel": CancelChain,
}


def chain_routes(service: ApiService) -> APIRouter:
    """The addresses about chains."""
    routes = APIRouter(prefix="/chains", tags=["chains"])
    petitioner = Petitioner(service)

    @routes.get("")
    def list_chains(caller: Reader, every: Annotated[bool, Query(alias="all")] = False) -> ChainList:
        """One's own chains; ``all``: everybody's, for administrators."""
        if every and not caller.is_admin:
            raise NotPermitted(f"{caller.name} is no administrator of this daemon and sees only own chains")
        status = service.status()
        seen = [record for record in status.chains if every or record.chain.owner == caller.name]
        return ChainList(
            time=instant(status.time),
            sentence=status.sentence,
            stale_since=instant(status.stale_since),
            chains=[chain_document(record, status) for record in seen],
        )

    @routes.post("", status_code=201)
    async def create_chain(caller: Operator, request: Request) -> AnswerDocument:
        """A new chain; answered once it is stored."""
        body = await read_body(request, LARGEST)
        chain = await run_in_threadpool(read_chain, body, caller, service.chain_defaults)
        return await petitioner.ask(AddChain(chain, caller.name), chain.chain_id)

    @routes.get("/{chain_id}")
    def show_chain(caller: Reader, chain_id: str) -> ChainDocument:
        """One chain with its links."""
        return chain_document(own_chain(chain_id, caller, service), service.status())

    @routes.post("/{chain_id}/{command}")
    async def command_chain(caller: Operator, chain_id: str, command: str) -> AnswerDocument:
        """``pause``, ``resume`` or ``cancel``; answered once it is obeyed and stored."""
        if command not in _COMMANDS:
            raise UnknownChain(f"a chain can be told to {', '.join(_COMMANDS)}, not to {command[:40]}")
        record = own_chain(chain_id, caller, service)
        return await petitioner.ask(_COMMANDS[command](record.chain.chain_id, caller.name), record.chain.chain_id)

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

    return routes
