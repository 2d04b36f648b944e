"""``/api/v1/chains/{chain_id}/timeline``: links, handovers and forecasts of a chain over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query

from mirage.api.access.dependencies import Reader
from mirage.api.conventions.pages import Cursor, read_number
from mirage.api.conventions.parameters import ChainName, LinkIndex
from mirage.api.conventions.threads import QueryRoute
from mirage.api.documents.timeline import Timeline, timeline
from mirage.api.routes.ownership import own_chain
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import EntryKind
from mirage.store.journal import Span

if TYPE_CHECKING:
    from mirage.api.port import ApiService

_SAID = (EntryKind.DECISION, EntryKind.SHADOW)
_HAPPENED = tuple(kind for kind in EntryKind if kind not in _SAID)


def timeline_routes(service: ApiService) -> APIRouter:
    """Return the route of a chain's timeline."""
    routes = APIRouter(route_class=QueryRoute, prefix="/chains", tags=["chains"])

    @routes.get("/{chain_id}/timeline", summary="Timeline of a chain")
    def show_timeline(
        caller: Reader,
        chain_id: ChainName,
        link: Annotated[LinkIndex | None, Query(description="Only journal and forecasts of this link.")] = None,
        cursor: Cursor = None,
        limit: Annotated[
            int, Query(ge=1, le=2000, description="Journal entries, and about as many forecasts.")
        ] = 500,
    ) -> Timeline:
        """Return links, handovers, forecasts with actual starts, and journal entries.

        A page has the newest `limit` entries before `cursor`, and the forecasts of the same period. Many forecasts
        are thinned evenly to those of about `limit` times.
        """
        record = own_chain(chain_id, caller, service)
        if service.journal is None:
            raise StoreUnavailable("this daemon has no journal")
        chain = record.chain.chain_id
        before = read_number(cursor) if cursor else None
        entries = service.journal.read(chain, _HAPPENED, before, limit, link)
        first = entries[-1].cursor if len(entries) == limit else 0
        said = service.journal.thinned(Span(chain, link, first, before), _SAID, limit)
        return timeline(record, service.status(), entries, said, limit)

    return routes
