"""Metrics of the daemon for Prometheus (docs/observability.md)."""
