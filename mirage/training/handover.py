"""One handover on the simulated cluster, observed as by the control loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.control.observing import Observer
from mirage.features.schema import encode
from mirage.features.window import SPACING

if TYPE_CHECKING:
    from mirage.domain.chain import Chain
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.features.layout import FeatureSchema
    from mirage.replay.opening import Opening

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]

TICK = SPACING
"""Poll interval in seconds: the replay's default, for which windows are made."""


class Handover:
    """A running first link whose second link is not submitted yet. The opening is used up."""

    def __init__(self, opening: Opening, chain: Chain, schema: FeatureSchema) -> None:
        self._cluster = opening.cluster
        self._schema = schema
        cluster = self._cluster
        self._observer = Observer(cluster, cluster, cluster, cluster, opening.windows)
        self._owner, self._tag = chain.owner, chain.link_request(1).tag
        self._request = chain.link_request(2)
        self._origin = self._cluster.now()
        self.end = self._origin + self._request.limit
        """End of the first link: it runs to its time limit."""
        self._snapshot = self._look()

    def submit_times(self, grid: Seconds) -> Int64:
        """Times from now every ``grid`` seconds, and the end."""
        return np.append(np.arange(self._cluster.now(), self.end, grid), self.end)

    def starts(self, submit_times: Int64) -> Int64:
        """Start of the second link for each of these submit times; ``NEVER``: not for weeks."""
        return self._cluster.start_times(self._request, submit_times)

    def advance(self, until: Seconds) -> None:
        """Continue, with a poll at every tick on the way."""
        while (now := self._cluster.now()) < until:
            following = self._origin + ((now - self._origin) // TICK + 1) * TICK
            self._cluster.advance(min(following, until))
            self._snapshot = self._look()

    def features(self) -> Float32:
        """The present observation, shape (schema.size,)."""
        predecessor = self._snapshot.link(self._tag, self._owner)
        wants = self._schema.wants
        return encode(self._schema, self._observer.observe(self._snapshot, predecessor, self._request, wants))

    def _look(self) -> Snapshot:
        snapshot = self._cluster.snapshot()
        self._observer.seen(snapshot, self._schema.wants)
        return snapshot
