"""``/api/v1/cluster`` and ``/api/v1/queue``: cluster and queue in the last snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query

from mirage.api.access.dependencies import Reader
from mirage.api.conventions.pages import Cursor, Limit, read_number, spell_cursor
from mirage.api.conventions.threads import ThreadRoute
from mirage.api.documents.cluster import ClusterDocument, LoopDocument, cluster_document
from mirage.api.documents.instants import instant
from mirage.api.documents.queue import QueueDocument, Sought, queue_page
from mirage.api.documents.visible import Visible

if TYPE_CHECKING:
    from mirage.api.port import ApiService

Text = Annotated[str, Query(max_length=64)]


def cluster_routes(service: ApiService) -> APIRouter:
    """Return the routes about the cluster."""
    routes = APIRouter(route_class=ThreadRoute, tags=["cluster"])

    @routes.get("/cluster", summary="Cluster state")
    def show_cluster(caller: Reader) -> ClusterDocument:
        """Return partitions, nodes and jobs by state, and the state of the decision loop."""
        status = service.status()
        seen = Visible(status, caller.name, every=caller.is_admin)
        loop = LoopDocument(
            cycle=status.cycles,
            time=instant(status.time),
            duration=service.cycle_seconds(),
            sentence=seen.sentence,
        )
        agent = None if service.desk is None else service.desk.attached(caller.name)
        return cluster_document(status, service.now(), seen, loop, service.about_cluster(), agent)

    @routes.get("/queue", summary="Queue")
    def show_queue(
        caller: Reader,
        partition: Text = "",
        user: Annotated[str, Query(max_length=64, description="User name; me: the caller.")] = "",
        state: Literal["", "pending", "running"] = "",
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> QueueDocument:
        """List pending and running jobs, as in squeue, sorted by job ID.

        If Slurm's PrivateData setting hides jobs of other users, or is unknown, only administrators see those
        jobs. All users see them if the access policy has queue_jobs = "all".

        Job names and accounts are shown for own jobs, to administrators for all jobs. The access policy may show
        more. Each page shows the queue at the time of its request. Jobs that have left since are omitted.
        """
        status, after = service.status(), read_number(cursor) if cursor else 0
        every = service.gate.policy().shows_jobs_to(caller, hidden=service.hides_jobs())
        sought = Sought(caller.name if user == "me" else user, partition, state, "" if every else caller.name)
        shown_of = service.gate.policy().names_shown_to(caller)
        page = queue_page(status.snapshot, sought, after, limit, shown_of)
        return QueueDocument(
            snapshot=instant(status.snapshot.time) if status.cycles else None,
            stale_since=instant(status.stale_since),
            own_only=not every,
            total=page.total,
            jobs=page.jobs,
            next=spell_cursor(page.last) if page.more else None,
        )

    return routes
