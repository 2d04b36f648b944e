"""When everything here happens."""

NOW = 1_795_271_400
"""2026-11-21 14:30 UTC."""
HOUR = 3_600
