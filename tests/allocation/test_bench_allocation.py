"""The benchmark of the simulated pool: its rows, and a peer that is a separate program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.bench.references import run_muri
from mirage.cli.main import app
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from pathlib import Path

PEER = """
import os, sys
said = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
import cvxpy
assert said["--schedule"] == "shortest-gpu" and open(said["--trace_file"]).readline().startswith("job_id")
os.mkdir(said["--log_path"])
with open(said["--log_path"] + "/job.csv", "w") as log:
    log.write("time,job,a,b,c,end,JCT,x,y,z,preempt\\n")
    log.write("0,0,0,0,0,10,10.5,0,0,0,0\\n0,1,0,0,0,20,20.5,0,0,0,0\\n")
"""
TRACE = """job_id,num_gpu,submit_time,iterations,model_name,iteration_time
0,1,0,2000,bert,100
1,8,5000,2000,bert,100
"""


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    (tmp_path / "trace-data").mkdir()
    (tmp_path / "trace-data" / "trace1.csv").write_text(TRACE)
    (tmp_path / "run_sim.py").write_text(PEER)
    return tmp_path


def test_the_peer_is_asked_for_the_same_policy_and_its_log_is_read(peer: Path) -> None:
    found = run_muri(peer, "trace1")
    assert found.mean_jct == (10.5 + 20.5) / 2
    assert found.cpu_seconds > 0


def test_a_peer_that_fails_is_quoted(peer: Path) -> None:
    (peer / "run_sim.py").write_text("raise SystemExit('no such cluster')")
    with pytest.raises(MirageError, match="no such cluster"):
        run_muri(peer, "trace1")
    with pytest.raises(ConfigError, match="is not the directory 'simulator' of Muri"):
        run_muri(peer / "trace-data", "trace1")


def test_the_command_prints_both_sides(peer: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "allocation", "--muri", str(peer), "--json"])
    assert done.exit_code == 0, done.output
    whole, beside, decision = json.loads(done.stdout)
    assert [label for label, _ in whole["rows"]] == [
        "fifo, best-fit",
        "sjf, best-fit",
        "srsf with preemption, best-fit",
        "a copy of the pool",
    ]
    # 203 s each, on devices enough for both together but for the second's eight: on another node.
    assert dict(beside["rows"])["this simulator"].endswith("mean completion 203 s")
    assert len(decision["rows"]) == 2
