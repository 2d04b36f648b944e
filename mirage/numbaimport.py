"""Numba, without the settings that it would take from the working directory; import it from here alone.

Numba reads ``.numba_config.yaml`` of the working directory as it is imported and again as it compiles. It names
files that numba writes (``chrome_trace``), so in a directory where others may write they would choose a file that
the caller overwrites. Variables of the environment (``NUMBA_...``) count: they are the caller's own.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any


class _NoYaml(ModuleType):
    """Stands for the parser while numba is imported: every file says nothing."""

    @staticmethod
    def safe_load(_file: object) -> dict[str, Any]:
        """No settings; the file is not read."""
        return {}


_yaml = sys.modules.get("yaml")
sys.modules["yaml"] = _NoYaml("yaml")
try:
    import numba
    from numba import njit, types
    from numba.core import config
    from numba.extending import intrinsic
finally:
    del sys.modules["yaml"]
    if _yaml is not None:
        sys.modules["yaml"] = _yaml

config._config_fname = os.devnull  # no regular file, so numba does not read it as it compiles

VERSION: str = numba.__version__
__all__ = ["VERSION", "config", "intrinsic", "njit", "types"]
