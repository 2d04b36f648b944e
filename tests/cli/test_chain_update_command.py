"""``mirage chain update`` as people type it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from test_chains import mirage, running, world  # noqa: F401 (fixtures)

from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World


def test_settings_are_changed_in_the_words_of_submit(running: World) -> None:  # noqa: F811
    options = ("--links", "20", "--total-time", "9d", "-t", "1:30", "--on-failure", "retry", "--retries", "4")
    done = mirage(running, "chain", "update", "train-k3q9", *options)
    assert done.returncode == 0, done.stderr
    after = running.loop.records[0].chain
    assert (after.done.links, after.done.total_time, after.request.limit) == (20, 9 * 86_400, 120)
    assert after.failures.exit.retries == 4
    assert "done.links 20" in done.stdout
    mirage(running, "chain", "update", "train-k3q9", "--links", "none", "--total-time", "none")
    assert (running.loop.records[0].chain.done.links, running.loop.records[0].chain.done.total_time) == (0, 0)


def test_a_pending_link_that_keeps_its_time_limit_is_named(running: World) -> None:  # noqa: F811
    (record,) = running.loop.records
    waits = Link(2, record.chain.tag(2), 0, LinkState.PENDING, JobId(4712), 0)
    running.loop.records = [record.with_link(waits)]
    named = mirage(running, "chain", "update", "train-k3q9", "-t", "1:30").stderr
    assert "scancel 4712" in named
    assert "4712" not in mirage(running, "chain", "update", "train-k3q9", "--links", "9").stderr


def test_a_predictor_is_named_and_left_to_the_daemon_again(running: World) -> None:  # noqa: F811
    answer = mirage(running, "chain", "update", "train-k3q9", "--predictor", "quantile:0.9", "--json").stdout
    assert json.loads(answer)["chain"]["predictor"] == "quantile:0.9"
    mirage(running, "chain", "update", "train-k3q9", "--predictor", "none")
    assert running.loop.records[0].chain.predictor == ""


def test_a_done_file_is_below_the_directory_of_the_caller(running: World) -> None:  # noqa: F811
    mirage(running, "chain", "update", "train-k3q9", "--done-file", "finished")
    assert running.loop.records[0].chain.done.file.endswith("/finished")
    assert running.loop.records[0].chain.done.file.startswith("/")


SBATCH = """#!/bin/sh
said="Requested time limit is invalid (missing or exceeds some limit)"
echo "sbatch: error: Batch job submission failed: $said" >&2
exit 1
"""


def test_a_limit_that_slurm_would_not_take_is_rejected_at_once(running: World, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "sbatch").chmod(0o755)
    before = running.loop.records[0].chain
    words, path = ("chain", "update", "train-k3q9", "-t", "40-0"), f"{tmp_path}:/usr/bin:/bin"
    done = mirage(running, *words, PATH=path)
    assert done.returncode == 1
    assert "time limit" in done.stderr
    assert running.loop.records[0].chain == before
    assert mirage(running, *words, "--no-check", PATH=path).returncode == 0
    assert running.loop.records[0].chain.request.limit == 40 * 86_400


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--links", "0"),
        ("--links", "x"),
        ("--time", "soon"),
        ("--retries", "-1"),
        ("--retries", "4"),
        ("--steering", "up"),
    ],
)
def test_what_cannot_be_meant_is_a_mistake_of_usage(running: World, options: tuple[str, ...]) -> None:  # noqa: F811
    before = running.loop.records
    assert mirage(running, "chain", "update", "train-k3q9", *options).returncode == 2
    assert running.loop.records == before
