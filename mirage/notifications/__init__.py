"""Notifications: rules and channels (docs/observability.md)."""
