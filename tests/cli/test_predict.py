"""``mirage predict`` asks the daemon about the job that ``sbatch`` would submit."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import pytest
from submit_world import SCONTROL, SCRIPT, folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["folder"]
assert SCONTROL

MAIN = "import sys; from mirage.cli.main import main; sys.argv[0] = 'mirage'; main()"
HERE = str(Path(__file__).resolve().parents[2])

BUSY = {"predictor": "auto", "role": "in charge", "trouble": "busy"}
START = {"predictor": "quantile", "role": "in charge", "start_p50": "2023-11-15T00:13:20Z", "wait_p50": 7_200}
ANSWERS = {
    "": {"predictions": [START]},
    "gpu": {"predictions": [START]},
    "instead": {"predictions": [BUSY, START | {"role": "instead"}]},
    "planned": {"predictions": [BUSY], "planned_start": "2023-11-15T00:13:20Z"},
    "nothing": {"predictions": [BUSY, BUSY | {"predictor": "dqn", "role": "shadow"}]},
    "empty": {"predictions": []},
}
"""By partition."""


class _Daemon(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        asked = dict(parse_qsl(urlsplit(self.path).query))
        answer = ANSWERS.get(asked.get("partition", ""), {}) | {"asked": asked}
        text = json.dumps({"backend": "cli"} if self.path.endswith("/cluster") else answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


@pytest.fixture(autouse=True)
def sbatch(folder: Path) -> Path:
    """A Slurm that takes every job."""
    file = folder / "bin" / "sbatch"
    file.write_text("#!/bin/sh\nexit 0\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def daemon() -> Iterator[str]:
    """A server that answers with what it was asked."""
    server = HTTPServer(("127.0.0.1", 0), _Daemon)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def predict(folder: Path, daemon: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), "MIRAGE_URL": daemon}
    environment |= {"PYTHONPATH": HERE, "MIRAGE_TOKEN": "x"}
    return subprocess.run(
        [sys.executable, "-c", MAIN, "predict", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment | variables,
    )


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", 4),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", 0),
    ],
)
def test_job_that_slurm_would_reject_has_no_start(
    folder: Path, daemon: str, sbatch: Path, said: str, code: int
) -> None:
    sbatch.write_text(f"#!/bin/sh\necho 'sbatch: error: {said}' >&2\nexit 1\n")
    done = predict(folder, daemon, "-p", "gpu", "-t", "9-0")
    assert done.returncode == code, done.stderr
    assert ("quantile" in done.stdout) is (code == 0)
    assert ("time limit is invalid" in done.stderr) is (code == 4)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("train.sh", {"nodes": "2", "limit": "172800", "gres": "gpu:a100:4"}),
        ("-N 4 -t 12:00:00 train.sh -N 9", {"nodes": "4", "limit": "43200", "gres": "gpu:a100:4"}),
        ("-n 16 --ntasks-per-node=4 -t 90", {"nodes": "4", "limit": "5400"}),
        ("-n 16 -t 90", {"nodes": "1", "limit": "5400"}),
        ("-p gpu", {"nodes": "1", "limit": "3600", "partition": "gpu"}),
        ("", {"nodes": "1", "limit": "86400"}),
        ("-N 2 -G 8 -t 12h -A bio -q high", {
            "nodes": "2", "limit": "43200", "gres": "gpu:4", "account": "bio", "qos": "high",
        }),
        ("--gpus-per-node=h100:2 -t 2-12 --predictor fixed:6h", {
            "nodes": "1", "limit": "216000", "gres": "gpu:h100:2", "predictor": "fixed:6h",
        }),
    ],
)  # fmt: skip
def test_job_is_read_as_sbatch_reads_it(folder: Path, daemon: str, words: str, asked: dict[str, str]) -> None:
    done = predict(folder, daemon, "--json", *words.split())
    assert (done.returncode, json.loads(done.stdout)["asked"]) == (0, asked), done.stderr


def test_environment_counts_less_than_the_command_line(folder: Path, daemon: str) -> None:
    done = predict(folder, daemon, "--json", "-t", "60", SBATCH_PARTITION="gpu", SBATCH_TIMELIMIT="5")
    assert json.loads(done.stdout)["asked"] == {"nodes": "1", "limit": "3600", "partition": "gpu"}


@pytest.mark.parametrize("words", ["-N 0", "-N x", "-t soon", "--array=1-3", "--nope", "--links=3", "--wrap"])
def test_wrong_job_is_a_usage_error(folder: Path, daemon: str, words: str) -> None:
    done = predict(folder, daemon, *words.split())
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (2, "", False)


def test_script_with_a_wrong_line_is_a_usage_error(folder: Path, daemon: str) -> None:
    (folder / "wrong.sh").write_text(SCRIPT.replace("--nodes=2", "--nodes=two"))
    assert predict(folder, daemon, "wrong.sh").returncode == 2
    assert predict(folder, daemon, "none.sh").returncode == 1


def test_what_is_not_considered_is_said_on_stderr(folder: Path, daemon: str) -> None:
    done = predict(folder, daemon, "--json", "-C", "a100", "-n", "4", "-t", "5")
    assert json.loads(done.stdout)["asked"] == {"nodes": "1", "limit": "300"}
    assert "--constraint" in done.stderr
    assert "--nodes" in done.stderr


def test_predictor_that_answered_in_place_has_a_row(folder: Path, daemon: str) -> None:
    done = predict(folder, daemon, "-t", "5", "-p", "instead")
    (_, row) = done.stdout.splitlines()
    assert (done.returncode, row.split()[:2]) == (0, ["quantile", "instead"])
    assert "auto" in done.stderr


@pytest.mark.parametrize("partition", ["nothing", "empty"])
def test_no_start_at_all_is_an_error(folder: Path, daemon: str, partition: str) -> None:
    done = predict(folder, daemon, "-t", "5", "-p", partition)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    done = predict(folder, daemon, "-t", "5", "-p", partition, "--json")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert json.loads(done.stdout)["predictions"] == ANSWERS[partition]["predictions"]


def test_plan_of_slurm_alone_is_an_answer(folder: Path, daemon: str) -> None:
    done = predict(folder, daemon, "-t", "5", "-p", "planned")
    assert (done.returncode, "2023-11-15" in done.stdout) == (0, True)


def test_help_needs_no_daemon(folder: Path) -> None:
    for word in ("-h", "--help"):
        done = predict(folder, "http://127.0.0.1:1", word)
        assert (done.returncode, done.stderr, "--ntasks" in done.stdout) == (0, "", True)
