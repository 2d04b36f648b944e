"""Files by which jobs speak to Mirage, looked for on this machine."""

from __future__ import annotations

from pathlib import Path


class LocalFiles:
    """Sees what the daemon's user may see."""

    def exists(self, path: str) -> bool:
        """Whether ``path`` exists now; ``False`` also where it cannot be looked at."""
        try:
            return Path(path).exists()
        except OSError:
            return False
