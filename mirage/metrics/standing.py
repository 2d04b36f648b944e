"""Gauges: how things stand, read at each scrape from what the last cycle froze."""

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
class Sources:
    """Where gauges are read; all from any thread, and none may wait."""

    status: Callable[[], Status]
    now: Callable[[], Seconds]
    """Slurm's clock."""
    unsaved: Callable[[], int]
    """Lines of the journal that are not on disk yet."""
    impediment: Callable[[], str]
    """Why the daemon may not act; empty: it leads."""
    checks_hanging: Callable[[], int] = int
    """Checks of users' files that have no result after their timeout."""
    stuck: Callable[[], int] = int
    """Threads of predictors that will hardly end."""
    outdated: Callable[[], int] = int
    """Keys and policies of which an older version is in force."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """What counts of one chain."""

    record: ChainRecord
    links: tuple[str, ...]
    """States of those on the cluster."""
    state: str

    @classmethod
    def of(cls, record: ChainRecord) -> _Chain:
        links = tuple(str(link.state) for link in record.live)
        return cls(record, links, str(state_of(record)))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Of one status: counted once however often it is scraped, and only what has changed since the one before."""

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


class Standing(Collector):
    """Collects the gauges."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._counts = _Counts.of(sources.status(), {})

    def describe(self) -> Iterable[Metric]:
        """Names alone: registering asks for them."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """One value each."""
        status, counts = self._sources.status(), self._counts
        if counts.status is not status:
            counts = self._counts = _Counts.of(status, counts.each)
        age = max(0, self._sources.now() - status.snapshot.time)
        yield _gauge("snapshot_age_seconds", "Slurm's seconds since the cluster last answered.", age)
        yield _gauge("stale", "1: the cluster did not answer in the last cycle.", status.stale_since != ABSENT)
        yield _gauge(
            "protected_mode", "1: Slurm rejects so much that little is submitted.", bool(status.protection)
        )
        yield _gauge("leader", "1: this daemon leads and may act.", not self._sources.impediment())
        yield _gauge("store_unsaved_rows", "Lines of the journal not on disk yet.", self._sources.unsaved())
        yield _gauge(
            "predictor_threads_stuck",
            "Threads in which a predictor has worked for more than a minute.",
            self._sources.stuck(),
        )
        yield _gauge(
            "access_files_outdated",
            "Keys and policies that cannot be read or are wrong: an older version is in force.",
            self._sources.outdated(),
        )
        yield _family("chains", "Chains.", "status", {s: counts.chains.get(s, 0) for s in map(str, ChainStatus)})
        states = {state: counts.states.get(state, 0) for state in map(str, ServiceState)}
        yield _family("chain_states", "Chains by the state of what they keep running.", "state", states)
        yield _family("links", "Links on the cluster.", "state", {s: counts.links.get(s, 0) for s in _LIVE})
        yield _gauge(
            "chains_interrupted",
            "Active chains that have run and of which no link runs now.",
            states[ServiceState.DOWN],
        )
        yield _gauge(
            "chains_files_unknown",
            "Chains whose done-file or handover file cannot be checked.",
            len(status.files_unknown),
        )
        yield _gauge("file_checks_hanging", "Checks of users' files that hang.", self._sources.checks_hanging())


_LIVE = [str(state) for state in LinkState if state not in (LinkState.ENDED, LinkState.LOST)]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"mirage_{name}", text, value=float(value))


def _family(name: str, text: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"mirage_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
