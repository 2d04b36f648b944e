"""The text that Prometheus scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.exposition import choose_encoder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics, and how to call their format: OpenMetrics where ``accept`` asks for it."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
