"""``python -m mirage.backends.aside PARENT WORDS``: becomes a command of least priority that ends with its parent.

A daemon that is killed cannot end what it has started; the kernel does, whatever the command is.
"""

from __future__ import annotations

import os
import sys

from mirage.ownprocess import end_with_parent, own_python

_LEAST = 19


def beside(argv: list[str]) -> list[str]:
    """The command line that runs ``argv`` so, for the process that calls this."""
    return own_python("-m", __spec__.name, str(os.getpid()), *argv)


def _main() -> None:
    parent, *argv = sys.argv[1:]
    end_with_parent()
    if os.getppid() != int(parent):  # it has ended before it could be watched
        sys.exit(1)
    os.nice(_LEAST)
    os.execvp(argv[0], argv)  # noqa: S606 - a list of words, by this program


if __name__ == "__main__":
    _main()
