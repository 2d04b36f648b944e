"""``--signal`` and ``--mail-type``: what sbatch (22.05) takes and what it rejects by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirage.domain.errors import BadSpelling
from mirage.slurm.jobrequest import Sources, Surroundings, read_request
from mirage.slurm.sbatchoptions import Given

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest

AROUND = Surroundings("job.sh", "alice", "/home/alice", 1_700_000_000, lambda partition: 3_600)


def request(option: str, value: str) -> JobRequest:
    return read_request(Sources(command=(Given(option, value, "command line"),)), AROUND, "#!/bin/sh\n")[0]


@pytest.mark.parametrize(
    "text",
    ["USR1", "SIGUSR1@10", "B:usr1@60", "b:USR1", "RB:XCPU", "R:TERM@0", "B:9", "12", "64", "99@65535", "sigterm"],
)
def test_signal_that_sbatch_takes_is_taken(text: str) -> None:
    assert request("signal", text).warn is not None


@pytest.mark.parametrize(
    "text",
    [
        *("FOO", "USR", "WINCH", "RTMIN", "RTMIN+1", "0", "B:00", "usr1x", "SIGSIGUSR1", "X:USR1"),
        *("USR1@65536", "USR1@99999", "USR1@-1", "USR1@x", ""),
    ],
)
def test_signal_that_sbatch_rejects_is_rejected(text: str) -> None:
    with pytest.raises(BadSpelling, match="command line: expected a signal"):
        request("signal", text)


@pytest.mark.parametrize(
    "text", ["END", "end,TIME_LIMIT_80", "END,FOO", "NONE", "ARRAY_TASKS", ",,Fail", "invalid_depend", "all"]
)
def test_mail_type_that_sbatch_takes_is_passed_on(text: str) -> None:
    """It ignores words that it does not know next to one that it knows."""
    batch = request("mail-type", text).batch
    assert batch is not None
    assert batch.options == (f"--mail-type={text}",)


@pytest.mark.parametrize("text", ["FOO", "TIME_LIMIT_70", "FOO,BAR", "END FAIL", ",", ""])
def test_mail_type_that_sbatch_rejects_is_rejected(text: str) -> None:
    with pytest.raises(BadSpelling, match="command line: expected BEGIN"):
        request("mail-type", text)
