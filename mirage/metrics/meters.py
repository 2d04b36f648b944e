"""Counters and histograms: what happened since the process began. Every thread may count."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from mirage import __version__
from mirage.control.forecasts import PLACES
from mirage.domain.journal import EntryKind
from mirage.metrics.buckets import ANSWERS, GAPS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.control.forecasts import Foreseen
    from mirage.domain.chain import ChainId
    from mirage.domain.journal import Entry

_NOBODY = "none"
"""Who predicted where no prediction was asked."""


class Meters:
    """All that is counted; no label ever names a user, a chain or a job."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self.known: frozenset[str] = frozenset()
        """Predictors that the configuration names: the only ones told apart by their parameters."""
        self._submitted: dict[ChainId | None, bool] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"mirage_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"mirage_{name}", text, labels, buckets=bounds, registry=registry)

        Info("mirage_build", "Which Mirage this is.", registry=registry).info(
            {"version": __version__, "python": platform.python_version()}
        )
        ProcessCollector(namespace="mirage", registry=registry)
        self._cycles = counter("cycles", "Cycles of the loop.", "result")
        self._chain_failures = counter("chain_failures", "Errors in the turn of one chain, or in one command.")
        self._cycle_time = histogram("cycle_duration_seconds", "How long cycles took.", ANSWERS)
        self._poll_time = histogram("poll_duration_seconds", "How long looks at the cluster took.", ANSWERS)
        self._decisions = counter("decisions", "Decisions about successors.", "action", "predictor")
        self._shadows = counter("shadow_decisions", "What predictors in shadow would have decided.", "predictor")
        self._disagreements = counter(
            "shadow_disagreement", "Where a predictor in shadow would have decided otherwise.", "predictor"
        )
        self._fallbacks = counter("fallbacks", "Predictions that another predictor had to make.", "predictor")
        self._prediction_time = histogram(
            "prediction_duration_seconds", "How long predictors took.", ANSWERS, "predictor"
        )
        self._errors = histogram(
            "prediction_error_seconds",
            "By how much the median of a forecast missed the start, either way.",
            GAPS,
            "predictor",
        )
        self._places = counter(
            "forecasts",
            "Starts before P10 of their forecast (early), up to P90 (within), or after it (late).",
            "predictor",
            "start",
        )
        self._interruptions = histogram(
            "interruption_seconds", "Seconds without a running link, of complete handovers.", GAPS
        )
        self._overlaps = histogram(
            "overlap_seconds", "Seconds with two running links, of complete handovers.", GAPS
        )
        self._saved = counter(
            "saved_seconds", "Seconds of interruption that early submissions spared, by the medians of forecasts."
        )
        self._submissions = counter("submissions", "Links sent to Slurm.", "result")
        self._notifications = counter("notifications", "Messages to people.", "channel", "result")
        for result in ("ok", "failed"):
            self._cycles.labels(result)
        for result in ("accepted", "rejected", "not_permitted", "unavailable"):
            self._submissions.labels(result)

    def cycled(self, seconds: float, *, failed: bool) -> None:
        """A cycle has ended."""
        self._cycles.labels("failed" if failed else "ok").inc()
        self._cycle_time.observe(seconds)

    def chain_failed(self) -> None:
        """An error ended the turn of one chain, or one command."""
        self._chain_failures.inc()

    def polled(self, seconds: float) -> None:
        """The cluster was looked at, without success or not."""
        self._poll_time.observe(seconds)

    def predicted(self, predictor: str, seconds: float) -> None:
        """A predictor was asked."""
        self._prediction_time.labels(self._called(predictor)).observe(seconds)

    def submitted(self, result: str) -> None:
        """A link was sent; ``accepted``, or why not."""
        self._submissions.labels(result).inc()

    def expect(self, channels: Iterable[str]) -> None:
        """Messages go by these: each result is a series from the start, so that its first is an increase."""
        for channel in channels:
            for result in ("sent", "failed", "dropped"):
                self._notifications.labels(channel, result)

    def know(self, predictors: Iterable[str]) -> None:
        """These predictors are configured, and may fail."""
        self.known = frozenset(predictors)
        for name in self.known:
            self._fallbacks.labels(self._called(name))

    def notified(self, channel: str, result: str) -> None:
        """A message was ``sent``, ``failed`` or ``dropped``."""
        self._notifications.labels(channel, result).inc()

    def came_true(self, foreseen: Foreseen) -> None:
        """A link has started of which something was predicted."""
        name = self._called(foreseen.predictor)
        self._errors.labels(name).observe(abs(foreseen.error))
        if len(foreseen.forecast.levels) > 1:  # who names one time only says nothing of P10 and P90
            for place in PLACES:  # an alert compares one of them with their sum: none may be missing
                self._places.labels(name, place).inc(place == foreseen.place)

    def hear(self, entry: Entry) -> None:
        """An entry of the journal; the loop's thread alone."""
        if entry.kind is EntryKind.DECISION and entry.link:
            self._decided(entry)
        elif entry.kind is EntryKind.SHADOW:
            name = self._called(entry.predictor)
            self._shadows.labels(name).inc()
            if self._submitted.get(entry.chain, entry.submits) is not entry.submits:
                self._disagreements.labels(name).inc()
        elif entry.kind is EntryKind.OUTCOME and entry.outcome is not None:
            self._interruptions.observe(entry.outcome.interruption)
            self._overlaps.observe(entry.outcome.overlap)
            self._saved.inc(max(0, entry.outcome.saved.p50) if entry.outcome.saved is not None else 0)

    def _decided(self, entry: Entry) -> None:
        self._submitted[entry.chain] = entry.submits
        name = self._called(entry.predictor) if entry.predictor else _NOBODY
        self._decisions.labels("submit" if entry.submits else "hold", name).inc()
        if entry.asked:
            self._fallbacks.labels(self._called(entry.asked)).inc()

    def _called(self, predictor: str) -> str:
        """Users name predictors for their chains: whatever parameter they think of must not become a series."""
        kind, _, parameter = predictor.partition(":")
        if predictor in self.known and parameter and "/" not in parameter:
            return predictor
        return kind
