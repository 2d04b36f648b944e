"""Gauges, read at each scrape from the status of the last cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from mirage.domain.chain import ChainStatus
from mirage.domain.job import ABSENT
from mirage.domain.link import LinkState
from mirage.provisioner.service import ServiceState, state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from mirage.control.status import Status
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class GaugeSources:
    """Sources of the gauges; thread-safe and non-blocking."""

    status: Callable[[], Status]
    now: Callable[[], Seconds]
    """Slurm's clock."""
    unsaved: Callable[[], int]
    """Number of journal entries that are not in the database yet."""
    impediment: Callable[[], str]
    """Why the daemon may not act; empty: it is the leader."""
    checks_hanging: Callable[[], int] = int
    """Number of checks of users' files without a result after their timeout."""
    stuck: Callable[[], int] = int
    """Number of stuck predictor threads."""
    outdated: Callable[[], int] = int
    """Number of keys and policies of which an older version is in force."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Facts of one chain for the counts."""

    record: ChainRecord
    links: tuple[str, ...]
    """States of pending and running links."""
    state: str

    @classmethod
    def of(cls, record: ChainRecord) -> _Chain:
        links = tuple(str(link.state) for link in record.live)
        return cls(record, links, str(state_of(record)))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of one status, computed once per status and only for changed chains."""

    status: Status
    each: Mapping[ChainId, _Chain]
    chains: Mapping[str, int]
    links: Mapping[str, int]
    states: Mapping[str, int]

    @classmethod
    def of(cls, status: Status, known: Mapping[ChainId, _Chain]) -> _Counts:
        each = {}
        for record in status.chains:
            before = known.get(record.chain.chain_id)
            if before is None or before.record is not record:
                before = _Chain.of(record)
            each[record.chain.chain_id] = before
        chains = Counter(str(chain.record.status) for chain in each.values())
        links = Counter(state for chain in each.values() for state in chain.links)
        states = Counter(chain.state for chain in each.values())
        return cls(status, each, chains, links, states)


class StateCollector(Collector):
    """Collects the gauges."""

    def __init__(self, sources: GaugeSources) -> None:
        self._sources = sources
        self._counts = _Counts.of(sources.status(), {})

    def describe(self) -> Iterable[Metric]:
        """Return the metrics, whose names registration needs."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield all gauges."""
        status, counts = self._sources.status(), self._counts
        if counts.status is not status:
            counts = self._counts = _Counts.of(status, counts.each)
        age = max(0, self._sources.now() - status.snapshot.time)
        yield _gauge("snapshot_age_seconds", "Seconds since the last reply of Slurm, on Slurm's clock.", age)
        yield _gauge("stale", "1: Slurm did not reply in the last cycle.", status.stale_since != ABSENT)
        yield _gauge(
            "protected_mode", "1: submissions are held because Slurm rejects too many.", bool(status.protection)
        )
        yield _gauge("leader", "1: this daemon is the leader.", not self._sources.impediment())
        yield _gauge("store_unsaved_rows", "Journal entries not in the database yet.", self._sources.unsaved())
        yield _gauge(
            "predictor_threads_stuck",
            "Threads in which a predictor has run for more than a minute.",
            self._sources.stuck(),
        )
        yield _gauge(
            "access_files_outdated",
            "Unreadable or invalid keys and policies, of which an older version is in force.",
            self._sources.outdated(),
        )
        yield _family("chains", "Chains.", "status", {s: counts.chains.get(s, 0) for s in map(str, ChainStatus)})
        states = {state: counts.states.get(state, 0) for state in map(str, ServiceState)}
        yield _family("chain_states", "Chains by state: starting, up, down and so on.", "state", states)
        yield _family("links", "Links that have not ended.", "state", {s: counts.links.get(s, 0) for s in _LIVE})
        yield _gauge(
            "chains_interrupted",
            "Active chains that have run, but have no running link now.",
            states[ServiceState.DOWN],
        )
        yield _gauge(
            "chains_files_unknown",
            "Chains with a done-file or handover file that the daemon cannot check.",
            len(status.files_unknown),
        )
        yield _gauge(
            "file_checks_hanging", "Checks of users' files beyond their timeout.", self._sources.checks_hanging()
        )


_LIVE = [str(state) for state in LinkState if state not in (LinkState.ENDED, LinkState.LOST)]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"mirage_{name}", text, value=float(value))


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"mirage_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
