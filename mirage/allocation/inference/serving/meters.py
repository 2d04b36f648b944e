"""Prometheus metrics of a gateway, by tenant, model and unit of its configuration."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from mirage.allocation.inference.scores import CORE_WATTS

if TYPE_CHECKING:
    from collections.abc import Sequence

_LATENCIES = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
_DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)


class ServingMeters:
    """Counters, gauges and histograms of one gateway."""

    def __init__(self, tenants: Sequence[str], models: Sequence[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"mirage_serving_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"mirage_serving_{name}", text, labels, buckets=bounds, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"mirage_serving_{name}", text, labels, registry=registry)

        self._requests = counter(
            "requests",
            "Requests answered before their deadline (kept) or after it (late), ended by the gateway"
            " (failed), rejected by the network (faulty), or left by their client (gone).",
            "tenant", "model", "result",
        )  # fmt: skip
        self._refused = counter("refused", "Rejected requests, by HTTP status.", "tenant", "status")
        self._latency = histogram(
            "latency_seconds", "Time from the request to its answer.", _LATENCIES, "tenant", "model"
        )
        self._queued = histogram("queue_seconds", "Time from the request to its start.", _LATENCIES, "tenant")
        self._joules = counter(
            "energy_joules", "Estimated energy: watts of the unit's kind by time.", "tenant", "model"
        )
        self._busy = counter("unit_busy_seconds", "Time that units worked on requests.", "unit")
        self.up = gauge("unit_up", "Whether a unit is up.", "unit")
        self.restarts = counter("worker_failures", "Workers that ended unexpectedly.", "unit")
        self.waiting = gauge("waiting", "Requests waiting for a unit.")
        self.running = gauge("running", "Requests running on units.")
        self._decision = histogram("decision_seconds", "Time that the policy took to decide.", _DECISIONS)
        self._decision_joules = counter(
            "decision_joules", "Estimated energy: watts of a core by time of decisions."
        )
        self.policy_faults = counter("policy_faults", "Decisions in which the policy failed.")
        self._result = cache(self._requests.labels)
        self._latency_of, self._queued_of = cache(self._latency.labels), cache(self._queued.labels)
        self._joules_of, self._busy_of = cache(self._joules.labels), cache(self._busy.labels)
        for tenant in tenants:
            for model in models:
                for result in ("kept", "late", "failed"):
                    self._result(tenant, model, result)

    def ended(self, tenant: str, model: str, result: str, seconds: float) -> None:
        """Count a completed request."""
        self._result(tenant, model, result).inc()
        if result in ("kept", "late"):
            self._latency_of(tenant, model).observe(seconds)

    def refused(self, tenant: str, status: int) -> None:
        """Count a rejected request."""
        self._refused.labels(tenant, str(status)).inc()

    def began(self, tenant: str, seconds: float) -> None:
        """Record the waiting time of a request."""
        self._queued_of(tenant).observe(seconds)

    def worked(self, tenant: str, model: str, unit: str, seconds: float, watts: float) -> None:
        """Record the time that a unit worked on a request."""
        self._busy_of(unit).inc(seconds)
        self._joules_of(tenant, model).inc(seconds * watts)

    def decided(self, seconds: float) -> None:
        """Record the time that the policy took."""
        self._decision.observe(seconds)
        self._decision_joules.inc(seconds * CORE_WATTS)

    def expose(self, accept: str) -> tuple[bytes, str]:
        """The metrics and their content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
