"""Commands to the loop, from the server's event loop, and what the next cycle made of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mirage.api.access.concurrency import active_request
from mirage.api.conventions.problems import Busy
from mirage.api.documents.chains import AnswerDocument, ChainDocument, chain_document

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mirage.api.port import ApiService
    from mirage.domain.chain import ChainId
    from mirage.domain.command import Command

_LOOK = 0.05
_SETTLE = 5.0
"""Seconds that an answer waits for the cycle to end, so that whoever looks next sees what was done."""


class Petitioner:
    """Puts commands before the loop and waits for the answer."""

    def __init__(self, service: ApiService) -> None:
        self._service = service

    async def ask(self, command: Command, chain_id: ChainId) -> AnswerDocument:
        """Executed and stored when it returns. Raises ``MirageError``, ``Busy`` and ``ClientDisconnect``."""
        sentence, cycles = await self._answer(command)
        return AnswerDocument(id=chain_id, sentence=sentence, chain=await self._settled(chain_id, cycles))

    async def tell(self, command: Command) -> str:
        """The sentence, once it is executed and stored. Raises as ``ask`` does."""
        sentence, _ = await self._answer(command)
        return sentence

    async def _answer(self, command: Command) -> tuple[str, int]:
        """What the loop says, and how many cycles had ended when it did.

        Where the client leaves, or the loop takes too long, the command is withdrawn. One that the loop has taken
        already is waited for all the same, so that audit and ``Idempotency-Key`` know what became of it.
        """
        loop, presence, ended = asyncio.get_running_loop(), active_request().presence, list[int]()
        told, patience = asyncio.Event(), self._service.patience
        promise = self._service.ask(command)

        def answered(_: Future[str]) -> None:
            if not promise.cancelled():
                ended.append(self._service.status().cycles)
                if not loop.is_closed():
                    loop.call_soon_threadsafe(told.set)

        promise.add_done_callback(answered)
        presence.watch(told.set)
        try:
            async with asyncio.timeout(patience):
                await told.wait()
                while not ended and not promise.cancel():
                    told.clear()
                    await told.wait()
        except TimeoutError:
            if not promise.cancel():
                text = f"the loop has not answered for {patience:g} s; it may still obey: look again later"
                raise Busy(text) from None
            text = f"the loop has not answered for {patience:g} s; the command is withdrawn: send it again later"
            raise Busy(text) from None
        finally:
            presence.unwatch(told.set)
            promise.cancel()  # no request waits for it any more
        if not ended:
            raise ClientDisconnect
        return promise.result(), ended[0]

    async def _settled(self, chain_id: ChainId, cycles: int) -> ChainDocument | None:
        """The chain once the cycle that executed has ended, or as it is when that takes too long."""
        presence = active_request().presence
        for _ in range(round(_SETTLE / _LOOK)):
            if self._service.status().cycles > cycles or presence.left:
                break
            await asyncio.sleep(_LOOK)
        status = self._service.status()
        found = [record for record in status.chains if record.chain.chain_id == chain_id]
        return chain_document(found[0], status) if found else None
