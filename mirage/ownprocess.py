"""This interpreter in a process of its own, which imports nothing from the directory in which it is started.

``python -m`` and ``python -c`` look for every module in the working directory first. Whoever may write there, as
everybody may in ``/tmp``, would have their code run by the account that starts the process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import SpawnContext


def own_python(*words: str) -> list[str]:
    """The command of this interpreter with these arguments."""
    return [sys.executable, "-P", *words]


def spawning() -> SpawnContext:
    """Where worker processes come from: started afresh, as forking a process that has threads is not safe.

    Their command line is the standard library's, so the variable says from now on what ``-P`` does.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    return multiprocessing.get_context("spawn")
