"""Messages to people: what is worth one, and the channels by which they go (docs/observability.md)."""
