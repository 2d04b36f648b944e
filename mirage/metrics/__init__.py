"""What the daemon counts and measures of itself, as Prometheus reads it (docs/observability.md)."""
