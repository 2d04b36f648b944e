"""Text format for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics and their content type; OpenMetrics if ``accept`` requests it."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
