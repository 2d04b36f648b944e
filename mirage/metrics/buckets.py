"""Bounds of the histograms, in seconds: few, since each is a series."""

from __future__ import annotations

ANSWERS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""How long machines take: a cycle, a look at the cluster, a prediction."""
GAPS = (0.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 43_200.0, 86_400.0, 172_800.0)
"""How long handovers take, and by how much forecasts err."""
