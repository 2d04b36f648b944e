"""``mirage bench daemon``: its clusters have the size asked for, and every chain gets its decision."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from mirage.bench import daemon, standin
from mirage.bench.loaded_cluster import crowded_cluster
from mirage.cli.main import app

SMALL = standin.sized(300, 400, 4)


def test_the_simulated_crowd_has_the_size_asked_for() -> None:
    crowd = crowded_cluster(SMALL, daemon.records(SMALL.chains, 0), seed=2)
    seen = crowd.cluster.snapshot()
    assert seen.partitions[0].total == 400
    assert (len(seen.running), seen.running.nodes.sum(), len(seen.pending)) == (400, 400, 300)
    assert {link.tag for record in crowd.chains for link in record.links} == seen.links.keys()
    assert all(record.links[-1].start == seen.links[record.links[-1].tag].start for record in crowd.chains)


def test_each_chain_is_decided_about_in_each_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "CYCLES", 2)
    sections = daemon.measure_daemon(lambda step: None, (SMALL,))
    assert [section.title.partition(":")[0] for section in sections] == [
        "One cycle on Slurm's commands",
        "One cycle on the simulated cluster",
    ]
    for section in sections:
        assert "300 pending, 400 running, 400 nodes, 4 chains" in section.title
        assert dict(section.rows)["predictions per cycle"] == "4"


@pytest.mark.parametrize("text", ["100", "1,2", "1,2,3,4", "0,1,1", "many,1,1"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    result = CliRunner().invoke(app, ["bench", "daemon", "--size", text])
    assert result.exit_code
    assert re.search("--size", str(result.exception))


def test_a_day_of_a_users_daemon_is_measured() -> None:
    (section,) = daemon.measure_day(lambda step: None, (standin.sized(300, 400, 3),), hours=4)
    rows = dict(section.rows)
    assert rows["links ended"] == "0", "the first one ends after eight hours"
    assert float(rows["RPCs to slurmctld per hour"]) < 40
    assert 230 < float(rows["RPCs per hour, each poll with the queue"]) < 260, "four in each of sixty polls"
