"""Bucket bounds of the histograms, in seconds; few, because each is a time series."""

from __future__ import annotations

ANSWERS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Durations of cycles, polls and predictions."""
GAPS = (0.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0)
"""Interruptions, overlaps and forecast errors."""
