"""Becomes a command of Slurm in the directory and with the environment asked for. Run by its path, not imported.

A shell would do it, but dash drops variables whose names are no identifiers, such as ``BASH_FUNC_module%%``. A
``chdir`` between fork and exec would do it, but a directory that hangs would hang the process that starts it.
This imports nothing of Mirage and no site packages, so that it starts in milliseconds.

``launcher.py ORDER SCRIPT``: open file descriptors. ORDER holds what ``read_order`` reads, and receives ``!ERRNO``
where the command cannot be run. SCRIPT becomes ``/dev/fd/3`` of the command; -1: no script.
"""

import contextlib
import fcntl
import os
import signal
import sys

_SCRIPT = 3
_ABOVE = 10
"""Descriptors from here on are out of the script's way."""


def main() -> int:
    """Entry point: returns only where the command cannot be run."""
    order, script = int(sys.argv[1]), int(sys.argv[2])
    report = fcntl.fcntl(order, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    os.close(order)
    program, directory, nice, arguments, environment = read_order(report)
    with contextlib.suppress(OSError):
        os.chdir(directory)
    if nice:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, int(nice))
    if script >= 0:
        os.dup2(script, _SCRIPT, inheritable=True)
        if script != _SCRIPT:
            os.close(script)
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:  # by Python or by who started us; it would be inherited
            signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, arguments, environment)  # noqa: S606 - without a shell is the purpose
    except OSError as error:
        os.ftruncate(report, 0)
        os.pwrite(report, b"!%d" % (error.errno or 0), 0)
    return 127


def read_order(descriptor: int) -> tuple[bytes, bytes, bytes, list[bytes], dict[bytes, bytes]]:
    """Program, directory, nice value (empty: as it is), arguments and environment, all of them bytes."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        program, directory, nice, count, *rest = file.read().split(b"\0")
    arguments, variables = rest[: int(count)], rest[int(count) :]
    pairs = (variable.partition(b"=") for variable in variables)
    return program, directory, nice, arguments, {name: value for name, _, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
