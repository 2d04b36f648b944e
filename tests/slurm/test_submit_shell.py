"""A job inherits from the shell that submits it: umask, resource limits, nice value."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from mirage.domain.job import NO_RESOURCE_LIMIT, BatchScript, JobRequest
from mirage.slurm.sbatch import (
    RESOURCES,
    limit_variables,
    process_variables,
    read_resource_limits,
    sbatch_arguments,
    sbatch_environment,
)

LIMITS = (("NOFILE", 512), ("STACK", NO_RESOURCE_LIMIT), ("CORE", 0))
BATCH = BatchScript("#!/bin/sh\n", resource_limits=LIMITS)
PLAIN = {
    "SLURM_RLIMIT_NOFILE": "512",
    "SLURM_RLIMIT_STACK": "18446744073709551615",
    "SLURM_RLIMIT_CORE": "0",
}


def with_options(*options: str) -> BatchScript:
    return BatchScript("#!/bin/sh\n", options, resource_limits=LIMITS)


def test_shell_state_is_read_as_it_is() -> None:
    code = "from mirage.slurm.sbatch import *; print(oct(read_umask()), read_umask(), read_resource_limits())"
    command = f"umask 027; ulimit -n 99; ulimit -c 0; {sys.executable} -c '{code}'"
    found = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert found.startswith("0o27 23 (")
    assert "('NOFILE', 99)" in found
    assert "('CORE', 0)" in found


def test_shell_limits_are_those_that_slurm_passes_on() -> None:
    limits = dict(read_resource_limits())
    assert tuple(limits) == RESOURCES
    assert limits["NOFILE"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ((), PLAIN),
        (("--propagate=ALL",), {name: "U" + value for name, value in PLAIN.items()}),
        (("--propagate",), {name: "U" + value for name, value in PLAIN.items()}),
        (("--propagate=NOFILE, RLIMIT_CORE",), {"SLURM_RLIMIT_NOFILE": "U512", "SLURM_RLIMIT_CORE": "U0"}),
        (("--propagate=ALL", "--propagate=NONE"), {}),
        (("--propagate=BOTTLES",), {}),
        (("--get-user-env",), {}),
        (("--get-user-env=10L",), {}),
    ],
)
def test_limits_are_sent_as_sbatch_sends_them(options: tuple[str, ...], variables: dict[str, str]) -> None:
    assert limit_variables(with_options(*options)) == variables


def test_sbatch_adds_no_limits_of_its_own_where_the_shells_are_known() -> None:
    known, unknown = JobRequest("a", "alice", 60, batch=BATCH), JobRequest("a", "alice", 60, batch=BatchScript(""))
    assert "--propagate=NONE" in sbatch_arguments(known)
    assert not any(word.startswith("--propagate") for word in sbatch_arguments(unknown))
    assert sbatch_environment(known, {}).items() >= PLAIN.items()
    assert not any(name.startswith("SLURM_") for name in sbatch_environment(unknown, {}))
    refused = JobRequest("a", "alice", 60, batch=with_options("--propagate=BOTTLES"))
    assert [word for word in sbatch_arguments(refused) if "propagate" in word] == ["--propagate=BOTTLES"]


def test_umask_is_the_shells_unless_the_user_names_another() -> None:
    assert process_variables(BatchScript("", umask=0o077)) == {"SLURM_UMASK": "0077"}
    assert process_variables(BatchScript("", umask=0)) == {"SLURM_UMASK": "0000"}
    assert process_variables(BatchScript("")) == {}
    assert process_variables(BatchScript("", umask=0o077, environment=(("SLURM_UMASK", "0007"),))) == {}
