"""Links that have left the queue, found in accounting by their comments: recorded answers, and a fake Slurm."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from backends.test_cli_links import ID, KNOWN, NOW, RUNS, TAG, Accounting, shown
from fake_slurm.fake import HOUR, FakeSlurm

from mirage.backends.cli import CliLinkAccounting
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.cli_links import GRACE, LinkTracker
from mirage.backends.execution import CommandRunner
from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.domain.job import BatchScript, JobId, JobRequest
from mirage.domain.tags import split_tag
from mirage.slurm import accounting
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSETS = Path(__file__).resolve().parents[1] / "assets"
FATES = sorted(ASSETS.glob("*/sacct.mirage-fate.epoch.txt"))


@pytest.fixture(params=FATES, ids=lambda file: file.parent.name)
def printed(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The output of one version of Slurm, and the mark within."""
    file: Path = request.param
    mark: str = json.loads((file.parent / "index.json").read_text())["mark"]
    return file.read_bytes().decode("utf-8", "surrogateescape"), mark


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    with FakeSlurm(tmp_path) as made:
        yield made


def link_accounting(slurm: FakeSlurm, flags: str = "job_comment") -> CliLinkAccounting:
    slurm.told["scontrol", "config"] = f"AccountingStoreFlags    = {flags}\n"
    return CliLinkAccounting(CommandRunner(slurm.environment("alice")))


def submit(slurm: FakeSlurm, tag: str) -> JobId:
    script = BatchScript(f"#!/bin/sh\n#FAKE runs={HOUR}\n", directory="/")
    request = JobRequest("svc", "alice", 2 * HOUR, partition="cpu", tag=tag, batch=script)
    return CliActuator(CommandRunner(slurm.environment("alice")), "alice").submit(request)


def test_past_links_are_those_with_a_tag_or_a_known_id(printed: tuple[str, str]) -> None:
    known, _ = accounting.read_runs(*printed)
    tagged = {job for job in known if split_tag(job.tag) is not None}
    assert set(accounting.read_past_links(*printed, ()).jobs) == tagged
    everything = accounting.read_past_links(*printed, {job.job_id for job in known})
    assert set(everything.jobs) == set(known)
    assert not everything.unread


def test_past_link_that_cannot_be_read_is_named(printed: tuple[str, str]) -> None:
    """The completed jobs of a recording, as if they had been links."""
    text, mark = printed
    end = f"{mark}{CELL}\n"
    rows = [row.split(CELL) for row in text.split(end)]
    for number, cells in enumerate(row for row in rows if CELL.join(row).count(f"{CELL}COMPLETED{CELL}")):
        cells[-2] = f"mirage:svc:{number}"
    tagged = end.join(CELL.join(cells) for cells in rows)
    found = accounting.read_past_links(tagged, mark, ())
    assert len(found.jobs) > 1
    spoilt = accounting.read_past_links(tagged.replace("COMPLETED", "NO_SUCH_STATE"), mark, ())
    assert spoilt.unread == {job.tag for job in found.jobs}
    assert not spoilt.jobs


def test_past_links_cut_off_are_no_answer(printed: tuple[str, str]) -> None:
    text, mark = printed
    with pytest.raises(BadSpelling, match="cut off"):
        accounting.read_past_links(text[: len(text) // 2], mark, ())


def test_past_links_are_asked_for_in_one_query(slurm: FakeSlurm) -> None:
    first = slurm.now()
    links = [submit(slurm, f"mirage:svc:{number}") for number in (1, 2)]
    plain = submit(slurm, "a comment of its own")
    slurm.advance(4 * HOUR)
    asked = link_accounting(slurm)
    found = asked.past_links(first, slurm.now() + HOUR, ())
    assert found is not None
    assert [(job.job_id, job.user) for job in found.jobs] == [(job_id, "alice") for job_id in links]
    assert slurm.count("sacct") == 1
    with_id = asked.past_links(first, slurm.now(), {plain})
    assert with_id is not None
    assert {job.job_id for job in with_id.jobs} == {*links, plain}


@pytest.mark.parametrize(("flags", "kept"), [("job_comment,job_script", True), ("(null)", False), ("none", False)])
def test_past_links_need_comments_that_are_kept(slurm: FakeSlurm, flags: str, kept: bool) -> None:
    assert link_accounting(slurm, flags).keeps_comments() is kept


def test_past_links_without_accounting_are_not_known(slurm: FakeSlurm) -> None:
    asked = link_accounting(slurm)
    slurm.accounting_down = True
    with pytest.raises(ClusterUnavailable, match="sacct: exit 1"):
        asked.past_links(0, HOUR, ())
    slurm.accounting_down, slurm.accounting = False, False
    assert asked.past_links(0, HOUR, ()) is None
    slurm.down = True
    with pytest.raises(ClusterUnavailable, match="scontrol show config: exit 1"):
        asked.keeps_comments()


def test_running_link_is_told_by_the_queues_comment() -> None:
    """A later link has the job ID of an earlier one; accounting gets its comment only when it ends."""
    later = replace(RUNS, submit=NOW - 10, tag=TAG.rpartition(":")[0] + ":99")
    memory = LinkTracker()
    for time in (NOW, NOW + GRACE + 1):
        assert TAG not in memory.account(shown(later), {TAG: ID}, Accounting(replace(later, tag="")), time, KNOWN)
