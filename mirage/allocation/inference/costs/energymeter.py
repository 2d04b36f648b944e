"""Joules of the CPUs' packages by Linux's powercap interface (RAPL): of all that ran, not of one process."""

from __future__ import annotations

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
UNKNOWN = "not known: 0 stands for it"


class PackageMeter:
    """Energy counters of all CPU packages, in microjoules that wrap around."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = sorted(zone for zone in root.glob("intel-rapl:*") if zone.name.count(":") == 1)
        self._before = self._read()

    @property
    def source(self) -> str:
        """Source of the figures, for a manifest."""
        return "RAPL, whole CPU packages" if self._before else UNKNOWN

    def joules(self) -> float:
        """Joules since the meter was created or last read; 0 if no counter is readable."""
        now = self._read()
        if not now or len(now) != len(self._before):
            return 0.0
        taken = [(after - before) % wrap for (after, wrap), (before, _) in zip(now, self._before, strict=True)]
        self._before = now
        return sum(taken) / 1e6

    def _read(self) -> list[tuple[int, int]]:
        """Counter and range of each package; empty where one cannot be read."""
        try:
            return [(_number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")) for zone in self._zones]
        except (OSError, ValueError):
            return []


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))
