"""Passes commands from the server to the decision loop, and waits for the result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from mirage.api.access.concurrency import active_request
from mirage.api.conventions.problems import Busy
from mirage.api.routes.chaindocuments import AnswerDocument, ChainDocument, chain_document

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mirage.api.port import ApiService
    from mirage.domain.chain import ChainId
    from mirage.domain.command import Command

_LOOK = 0.05
_SETTLE = 5.0
"""Seconds that a response waits for the end of the cycle, so that later requests see the effect."""


class CommandCaller:
    """Sends commands to the decision loop and waits for the result."""

    def __init__(self, service: ApiService) -> None:
        self._service = service

    async def ask(self, command: Command, chain_id: ChainId) -> AnswerDocument:
        """Run a command; executed and stored on return. Raises ``MirageError``, ``Busy``, ``ClientDisconnect``."""
        sentence, cycles = await self._answer(command)
        return AnswerDocument(id=chain_id, sentence=sentence, chain=await self._settled(chain_id, cycles))

    async def tell(self, command: Command) -> str:
        """Run a command and return its result in words. Raises as ``ask`` does."""
        sentence, _ = await self._answer(command)
        return sentence

    async def _answer(self, command: Command) -> tuple[str, int]:
        """Return the result, and the number of cycles completed at that time.

        If the client leaves, or the loop takes too long, the command is withdrawn. A command that the loop has
        already taken is awaited, so that audit log and ``Idempotency-Key`` get its result.
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
                text = (
                    f"no answer from the decision loop for {patience:g} s; the command may still run, check later"
                )
                raise Busy(text) from None
            text = f"no answer from the decision loop for {patience:g} s; the command is withdrawn, retry later"
            raise Busy(text) from None
        finally:
            presence.unwatch(told.set)
            promise.cancel()  # no request waits for it any more
        if not ended:
            raise ClientDisconnect
        return promise.result(), ended[0]

    async def _settled(self, chain_id: ChainId, cycles: int) -> ChainDocument | None:
        """Return the chain after the cycle that executed the command, or its state if that takes too long."""
        presence = active_request().presence
        for _ in range(round(_SETTLE / _LOOK)):
            if self._service.status().cycles > cycles or presence.left:
                break
            await asyncio.sleep(_LOOK)
        status = self._service.status()
        found = [record for record in status.chains if record.chain.chain_id == chain_id]
        return chain_document(found[0], status) if found else None
