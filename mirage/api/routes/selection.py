"""Which chains a list is to show, and which of them make up a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Query

from mirage.api.conventions.pages import read_cursor, spell_cursor
from mirage.api.conventions.problems import BadDocument
from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.chain import ChainRecord


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a list is wanted; nothing given: all of it."""

    every: bool = False
    """Everybody's."""
    user: str = ""
    partition: str = ""
    status: tuple[ChainStatus, ...] = ()
    live: bool = False
    """Those that continue, or still have a job on the cluster."""

    def of(self, records: Sequence[ChainRecord], owner: str | None) -> list[ChainRecord]:
        """Those that are wanted, of one owner's or (``None``) of all, in their order."""
        return [record for record in records if owner in (None, record.chain.owner) and self._takes(record)]

    def _takes(self, record: ChainRecord) -> bool:
        return (
            (not self.user or record.chain.owner == self.user)
            and (not self.partition or record.chain.request.partition == self.partition)
            and (not self.status or record.status in self.status)
            and (not self.live or not record.over or bool(record.live))
        )


async def selection(
    every: Annotated[bool, Query(alias="all", description="All users's; for administrators.")] = False,
    user: Annotated[str, Query(max_length=128, description="Of this user.")] = "",
    partition: Annotated[str, Query(max_length=128, description="Whose links go to this partition.")] = "",
    status: Annotated[
        list[ChainStatus] | None, Query(max_length=32, description="In one of these states.")
    ] = None,
    live: Annotated[bool, Query(description="Those that continue, or still have a job on the cluster.")] = False,
) -> Selection:
    """What a request's query asks for. A coroutine, though it waits for nothing: else each takes a thread."""
    return Selection(every, user, partition, tuple(status or ()), live)


Wanted = Annotated[Selection, Depends(selection)]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list."""

    records: list[ChainRecord]
    further: str | None
    """The next page's cursor; ``None``: this is the last."""


def page_of(records: list[ChainRecord], limit: int, cursor: str | None) -> Page:
    """At most ``limit`` of them, after the chain that the cursor names. Raises ``BadDocument``."""
    first = 0 if cursor is None else _after(records, read_cursor(cursor))
    shown = records[first : first + limit]
    further = first + limit < len(records)
    return Page(shown, spell_cursor(shown[-1].chain.chain_id) if further else None)


def _after(records: list[ChainRecord], chain_id: str) -> int:
    for place, record in enumerate(records):
        if record.chain.chain_id == chain_id:
            return place + 1
    raise BadDocument("query.cursor: no cursor of this list, or its chain is gone; begin without one")
