"""The demo as a newcomer starts it: one process, its page, its chains, its end."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running_demo import COMMAND, PATIENCE, Demo

from mirage.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "client.ipynb"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("d"))
    yield demo
    demo.end()


@pytest.mark.xdist_group("demo")
def test_the_page_is_on_this_machine_only_and_the_link_opens_it_once(demo: Demo) -> None:
    assert demo.link.hostname == "127.0.0.1"
    demo.wait_until(lambda: demo.get("/healthz")[0] == 200, "an answer")
    status, headers, _ = demo.get("/")
    assert status == 303
    assert headers["location"].startswith("/login")
    target = f"{demo.link.path}?{demo.link.query}"
    status, headers, _ = demo.get(target)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].partition(";")[0]
    assert demo.get("/", cookie)[0] == 200
    demo.wait_until(lambda: "train-llm" in demo.get("/", cookie)[2], "a chain on the page")
    status, headers, _ = demo.get(target)
    assert (status, headers["location"]) == (303, "/login?used=1")


@pytest.mark.xdist_group("demo")
def test_what_it_says_to_type_in_another_shell_finds_it(demo: Demo) -> None:
    demo.wait_until(lambda: demo.get("/healthz")[0] == 200, "an answer")
    assert "train-llm" in demo.shell("mirage chains")


@pytest.mark.xdist_group("demo")
def test_chains_of_several_kinds_are_kept_alive(demo: Demo) -> None:
    client = Client(demo.socket)

    def handed_over() -> bool:
        pinned = client.chain("protein-folding")
        return pinned.handovers > 0

    demo.wait_until(handed_over, "a handover")
    pinned = client.chain("protein-folding")
    assert pinned.overlap == 0  # bound to its predecessor's nodes
    assert pinned.interruption <= 60  # one that lasts counts while it lasts: a pass of the scheduler
    demo.wait_until(
        lambda: client.chain("far-too-large").status == "paused", "the end of a rejected chain's tries"
    )
    assert "PartitionNodeLimit" in client.chain("far-too-large").reason
    assert {chain.status for chain in client.chains() if chain.name != "far-too-large"} == {"active"}
    twin = client.chain("train-llm-by-hand")
    assert (twin.predictor, twin.steering) == ("reactive", "off")


@pytest.mark.xdist_group("demo")
def test_one_is_told_when_a_job_would_start(demo: Demo) -> None:
    found = Client(demo.socket).predictions(nodes=2, limit=12 * 3_600)
    foreseen = {each.predictor: each for each in found.predictions if not each.trouble}
    assert {"auto", "quantile", "average"} == foreseen.keys()
    assert foreseen["auto"].role == "in charge"
    for each in (foreseen["auto"], foreseen["quantile"]):
        quantiles = [start for start in (each.start_p10, each.start_p50, each.start_p90) if start]
        assert len(quantiles) == 3
        assert quantiles == sorted(quantiles)
    shown = demo.mirage("predict", "-N", "2", "-t", "12:00:00").splitlines()
    assert shown[0].split()[:5] == ["PREDICTOR", "ROLE", "EARLIEST", "MEDIAN", "LATEST"]
    assert [line.split()[0] for line in shown[1:4]] == ["auto", "quantile", "average"]


@pytest.mark.xdist_group("demo")
def test_predictors_and_replays_from_python(demo: Demo) -> None:
    client = Client(demo.socket)
    predictors = client.predictors()
    assert {each.name for each in predictors.predictors if each.in_charge} == {"auto"}
    assert {each.name for each in predictors.predictors if each.shadow} == {"quantile", "average"}
    assert {"reactive", "lookahead"} <= set(predictors.installed)
    assert predictors.models == []
    asked = client.start_replay("generated:demo:1", "2024-01-01", "2024-01-02", predictors=["reactive"])
    assert asked.request["trace"] == "generated:demo:1"
    assert client.replay(asked.id).by == getpass.getuser()
    assert [each.id for each in client.replays()] == [asked.id]
    client.delete_replay(asked.id)
    assert client.replays() == []


@pytest.mark.xdist_group("demo")
def test_the_queue_is_squeues(demo: Demo) -> None:
    jobs = [line.split() for line in demo.mirage("queue", "-h", "-o", "%i %t %u", "--sort", "i").splitlines()]
    assert len(jobs) > 5
    assert [int(job) for job, _, _ in jobs] == sorted(int(job) for job, _, _ in jobs)
    assert {state for _, state, _ in jobs} <= {"R", "PD"}
    document = json.loads(demo.mirage("queue", "--me", "--json"))
    assert {job["user"] for job in document["jobs"]} == {getpass.getuser()}


@pytest.mark.xdist_group("demo")
def test_a_chain_is_explained_to_anybody(demo: Demo) -> None:
    said = " ".join(demo.mirage("explain", "protein-folding").split())
    assert "pinned to its nodes" in said
    assert "each of its links asks for 2 nodes" in said
    first = demo.mirage("explain", "protein-folding", "1")
    assert "Link 1 was submitted as job" in first
    assert "its time limit ended it" in first


@pytest.mark.xdist_group("demo")
def test_the_notebook_works(
    demo: Demo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas", reason="the notebook shows frames")
    monkeypatch.setenv("MIRAGE_SOCKET", demo.socket)
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    said = capsys.readouterr().out
    assert "404 there is no chain no-such-chain" in said
    assert "cycle {" in said


def test_a_demo_whose_terminal_has_gone_ends(tmp_path: Path) -> None:
    from mirage.cli.demo import loading_once

    file, told = tmp_path / "mirage.toml", list[int]()
    file.write_text('[loop]\npredictor = "reactive"\n')
    before = signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    try:
        load = loading_once(file)
        assert load().config.loop.predictor == "reactive"
        assert told == []
        load()  # what a daemon does for SIGHUP
        assert told == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.xdist_group("demo")
def test_a_port_that_is_taken_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"127.0.0.1:{port}: is in use" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group("demo")
def test_it_ends_when_told_and_leaves_nothing(demo: Demo) -> None:
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE) == 0
    said = (demo.folder / "said").read_text()
    assert "its files are deleted" in said
    assert "Traceback" not in said
    assert [path.name for path in demo.folder.iterdir()] == ["said"]
