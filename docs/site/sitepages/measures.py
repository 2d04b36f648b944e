"""The reference of the metrics, from the registries that are scraped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.meters import ServingMeters
from mirage.control.status import Status
from mirage.domain.snapshot import Snapshot
from mirage.metrics.gauges import GaugeSources, StateCollector
from mirage.metrics.meters import Meters
from sitepages.markdown import code, page, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry, Metric

_ENDINGS = {"counter": "_total", "info": "_info"}
_HEADING = ("metric", "kind", "labels", "meaning")
_ABOUT = """\
The metrics of the daemon's `GET /metrics`, then those of a gateway. [Monitoring a daemon](../observability.md) and
[Requests inside an allocation](../serving.md#measuring) describe scraping, alerts and the dashboard.

A counter has its `_total`, a histogram `_bucket`, `_sum` and `_count`. No label names a user, a chain or a job."""


def measures_page() -> str:
    """Every metric of the daemon and of a gateway."""
    return page(
        "# Metrics",
        _ABOUT,
        "## The daemon",
        table(_HEADING, _rows(daemon_registry())),
        "## A gateway inside an allocation",
        table(_HEADING, _rows(ServingMeters((), ()).registry)),
    )


def daemon_registry() -> CollectorRegistry:
    """All that a daemon registers, of one that has seen nothing yet."""
    registry = Meters().registry
    status = Status(0, "", Snapshot.unseen(0))
    registry.register(
        StateCollector(GaugeSources(status=lambda: status, now=lambda: 0, unsaved=lambda: 0, impediment=str))
    )
    return registry


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    labels = _labels(registry)
    for metric in sorted(registry.collect(), key=lambda metric: metric.name):
        name = metric.name + _ENDINGS.get(metric.type, "")
        found = labels.get(metric.name) or _sampled(metric)
        yield code(name), metric.type, ", ".join(found), plain(metric.documentation)


def _sampled(metric: Metric) -> list[str]:
    return sorted({label for sample in metric.samples for label in sample.labels} - {"le"})


def _labels(registry: CollectorRegistry) -> dict[str, list[str]]:
    """By metric; those that nothing has been counted for yet have no sample to show them."""
    collectors: Any = registry._collector_to_names  # no public API has labels without samples
    return {each._name: list(each._labelnames) for each in collectors if hasattr(each, "_labelnames")}
