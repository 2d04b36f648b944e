"""`PrivateData=nodes`: Slurm shows an ordinary user the queue and no nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fake_slurm.fake import FakeSlurm

from mirage.backends.cli import CliCluster
from mirage.backends.execution import CommandRunner

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DENIED = "#!/bin/sh\necho slurm_load_node: Access/permission denied >&2\nexit 1\n"
"""The output of ``sinfo`` 22.05."""


def test_queue_is_seen_where_slurm_shows_no_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sinfo").write_text(DENIED)
    (tmp_path / "sinfo").chmod(0o755)
    with FakeSlurm(tmp_path / "slurm") as slurm:
        environment = slurm.environment("alice")
        own = CommandRunner(environment)
        assert own.run(["sbatch", "--partition=cpu", "--time=10", "--wrap=true"]).status == 0
        commands = CommandRunner(environment | {"PATH": f"{tmp_path}:{environment['PATH']}"})
        cluster = CliCluster(commands, slurm)
        for _ in range(3):
            seen = cluster.snapshot()
            assert (seen.partitions, len(seen.pending) + len(seen.running)) == ((), 1)
    assert caplog.text.count("event=nodes_hidden") == 1
