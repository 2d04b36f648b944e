"""The installed programs, kept apart from ``PYTHONPATH``.

That variable is for the user's jobs: modules of an HPC site set it to libraries for another Python, which would
end Mirage at its first import. Jobs still get the variable. ``python -m mirage`` uses it.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def _isolate() -> None:
    """Take the directories that ``PYTHONPATH`` names from the search path, other than this program's own."""
    own = {
        Path(__file__).resolve().parents[1],
        *(Path(place).resolve() for place in sysconfig.get_paths().values()),
    }
    named = {Path(place).resolve() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place}
    sys.path[:] = [place for place in sys.path if Path(place).resolve() not in named - own]


def mirage() -> None:
    """Entry point of ``mirage``, without the modules of ``PYTHONPATH``."""
    _isolate()
    from mirage.cli.main import main

    main()


def mbatch() -> None:
    """Entry point of ``mbatch``, as above."""
    _isolate()
    from mirage.cli.submit import main

    main()


def act() -> None:
    """Entry point of ``mirage-act``, as above."""
    _isolate()
    from mirage.cli.act import main

    main()
