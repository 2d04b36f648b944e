"""Tasks within links: state written by the real agent, in the REST API and in a browser."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from chains_seen import HOSTILE
from seeded import SeededLoop
from server import seeded
from visiting import visit
from working import NODES, sweeping

from mirage.api.access.protocol import Peer

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from mirage.domain.chain import ChainRecord


@pytest.fixture
def sweep(tmp_path: Path) -> ChainRecord:
    return sweeping(tmp_path / "tasks")


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1{path}") as answer:
        return json.load(answer)


def test_what_is_told_is_what_the_agent_wrote(tmp_path: Path, sweep: ChainRecord) -> None:
    wrote = json.loads((tmp_path / "tasks/status.json").read_text())
    with seeded(SeededLoop.of(tmp_path, (sweep,))) as address:
        (told,) = get(address, "/allocation")["tasks"]
        assert told == get(address, f"/chains/{sweep.chain.chain_id}/tasks")
    counts = told["counts"]
    assert counts["done"] == wrote["counts"]["succeeded"] > 0
    assert counts["running"] == wrote["counts"]["running"] > 0
    assert counts["waiting"] == wrote["counts"]["pending"] > 0
    assert counts["failed"] == wrote["counts"]["failed"] == 2
    assert {each["task"] for each in told["failed"]} == {"lr-07", "lr-46"}
    assert [(lane["node"], lane["device"]) for lane in told["lanes"]] == [(n, d) for n in NODES for d in range(4)]
    assert {lane["link"] for lane in told["lanes"]} == {2}
    runs = {piece["task"] for lane in told["lanes"] for piece in lane["pieces"] if piece["state"] == "running"}
    assert runs == {task["id"] for task in wrote["tasks"] if task["state"] == "running"}
    for lane in told["lanes"]:
        since = wrote["links"][-1]["began"]
        known = [
            each
            for each in wrote["lanes"][f"{lane['node']}:{lane['device']}"]
            if (each["end"] or since + 1) > since
        ]
        assert [piece["task"] for piece in lane["pieces"]] == [each["task"] for each in known]


def test_only_the_owner_and_administrators_see_them(tmp_path: Path, sweep: ChainRecord) -> None:
    with seeded(SeededLoop.of(tmp_path, (sweep,)), Peer(4_321, "bob")) as address:
        assert get(address, "/allocation")["tasks"] == []
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(address, f"/chains/{sweep.chain.chain_id}/tasks")


@pytest.mark.parametrize("path", ["/allocation", "/chains/lr-sweep-q8d3"])
def test_the_page_follows_the_file(browser: Browser, tmp_path: Path, sweep: ChainRecord, path: str) -> None:
    loop = SeededLoop.of(tmp_path, (sweep,))
    file = tmp_path / "tasks/status.json"
    with seeded(loop) as address, visit(browser, address) as seen:
        seen.go(path)
        progress = seen.page.get_by_role("list", name="Progress")
        content = json.loads(file.read_text())
        assert f"{content['counts']['succeeded']} of 96 tasks done" in progress.inner_text()
        assert seen.page.locator("svg.lane rect.failed").count() > 0
        seen.page.locator("#live-switch:not(.off)").wait_for()
        running = next(task for task in content["tasks"] if task["state"] == "running")
        running["state"] = "succeeded"
        file.write_text(json.dumps(content))
        loop.publish(loop.status.chains)
        progress.get_by_text(f"{content['counts']['succeeded'] + 1}", exact=True).wait_for()
        assert seen.complaints == []


def test_what_a_hostile_agent_writes_stays_text(browser: Browser, tmp_path: Path, sweep: ChainRecord) -> None:
    file = tmp_path / "tasks/status.json"
    content = json.loads(file.read_text())
    for task in content["tasks"]:
        task |= {"why": HOSTILE, "id": HOSTILE}
    for lane in content["lanes"].values():
        for each in lane:
            each["task"] = HOSTILE
    for life in content["links"]:
        life["nodes"] = {node: [[index, HOSTILE] for index, _ in each] for node, each in life["nodes"].items()}
    file.write_text(json.dumps(content))
    with seeded(SeededLoop.of(tmp_path, (sweep,))) as address, visit(browser, address) as seen:
        assert seen.go("/allocation") == 200
        assert HOSTILE in seen.page.locator("main").inner_text()
        assert seen.page.locator("main img, main script").count() == 0
        assert seen.complaints == []


def test_a_file_that_is_not_there_is_said(browser: Browser, tmp_path: Path, sweep: ChainRecord) -> None:
    lost = replace(sweep, chain=replace(sweep.chain, tasks_state="/no/such/folder"))
    with seeded(SeededLoop.of(tmp_path, (lost,))) as address, visit(browser, address) as seen:
        seen.go("/allocation")
        assert "/no/such/folder/status.json does not exist" in seen.page.locator("main").inner_text()
