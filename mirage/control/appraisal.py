"""What a handover would have cost without an early submission, predicted once, as the predecessor ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.control.faults import error_text
from mirage.domain.decision import forecast_of
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.outcome import Alternative, submitted_at_end
from mirage.predictors.idlequeue import no_job_waits

if TYPE_CHECKING:
    from mirage.control.guard import Guards
    from mirage.control.journal import ChangedEntries
    from mirage.control.observing import Observer
    from mirage.domain.chain import ChainRecord
    from mirage.domain.decision import Prediction, WaitForecast
    from mirage.domain.job import Job, Seconds
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Appraiser:
    """Estimate by the active predictor; if it predicts no range, by its fallback."""

    observer: Observer
    guards: Guards
    journal: ChangedEntries

    def appraise(self, record: ChainRecord, snapshot: Snapshot, latest: Seconds) -> ChainRecord:
        """The record, with the wait of a successor submitted now where its predecessor has just ended.

        ``latest``: seconds after that end; later the queue is another one. Raises ``StoreUnavailable``: no other
        error costs the chain its turn.
        """
        link = unappraised(record, snapshot.time, latest)
        if link is None:
            return record
        try:
            return self._appraised(record, link, snapshot)
        except StoreUnavailable:
            raise
        except Exception as error:
            text = f"cannot estimate the time saved by the handover to link {link.index}: {error_text(error)}"
            self.journal.write(Entry(snapshot.time, record.chain.chain_id, EntryKind.TROUBLE, text, link.index))
        return record

    def _appraised(self, record: ChainRecord, link: Link, snapshot: Snapshot) -> ChainRecord:
        guard = self.guards.of("")
        job = snapshot.link(link.tag, record.chain.owner)
        without = _without(snapshot, job)
        if job is not None and no_job_waits(without, job.partition):  # its predecessor's nodes are free
            return record.with_link(replace(link, alternative=Alternative.certain(0)))
        observation = self.observer.observe(without, None, record.chain.link_request(link.index), guard.wants)
        forecast = _range_of(guard.predict(observation).prediction)
        if forecast is None:
            forecast = _range_of(guard.instead(observation, "predicts no range").prediction)
        if forecast is None:
            return record
        waits = (max(0, round(forecast.at(level) - snapshot.time)) for level in (0.1, 0.5, 0.9))
        return record.with_link(replace(link, alternative=Alternative(*waits)))


def unappraised(record: ChainRecord, now: Seconds, latest: Seconds) -> Link | None:
    """The link that was submitted early to a predecessor whose end came within ``latest`` before ``now``."""
    after: Link | None = None
    for link in reversed(record.links) if not record.over else ():
        if not (link.started or link.waiting):
            continue
        if not link.final:
            after = link
            continue
        if after is None or after.alternative is not None or not link.end_known:
            return None
        if after.submit == ABSENT or submitted_at_end(after.submit, link.end, link.limit_end):
            return None
        return after if link.end <= now <= link.end + latest else None
    return None


def _without(snapshot: Snapshot, job: Job | None) -> Snapshot:
    """The same queue, had the job never been submitted."""
    if job is None:
        return snapshot
    pending, running = (
        jobs.take(np.flatnonzero(jobs.job_id != int(job.job_id))) for jobs in (snapshot.pending, snapshot.running)
    )
    return replace(snapshot, pending=pending, running=running)


def _range_of(prediction: Prediction) -> WaitForecast | None:
    """``None`` where no start is predicted, or a single time, as by predictors that only follow a rule."""
    forecast = forecast_of(prediction)
    return forecast if forecast is not None and len(forecast.starts) > 1 else None
