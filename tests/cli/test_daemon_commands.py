"""``mirage daemon``, ``config`` and ``doctor`` as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.cli.main import app
from mirage.daemon.state_directory import read_beat
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

MAIN = "from mirage.cli.main import main; main()"


def mirage(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MIRAGE_", "XDG_"))}
    argv = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=clean | environment)


@pytest.mark.parametrize(
    "command", [("daemon",), ("config",), ("config", "show"), ("config", "check"), ("doctor",)]
)
def test_every_command_helps(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_the_daemon_runs_without_slurm(tmp_path: Path) -> None:
    """On a simulated cluster under load; a second start continues with the same clock."""
    file = tmp_path / "mirage.toml"
    file.write_text(
        f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}/run"\n[cluster]\nbackend = "simulated"\n'
    )
    for _ in range(2):
        ran = mirage("daemon", "--once", "--config", str(file))
        assert ran.returncode == 0, ran.stderr
    assert read_beat(tmp_path / "state" / "heartbeat").sentence == "no chain needs attention"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    store = open_store(f"sqlite:///{tmp_path}/state/mirage.db")
    times = store.snapshots.times(0, 1 << 40)
    assert len(times) == 2
    (first, *_) = store.snapshots.read(times[0], times[0] + 1)
    store.close()
    assert len(first.running) > 0, "the background load has warmed up"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[cluster]\nbackend = "rest"\n', "cluster.rest.url: the backend rest needs it"),
        ('[cluster]\nclock = "/nowhere/clock.json"\n', "/nowhere/clock.json: expected a JSON object"),
        ('[loop]\npredictor = "oracel"\n', "loop.predictor: no predictor 'oracel'"),
        ('[store]\nurl = "mysql://x"\n', "mysql"),
        ('[acting]\nmode = "token"\n', "cluster.rest.url: acting mode token needs it"),
        ('[acting]\nmode = "sudo"\nhelper = "mirage-act"\n', "acting.helper: expected an absolute path"),
        (
            '[cluster]\nbackend = "simulated"\n[cluster.simulated]\ntrace = "nowhere.swf"\n',
            "cluster.simulated.trace",
        ),
        ('[service]\nstate = "/proc/mirage"\n', "service.state: the directory /proc/mirage cannot be made"),
    ],
)
def test_what_cannot_work_stops_it_at_the_start_with_one_line(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    places = "" if "[service]" in text else f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}/run"\n'
    file.write_text(places + text)
    ran = mirage("daemon", "--config", str(file))
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert ran.stderr.startswith("mirage: ")
    assert words in ran.stderr
    named = tuple(line.partition(" = ")[0] for line in text.splitlines() if " = " in line)
    if words.partition(":")[0].rpartition(".")[2] in named:
        assert str(file) in ran.stderr
