"""The installed programs, kept apart from ``PYTHONPATH``.

That variable is for the user's jobs: modules of an HPC site set it to libraries for another Python, which would
end Mirage at its first import. Jobs still get the variable. ``python -m mirage`` uses it.
"""

from __future__ import annotations

# Both are in memory before this module: any other import would be searched in the directories of the variable.
import os
import sys


def _isolate() -> None:
    """Take the directories that ``PYTHONPATH`` names from the search path, other than this program's own.

    An empty part of the variable is the working directory, which may be another user's.
    """
    real = os.path.realpath
    parts = os.environ.get("PYTHONPATH", "")
    named = {real(place or os.curdir) for place in parts.split(os.pathsep)} if parts else set()
    library = real(os.path.dirname(os.__file__))  # noqa: PTH120 - pathlib is not imported yet
    own = {real(f"{__file__}/../.."), library, f"{library}/lib-dynload"}
    before = list(sys.path)
    sys.path[:] = [place for place in before if real(place) not in named - own]
    import sysconfig

    own |= {real(place) for place in sysconfig.get_paths().values()}
    sys.path[:] = [place for place in before if real(place) not in named - own]


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
