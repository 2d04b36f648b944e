"""Counters and histograms since the start of the process, thread-safe; and their text format."""

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
from prometheus_client.exposition import choose_encoder

from mirage import __version__
from mirage.control.forecasts import PLACES
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.control.forecasts import OpenForecast
    from mirage.domain.chain import ChainId
    from mirage.domain.journal import Entry

ANSWERS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Durations of cycles, polls and predictions."""
GAPS = (0.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0)
"""Interruptions, overlaps and forecast errors."""


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type; OpenMetrics if ``accept`` requests it."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


_NOBODY = "none"
"""Predictor label of decisions without a prediction."""


class Meters:
    """All counters and histograms; no label names a user, a chain or a job."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self.known: frozenset[str] = frozenset()
        """Predictors of the configuration: only their labels contain parameters."""
        self._submitted: dict[ChainId | None, bool] = {}

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"mirage_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"mirage_{name}", text, labels, buckets=bounds, registry=registry)

        Info("mirage_build", "Versions of Mirage and Python.", registry=registry).info(
            {"version": __version__, "python": platform.python_version()}
        )
        ProcessCollector(namespace="mirage", registry=registry)
        self._cycles = counter("cycles", "Cycles of the decision loop.", "result")
        self._chain_failures = counter("chain_failures", "Errors limited to one chain or one command.")
        self._cycle_time = histogram("cycle_duration_seconds", "Duration of cycles, in seconds.", ANSWERS)
        self._poll_time = histogram(
            "poll_duration_seconds", "Duration of polls of the cluster, in seconds.", ANSWERS
        )
        self._decisions = counter("decisions", "Decisions about successors.", "action", "predictor")
        self._shadows = counter("shadow_decisions", "Decisions of shadow predictors.", "predictor")
        self._disagreements = counter(
            "shadow_disagreement", "Shadow decisions that differ from the active predictor's.", "predictor"
        )
        self._fallbacks = counter("fallbacks", "Predictions replaced by the fallback.", "predictor")
        self._prediction_time = histogram(
            "prediction_duration_seconds", "Duration of predictions, in seconds.", ANSWERS, "predictor"
        )
        self._errors = histogram(
            "prediction_error_seconds",
            "Absolute difference between predicted median and real start, in seconds.",
            GAPS,
            "predictor",
        )
        self._places = counter(
            "forecasts",
            "Starts before P10 of their forecast (early), from P10 to P90 (within), or after P90 (late).",
            "predictor",
            "start",
        )
        self._interruptions = histogram(
            "interruption_seconds", "Seconds without a running link, per completed handover.", GAPS
        )
        self._overlaps = histogram(
            "overlap_seconds", "Seconds with two running links, per completed handover.", GAPS
        )
        self._saved = counter(
            "saved_seconds", "Seconds of interruption avoided by early submission, by medians of forecasts."
        )
        self._submissions = counter("submissions", "Submissions of links to Slurm.", "result")
        self._notifications = counter("notifications", "Notifications.", "channel", "result")
        for result in ("ok", "failed"):
            self._cycles.labels(result)
        for result in ("accepted", "rejected", "not_permitted", "unavailable"):
            self._submissions.labels(result)

    def cycled(self, seconds: float, *, failed: bool) -> None:
        """Count a finished cycle."""
        self._cycles.labels("failed" if failed else "ok").inc()
        self._cycle_time.observe(seconds)

    def chain_failed(self) -> None:
        """Count an error limited to one chain or one command."""
        self._chain_failures.inc()

    def polled(self, seconds: float) -> None:
        """Count a poll of the cluster, successful or not."""
        self._poll_time.observe(seconds)

    def predicted(self, predictor: str, seconds: float) -> None:
        """Count a prediction."""
        self._prediction_time.labels(self._called(predictor)).observe(seconds)

    def submitted(self, result: str) -> None:
        """Count a submission; ``result``: ``accepted``, or why not."""
        self._submissions.labels(result).inc()

    def expect(self, channels: Iterable[str]) -> None:
        """Create the series of these channels at 0, so that the first message counts as an increase."""
        for channel in channels:
            for result in ("sent", "failed", "dropped"):
                self._notifications.labels(channel, result)

    def know(self, predictors: Iterable[str]) -> None:
        """Create the series of the configured predictors."""
        self.known = frozenset(predictors)
        for name in self.known:
            self._fallbacks.labels(self._called(name))

    def notified(self, channel: str, result: str) -> None:
        """Count a message; ``result``: ``sent``, ``failed`` or ``dropped``."""
        self._notifications.labels(channel, result).inc()

    def came_true(self, foreseen: OpenForecast) -> None:
        """Record the error of a forecast when its link has started."""
        name = self._called(foreseen.predictor)
        self._errors.labels(name).observe(abs(foreseen.error))
        if len(foreseen.forecast.levels) > 1:  # a point forecast has no P10 and P90
            for place in PLACES:  # an alert needs all of them
                self._places.labels(name, place).inc(place == foreseen.place)

    def hear(self, entry: Entry) -> None:
        """Count a journal entry; only called in the loop's thread."""
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
        """Return the label of a predictor: parameters that users choose must not create series."""
        kind, _, parameter = predictor.partition(":")
        if predictor in self.known and parameter and "/" not in parameter:
            return predictor
        return kind
