"""Compile the simulator in a separate process, whose end frees the compiler's memory (about 1 GB).

A daemon that compiled it itself would keep that memory, and its loop would wait for the compiler.
"""

from __future__ import annotations

import logging
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.ownprocess import end_with_parent, own_python

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger(__name__)
_PATIENCE = 1_800.0
"""Seconds after which it is not waited for any longer."""
_DONE = "compiled"
"""File of the cache: everything is in it."""
COMMAND = ("-m", "mirage.bootstrap.compiling_apart")


def prepare_cache() -> None:
    """Compile the simulator unless it is in the cache; if that fails, the first caller compiles it."""
    from mirage.kernel_compiler import cache_folder
    from mirage.simulator import kernel

    compile_apart(cache_folder(Path(kernel.__file__).parent))


def compile_apart(cache: Path | None, argv: Sequence[str] = COMMAND) -> bool:
    """Whether the cache has the compiled simulator now. It takes minutes at most, at the least priority.

    ``cache``: the simulator's; ``None``: nothing can be kept.
    """
    if cache is None:
        return False
    if (cache / _DONE).exists():
        return True
    _LOG.info("event=simulator_compiles text='once, for some minutes' cache=%s", cache)
    try:
        done = subprocess.run(  # noqa: S603 - this program itself
            own_python(*argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        _LOG.warning("event=compiling_failed text=%r", str(error))
        return False
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        _LOG.warning("event=compiling_failed status=%s text=%r", done.returncode, said[-1] if said else "")
        return False
    with suppress(OSError):
        (cache / _DONE).touch()
    return True


def _main() -> None:
    """A daemon that ends takes its compiler with it."""
    end_with_parent()
    from mirage.bootstrap.simulated import compile_simulator

    with suppress(OSError):
        os.nice(19)
    compile_simulator()


if __name__ == "__main__":
    _main()
