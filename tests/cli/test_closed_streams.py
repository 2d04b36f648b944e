"""Commands whose caller has closed standard streams (``>&-``) say what they have to say where they can."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest

from mirage import __version__

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = {"<&-": 0, ">&-": 1, "2>&-": 2}


@pytest.mark.parametrize(
    "closed", [list(filter(None, each)) for each in product(*([name, ""] for name in CLOSED))][:-1]
)
def test_commands_work_where_streams_are_closed(tmp_path: Path, closed: list[str]) -> None:
    ask = f'"$0" -m mirage chains --socket {tmp_path}/none {" ".join(closed)}'
    done = subprocess.run(
        ["sh", "-c", ask, sys.executable], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 5, done.stderr
    assert ("no daemon answers" in done.stderr) == ("2>&-" not in closed)
    assert "Traceback" not in done.stderr


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """The printed text would be written into it."""
    code = (
        "from mirage.cli.printing import open_streams, show\n"
        "open_streams()\n"
        f"file = open({str(tmp_path / 'kept')!r}, 'w')\n"
        "show('said'); show('warned', err=True)\n"
        "assert file.fileno() > 2\n"
    )
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" >&- 2>&- <&-', sys.executable, code], check=False)
    assert done.returncode == 0
    assert (tmp_path / "kept").read_text() == ""


def test_open_streams_stay_what_they_are() -> None:
    code = "from mirage.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"mirage {__version__}\n"


@pytest.mark.parametrize("given", ["{endless} | {mirage} -t 5", "{mirage} -t 5 {fifo}"])
def test_endless_script_takes_no_more_memory_than_the_longest(tmp_path: Path, given: str) -> None:
    """2 GiB of address space: an interpreter with its libraries fits."""
    endless = "{ echo '#!/bin/sh'; yes; }"
    mirage = f"{sys.executable} -m mirage submit --dry-run"
    fifo = tmp_path / "fifo"
    line = given.format(endless=endless, mirage=mirage, fifo=fifo)
    if "fifo" in given:
        line = f"mkfifo {fifo}; {endless} >{fifo} 2>/dev/null & {line}"
    done = subprocess.run(
        ["sh", "-c", f"ulimit -v 2097152; {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert "4194304" in done.stderr
