"""A cluster with metrics: passes on its snapshots and the time that they take."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.linkidentity import NO_IDENTITIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.domain.job import JobId
    from mirage.domain.linkidentity import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Cluster


class RecordingCluster:
    """Passes each whole snapshot and its predecessor to ``seen``, and the real seconds of each try to ``took``.

    Exceptions of the listeners are not caught: the listeners are part of this program.
    """

    def __init__(
        self,
        cluster: Cluster,
        seen: Callable[[Snapshot | None, Snapshot], None],
        took: Callable[[float], None],
    ) -> None:
        self._cluster = cluster
        self._seen = seen
        self._took = took
        self._previous: Snapshot | None = None

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Take the wrapped cluster's snapshot, always with the queue: predictions are trained on its starts."""
        del queue
        began = time.monotonic()
        try:
            snapshot = self._cluster.snapshot(queue=True, expected=expected, identities=identities)
        finally:
            self._took(time.monotonic() - began)
        previous, self._previous = self._previous, snapshot
        self._seen(previous, snapshot)
        return snapshot
