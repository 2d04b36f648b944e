"""Build and store counterfactual tables: the simulated start for every submit time on a grid.

Each handover is played on the simulated cluster and observed as by the control loop.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.control.observations import ObservationBuilder
from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import NEVER
from mirage.features.schema import encode
from mirage.features.summary import SPACING
from mirage.features.table import Origin, Table
from mirage.ownprocess import spawning
from mirage.replay.episodes import Background
from mirage.replay.plan import ReplayPlan
from mirage.training import chunks
from mirage.training.chunks import cluster_fingerprint, trace_fingerprint
from mirage.training.launch import leave_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirage.domain.chain import Chain
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import Snapshot
    from mirage.features.table import FeatureSchema
    from mirage.replay.episodes import Opening
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.chunks import Arrays, TableManifest
    from mirage.training.launch import SlurmJobs

Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]

TICK = SPACING
"""Poll interval in seconds: the replay's default, for which windows are made."""


class SimulatedHandover:
    """A running first link whose second link is not submitted yet. The opening is used up."""

    def __init__(self, opening: Opening, chain: Chain, schema: FeatureSchema) -> None:
        self._cluster = opening.cluster
        self._schema = schema
        cluster = self._cluster
        self._observer = ObservationBuilder(cluster, cluster, cluster, cluster, opening.windows)
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


__all__ = ["Table", "TablePlan", "build_table", "load_table"]

STARTS_IN_CHUNK = 8


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The handovers to simulate. Times in seconds."""

    start: Seconds
    """First episode."""
    end: Seconds
    """No episode starts after this."""
    nodes: tuple[int, ...] = (1, 8)
    """Each start is simulated once with links of each size."""
    limit: Seconds = 48 * 3_600
    """Time limit of the links; they run to it."""
    every: Seconds = 4 * 3_600
    grid: Seconds = 30 * 60
    """Seconds between submit times; a multiple of the poll interval of ten minutes."""
    partition: str = ""

    def check(self, trace: JobTable) -> None:
        """Raise ``ConfigError`` for a plan that cannot be simulated on this trace."""
        if not self.nodes:
            raise ConfigError("--nodes", "name at least one size")
        if self.grid <= 0 or self.grid % TICK:
            raise ConfigError("--grid", f"must be a multiple of {TICK} seconds, not {self.grid}")
        for replay in self.replays():
            replay.check(trace)

    def replays(self) -> tuple[ReplayPlan, ...]:
        """The same in the form of replays, one for each size."""
        return tuple(
            ReplayPlan(
                (), nodes, self.limit, self.start, self.end, self.every, tick=TICK, partition=self.partition
            )
            for nodes in self.nodes
        )

    def chains(self) -> tuple[Chain, ...]:
        """The service, one for each size."""
        return tuple(replay.chain() for replay in self.replays())

    def starts(self) -> tuple[Seconds, ...]:
        """Submit times of the first links."""
        return self.replays()[0].episode_starts()


def build_table(
    trace: JobTable,
    cluster: ClusterConfig,
    plan: TablePlan,
    schema: FeatureSchema,
    folder: Path,
    *,
    workers: int | SlurmJobs = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Table:
    """Build the table in ``folder``, or complete it: existing chunks are kept.

    Handovers whose links do not start within a month are left out. ``on_progress`` gets the numbers of finished
    and of all starts. ``workers``: processes, or jobs of the cluster whose nodes must share ``folder``; the table
    does not depend on it. Raises ``ConfigError`` for a plan that does not fit the trace and for a directory that
    holds another table, ``SubmissionRejected`` where the cluster rejects the service's job or those that build,
    ``JobFailed``.
    """
    plan.check(trace)
    manifest = _manifest(trace, cluster, plan, schema)
    chunks.begin(folder, manifest)
    missing = [number for number in range(manifest.chunks) if not _kept(folder, number, manifest)]
    total = len(plan.starts())
    done = total - sum(len(_starts_of(plan, number)) for number in missing)
    on_progress(done, total)
    setting = _Setting(trace, cluster, plan, schema, folder, manifest)
    for number in _built(setting, missing, workers):
        done += len(_starts_of(plan, number))
        on_progress(done, total)
    return load_table(folder)


def load_table(folder: Path) -> Table:
    """A finished table. Raises ``ConfigError`` naming the file that is missing, corrupt or of another schema."""
    return chunks.read_table(folder)


@dataclass(frozen=True, slots=True)
class _Setting:
    trace: JobTable
    cluster: ClusterConfig
    plan: TablePlan
    schema: FeatureSchema
    folder: Path
    manifest: TableManifest


class _Builder:
    """Builds chunks; their numbers must ascend from call to call."""

    def __init__(self, setting: _Setting) -> None:
        self._setting = setting
        self._background = Background(setting.trace, setting.cluster, watched=setting.schema.wants.window)

    def build(self, number: int) -> int:
        """Build and store one chunk; returns its number."""
        setting = self._setting
        rows = [row for start in _starts_of(setting.plan, number) for row in self._rows(start)]
        chunks.write_chunk(setting.folder, number, setting.manifest, _stacked(rows, setting))
        return number

    def _rows(self, start: Seconds) -> Iterator[Arrays]:
        self._background.run_until(start)
        for chain in self._setting.plan.chains():
            opening = self._background.open(chain)
            if opening is None:
                continue
            handover = SimulatedHandover(opening, chain, self._setting.schema)
            row = _tried(handover, self._setting.plan.grid)
            if row is not None:
                placed = {"episode_start": start, "nodes": chain.request.nodes, "limit": chain.request.limit}
                yield row | {name: np.array(value) for name, value in placed.items()}


def _tried(handover: SimulatedHandover, grid: Seconds) -> Arrays | None:
    """The handover for each submit time, with observations; ``None`` where any start never happens."""
    times = handover.submit_times(grid)
    starts = handover.starts(times)
    if (starts == NEVER).any():
        return None
    seen = []
    for time in times:
        handover.advance(int(time))
        seen.append(handover.features())
    return {"features": np.stack(seen), "submit": times, "start": starts, "end": np.array(handover.end)}


def _stacked(rows: list[Arrays], setting: _Setting) -> Arrays:
    """Rows of a chunk as arrays, of the right shape also without rows."""
    points = -(-setting.plan.limit // setting.plan.grid) + 1
    shapes = {"features": (points, setting.schema.size), "submit": (points,), "start": (points,)}
    return {
        name: np.array([row[name] for row in rows], dtype=np.float32 if name == "features" else np.int64).reshape(
            len(rows), *shapes.get(name, ())
        )
        for name in chunks.ARRAYS
    }


def _starts_of(plan: TablePlan, number: int) -> tuple[Seconds, ...]:
    return plan.starts()[number * STARTS_IN_CHUNK : (number + 1) * STARTS_IN_CHUNK]


def _manifest(trace: JobTable, cluster: ClusterConfig, plan: TablePlan, schema: FeatureSchema) -> TableManifest:
    origin = Origin(
        cluster=cluster.name,
        cluster_fingerprint=cluster_fingerprint(cluster),
        trace=trace.source,
        trace_fingerprint=trace_fingerprint(trace),
        trace_end=int(trace.submit[-1]),
        first=plan.start,
        last=plan.end,
        every=plan.every,
        grid=plan.grid,
    )
    count = -(-len(plan.starts()) // STARTS_IN_CHUNK)
    return chunks.TableManifest(schema.name, schema.hash, origin, plan.nodes, plan.limit, plan.partition, count)


def _kept(folder: Path, number: int, manifest: TableManifest) -> bool:
    """Whether a chunk exists and is complete."""
    try:
        chunks.read_chunk(folder, number, manifest)
    except (ConfigError, TraceError):
        return False
    return True


def _built(setting: _Setting, numbers: list[int], workers: int | SlurmJobs) -> Iterator[int]:
    """The numbers as their chunks are finished."""
    if not isinstance(workers, int):
        yield from _built_by_jobs(setting, numbers, workers)
        return
    if workers <= 1 or len(numbers) <= 1:
        yield from map(_Builder(setting).build, numbers)
        return
    _Builder(setting)  # raises errors of the trace here
    # Processes are spawned: to fork one that has threads (a progress bar) is not safe. Each simulates the trace
    # itself, which costs less than sending its state.
    pool = ProcessPoolExecutor(min(workers, len(numbers)), spawning(), _begin_work, (setting,))
    with pool:
        try:
            for future in as_completed([pool.submit(_build, number) for number in numbers]):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _built_by_jobs(setting: _Setting, numbers: list[int], jobs: SlurmJobs) -> Iterator[int]:
    """Chunks of each job, interleaved: every job simulates the trace up to about its end."""
    shares = [share for share in (numbers[k :: jobs.count] for k in range(jobs.count)) if share]
    missing = set(numbers)
    for _ in jobs.watched([partial(_build_share, setting, share) for share in shares]):
        found = {number for number in missing if chunks.chunk_path(setting.folder, number).exists()}
        missing -= found
        yield from sorted(found)
    # Chunks that a shared file system does not show yet.
    yield from sorted(missing)


def _build_share(setting: _Setting, numbers: list[int]) -> None:
    builder = _Builder(setting)
    for number in numbers:
        builder.build(number)


_builder: list[_Builder] = []
"""The builder of this worker process; its initialiser fills it."""


def _begin_work(setting: _Setting) -> None:
    leave_with_parent()
    _builder.append(_Builder(setting))


def _build(number: int) -> int:
    return _builder[0].build(number)
