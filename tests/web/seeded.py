"""A daemon's state made manually: chains, a queue, a journal with forecasts."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from chains_seen import HOSTILE
from instants import HOUR, NOW
from plays import left_behind
from shelf import SETTINGS, Shelf

from mirage.api.feed import Feed
from mirage.api.port import ApiService, Inquiries
from mirage.api.taskwatch import TaskWatch
from mirage.backends.file_check import Viewer
from mirage.control.commands import CommandQueue
from mirage.control.prediction_requests import PredictionRequest, PredictionResult, PredictorReply, Role
from mirage.control.status import Status
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.decision import PlannedStart, WaitForecast
from mirage.domain.errors import MirageError
from mirage.domain.job import ABSENT, Job, JobRequest
from mirage.domain.jobtable import JobLabels
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.objective import Outcome
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.provisioner import commands
from mirage.provisioner.tally import Tally
from mirage.replay.shadows import Calibrated, ShadowScore
from mirage.store.access import AuditEntry
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.link import Link
    from mirage.store.opening import Store

DEEDS = (
    ("alice", "create chain for alice", ChainId("llm-pretrain-k3q9"), "done"),
    ("bob", "pause", ChainId("nightly-eval-x7w1"), "done"),
    ("carol", "cancel", ChainId("llm-pretrain-k3q9"), "there is no chain llm-pretrain-k3q9"),
)
EXPLAINED = (
    "submitted job 48900",
    "link 1 has not started yet",
    "job 48905 is held",
    "hold: it would most likely start in 6 h 30 min, 11 h before its predecessor ends",
)
LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
KEPT = tuple(Calibrated(level, count / 34, 34) for level, count in zip(LEVELS, (4, 10, 18, 25, 31), strict=True))
TOO_SURE = (*(Calibrated(level, count / 34, 34) for level, count in ((0.1, 8), (0.5, 19), (0.9, 26))),)
"""Too many starts before P10, too many after P90."""


def snapshot(records: tuple[ChainRecord, ...], *, stale: bool = False) -> Snapshot:
    jobs = {link.tag: _job(record, link) for record in records for link in record.links if link.job_id}
    pending, running = _columns(37, 1, running=False), _columns(21, 2, running=True)
    return Snapshot(
        NOW,
        pending=pending,
        running=running,
        partitions=(PartitionState("gpu", 32, 3, 27, 2), PartitionState("cpu", 96, 41, 54, 1)),
        users=("alice", "bob", "carol", HOSTILE if _has_hostile(records) else "dave"),
        partition_names=("gpu", "cpu"),
        qos_names=("normal",),
        labels=_labels(pending, running, HOSTILE if _has_hostile(records) else "sweep-3"),
        links=jobs,
        stale_since=NOW - 400 if stale else ABSENT,
    )


def _labels(pending: JobColumns, running: JobColumns, last: str) -> JobLabels:
    names = ("train-vit", "eval", "lammps-nvt-300K", "preprocess", last)
    series = np.concatenate([pending.series, running.series]) % len(names)
    user = np.concatenate([pending.user, running.user])
    ids = np.concatenate([pending.job_id, running.job_id])
    accounts = ("research", "research", "teaching", "physics")
    return JobLabels.of_texts(ids, (names[each] for each in series), (accounts[each] for each in user))


def _has_hostile(records: tuple[ChainRecord, ...]) -> bool:
    return any(record.chain.name == HOSTILE for record in records)


def _job(record: ChainRecord, link: Link) -> Job:
    first = 1 + sum(record.chain.chain_id.encode()) % 20
    nodes = record.chain.request.nodes
    place = f"gpu[{first:03}-{first + nodes - 1:03}]" if link.started else ""
    if record.chain.name == HOSTILE:
        place = HOSTILE
    request = record.chain.request
    return Job(
        link.job_id,
        request.name,
        record.chain.owner,
        request.partition,
        nodes,
        request.limit,
        link.job_state,
        link.submit,
        link.start,
        link.end,
        tag=link.tag,
        expected_start=NOW + 3 * HOUR if not link.started else ABSENT,
        node_list=place,
    )


def _columns(count: int, seed: int, *, running: bool) -> JobColumns:
    draw = np.random.default_rng(seed)
    submit = NOW - draw.integers(60, 40 * HOUR, count)
    start = np.minimum(NOW - 30, submit + draw.integers(0, 9 * HOUR, count)) if running else np.full(count, ABSENT)
    return JobColumns(
        job_id=np.sort(draw.integers(50_000, 60_000, count)),
        user=draw.integers(0, 4, count),
        partition=draw.integers(0, 2, count),
        qos=np.zeros(count, dtype=np.int64),
        nodes=draw.integers(1, 9, count),
        limit=draw.choice([1, 4, 12, 24, 48], count) * HOUR,
        submit=submit,
        eligible=submit,
        start=start,
        priority=draw.integers(1_000, 90_000, count),
        series=draw.integers(0, 9, count),
    )


def tell(store: Store, record: ChainRecord) -> None:
    """The journal of one chain: what was predicted, decided, done and came of it."""
    chain, write = record.chain, store.journal.write
    entries = [Entry(record.links[0].planned if record.links else NOW, chain.chain_id, EntryKind.COMMAND, "added")]
    for each in record.links:
        entries += _foreseen(chain, each)
        entries.append(
            Entry(each.submit, chain.chain_id, EntryKind.ACTION, f"submitted job {each.job_id}", each.index)
        )
        if each.started:
            text = f"link {each.index} has started"
            entries.append(Entry(each.start, chain.chain_id, EntryKind.EVENT, text, each.index))
    for before, outcome in record.handovers():
        text = f"interruption {outcome.interruption} s, overlap {outcome.overlap} s"
        at = max(outcome.predecessor_end, outcome.successor_start)
        entries.append(
            Entry(at, chain.chain_id, EntryKind.OUTCOME, text, before.index, outcome=Outcome(*_pair(outcome)))
        )
    if record.links and record.links[-1].running:
        entries += _foreseen_next(chain, record.links[-1])
    if chain.name == HOSTILE:
        entries.append(Entry(NOW, chain.chain_id, EntryKind.TROUBLE, f"rejected: {HOSTILE}", 2, predictor=HOSTILE))
    for entry in sorted(entries, key=lambda entry: entry.time):
        write(entry)
    store.journal.flush()


def _pair(outcome: Outcome) -> tuple[int, int]:
    return outcome.predecessor_end, outcome.successor_start


def _foreseen(chain: Chain, each: Link) -> list[Entry]:
    """Forecasts every hour before a link's submission; they narrow as it comes nearer."""
    real = each.start if each.started else NOW + 2 * HOUR
    said = []
    for ago in range(6, -1, -1):
        at, spread = each.submit - ago * HOUR, (1.5 + ago) * HOUR
        middle = real + (0.25 * ago - 0.4) * HOUR
        decision = "submit" if ago == 0 else "hold"
        text = f"{decision}: it would start {int(middle - at) // 60} min from now"
        said.append(_entry(chain, each.index, at, middle, spread, text))
    return said


def _foreseen_next(chain: Chain, running: Link) -> list[Entry]:
    said = []
    for ago in range(5, -1, -1):
        at = NOW - ago * 1_800
        middle = at + 6.5 * HOUR
        text = f"hold: P90 of the start is {round((running.end - middle) / 60)} min before the end"
        said.append(_entry(chain, running.index + 1, at, middle, 2.5 * HOUR, text))
        said.append(_entry(chain, running.index + 1, at, middle + HOUR, HOUR, text, "xgboost"))
    return said


def _entry(chain: Chain, index: int, at: int, middle: float, spread: float, text: str, shadow: str = "") -> Entry:
    starts = tuple(max(float(at), middle + (level - 0.4) * spread) for level in LEVELS)
    kind = EntryKind.SHADOW if shadow else EntryKind.DECISION
    return Entry(at, chain.chain_id, kind, text, index, shadow or "lookahead", WaitForecast(LEVELS, starts))


def foreseen(question: PredictionRequest) -> Future[PredictionResult]:
    """The forecasts of three predictors for any job; the third predicts nothing."""
    promise: Future[PredictionResult] = Future()
    long = tuple(NOW + hours * HOUR for hours in (1.2, 2.0, 3.4, 5.1, 7.5))
    short = tuple(NOW + hours * HOUR for hours in (0.8, 1.5, 2.9, 4.0, 4.9))
    said = (
        PredictorReply("lookahead", Role.IN_CHARGE, WaitForecast(LEVELS, long)),
        PredictorReply("xgboost", Role.SHADOW, WaitForecast(LEVELS, short)),
        PredictorReply("dqn", Role.SHADOW, None, "it scores submitting against holding and predicts no start"),
    )
    promise.set_result(PredictionResult(NOW, ABSENT, PlannedStart.known(NOW + 4 * HOUR), said))
    return promise


def measured(request: JobRequest | str | None) -> tuple[ShadowScore, ...]:
    """How good two of them have been."""
    less = 0.8 if isinstance(request, JobRequest) else 1.0
    return (
        _measured("lookahead", 1.41 * less, 0.79, in_charge=True),
        _measured("xgboost", 1.18 * less, 0.71, in_charge=False),
    )


def _measured(name: str, error: float, coverage: float, *, in_charge: bool) -> ShadowScore:
    return ShadowScore(
        predictor=name,
        in_charge=in_charge,
        forecasts=34,
        error=0.2,
        absolute_error=error,
        pinball=error / 3,
        coverage=coverage,
        handovers=31,
        partition="gpu",
        interruption=0.31 if in_charge else 0.52,
        overlap=0.92 if in_charge else 0.61,
        cost=1.23 if in_charge else 1.13,
        gain=0.0 if in_charge else 0.11,
        gain_error=0.0 if in_charge else 0.09,
        calibration=KEPT if in_charge else TOO_SURE,
    )


@dataclass
class SeededLoop:
    """Executes commands as the real loop does, in a thread, and publishes a status after each round."""

    status: Status
    store: Store
    folder: Path
    feed: Feed = field(default_factory=lambda: Feed(lambda chain: ""))
    commands: CommandQueue = field(default_factory=CommandQueue)
    ended: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, folder: Path, records: tuple[ChainRecord, ...], *, stale: bool = False) -> SeededLoop:
        store = open_store(f"sqlite:///{folder / 'mirage.db'}")
        for record in records:
            tell(store, record)
        for number, (user, act, chain, result) in enumerate(DEEDS):
            store.audit.write(
                AuditEntry(NOW - 900 * (9 - number), user, 1_000 + number, act, chain, result, "socket")
            )
        explained = {
            record.chain.chain_id: EXPLAINED[min(len(record.links), 3)] for record in records if not record.over
        }
        sentence = "; ".join(explained.values())
        seen = snapshot(records, stale=stale)
        return cls(Status(NOW, sentence, seen, records, explained, cycles=231), store, folder)

    def service(self) -> ApiService:
        store = self.store

        def entries(chain: ChainId, limit: int) -> list[Entry]:
            return [line.entry for line in store.journal.read(chain, limit=limit)]

        return ApiService(
            lambda: self.status,
            self.commands.put,
            entries,
            journal=store.journal,
            feed=self.feed,
            audit=store.audit,
            now=lambda: NOW + 40,
            models=Shelf(),
            replays=left_behind(self.folder / "replays"),
            configuration=lambda: SETTINGS,
            about_cluster=lambda: ("cli", "25.11.2"),
            cycle_seconds=lambda: 0.42,
            tasks=TaskWatch(lambda owner: Viewer(owner, os.getuid(), own=True)),
            inquiries=Inquiries(foreseen, lambda name: None, measured, lambda span: measured(None)),
        )

    def cycle(self) -> None:
        records = self.status.chains
        for asked in self.commands.take_all():
            try:
                record = commands.apply_command(Tally.of(records, NOW), asked.command, NOW)
            except MirageError as error:
                asked.answer.set_exception(error)
                continue
            records = tuple(record if old.chain.chain_id == record.chain.chain_id else old for old in records)
            text = commands.sentence(asked.command)
            self.store.journal.write(Entry(NOW, record.chain.chain_id, EntryKind.COMMAND, text))
            self.store.journal.flush()
            asked.answer.set_result(text)
        self.publish(records)

    def publish(self, records: tuple[ChainRecord, ...]) -> None:
        """End a cycle, one second after the last one: pages distinguish cycles by their times."""
        now = self.status
        self.status = replace(now, time=now.time + 1, chains=records, cycles=now.cycles + 1)
        self.feed.cycled(self.status)

    def thread(self) -> threading.Thread:
        """One in which it runs until it has ended."""
        return threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.ended.is_set():
            if self.commands.wait(0.05):
                self.cycle()
