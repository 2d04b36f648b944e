"""Hostile input and output of a user's process."""

from __future__ import annotations

import resource
import subprocess
import time

import pytest

from mirage.backends.execution import TooMuch, converse


def process(script: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(["/bin/sh", "-c", script], stdin=pipe, stdout=pipe, stderr=pipe)


@pytest.mark.parametrize("size", [0, 1, 8_000_000])
def test_input_goes_in_and_both_outputs_come_out(size: int) -> None:
    with process("echo complaint >&2; wc -c") as made:
        out, err = converse(made, b"x" * size, 60, 1_000)
    assert (out.strip(), err) == (str(size).encode(), b"complaint\n")


@pytest.mark.parametrize("where", ["", ">&2"])
def test_a_flood_is_cut_off(where: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with process(f"exec cat /dev/zero {where}") as made:
        with pytest.raises(TooMuch):
            converse(made, b"x" * 1_000_000, 60, 100_000)
        made.kill()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


@pytest.mark.parametrize("script", ["sleep 60", "cat > /dev/null; sleep 60", "exec 0<&-; sleep 60"])
def test_silence_ends_in_time(script: str) -> None:
    began = time.monotonic()
    with process(script) as made:
        with pytest.raises(TimeoutError):
            converse(made, b"x" * 1_000_000, 0.5, 1_000)
        made.kill()
    assert time.monotonic() - began < 30


def test_one_that_reads_nothing_and_ends_is_heard() -> None:
    with process("exec 0<&-; echo done") as made:
        assert converse(made, b"x" * 1_000_000, 60, 1_000) == (b"done\n", b"")
