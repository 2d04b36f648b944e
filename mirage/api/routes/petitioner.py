"""Commands to the loop, from the server's event loop, and what the next cycle made of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

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
        """Obeyed and stored when it returns. Raises the loop's ``MirageError``, or ``Busy``."""
        sentence, cycles = await self._answer(self._service.ask(command))
        return AnswerDocument(id=chain_id, sentence=sentence, chain=await self._settled(chain_id, cycles))

    async def tell(self, command: Command) -> str:
        """The sentence, once it is obeyed and stored. Raises the loop's ``MirageError``, or ``Busy``."""
        sentence, _ = await self._answer(self._service.ask(command))
        return sentence

    async def _answer(self, promise: Future[str]) -> tuple[str, int]:
        """The promise's result, and how many cycles had ended when it was given.

        Never cancels it: the loop could not keep a promise that is broken.
        """
        done, loop, ended = asyncio.Event(), asyncio.get_running_loop(), []

        def kept(_: Future[str]) -> None:
            ended.append(self._service.status().cycles)
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        promise.add_done_callback(kept)
        try:
            await asyncio.wait_for(done.wait(), self._service.patience)
        except TimeoutError:
            raise Busy(
                f"the loop has not answered for {self._service.patience:g} s; it may still obey: look again later"
            ) from None
        return promise.result(), ended[0]

    async def _settled(self, chain_id: ChainId, cycles: int) -> ChainDocument | None:
        """The chain once the cycle that obeyed has ended, or as it is when that takes too long."""
        for _ in range(round(_SETTLE / _LOOK)):
            if self._service.status().cycles > cycles:
                break
            await asyncio.sleep(_LOOK)
        status = self._service.status()
        found = [record for record in status.chains if record.chain.chain_id == chain_id]
        return chain_document(found[0], status) if found else None
