"""The presets, cluster files by their path, clusters cut down to fewer nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from simulator.clusterfile_texts import SMALL

from mirage.domain.errors import ConfigError
from mirage.simulator.cluster import Scheduling, with_nodes
from mirage.simulator.configuration.clusterfile import load_cluster, parse_cluster, presets

if TYPE_CHECKING:
    from pathlib import Path


def test_presets():
    assert set(presets()) >= {"ls6", "kth-sp2", "curie", "hpc2n", "demo"}
    shapes = {name: load_cluster(name) for name in presets()}
    assert {name: (c.node_count, c.cpu_count, c.scheduling) for name, c in shapes.items()} == {
        "ls6": (76, 76 * 128, Scheduling.SLURM),
        "kth-sp2": (100, 100, Scheduling.EASY),
        "curie": (5400, 80_640 + 11_520, Scheduling.SLURM),
        "hpc2n": (120, 240, Scheduling.EASY),
        "demo": (20, 20 * 64, Scheduling.SLURM),
        "demo-large": (26, 26 * 64, Scheduling.SLURM),
    }
    assert all(c.name == name and sum(p.default for p in c.partitions) == 1 for name, c in shapes.items())


def test_the_ls6_preset_is_the_published_queue():
    ls6 = load_cluster("ls6")
    (queue,) = ls6.partitions
    assert (queue.name, queue.max_time, queue.exclusive) == ("gpu-a100", 48 * 3600, True)
    assert ls6.nodes[0].gres == (("gpu:a100", 3),)
    assert ls6.default_association.max_jobs == 8
    assert ls6.scheduler.bf_window >= queue.max_time


def test_load_cluster_takes_paths(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(SMALL, encoding="utf-8")
    assert load_cluster(str(file)).name == "small"
    (tmp_path / "slurm.conf").write_text("ClusterName=site\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    assert load_cluster(str(tmp_path)).name == "site"
    assert load_cluster(str(tmp_path / "slurm.conf")).partitions[0].default


def test_load_cluster_says_what_there_is(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no such file.*hpc2n.*did you mean curie\?"):
        load_cluster("curei")
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_cluster(str(tmp_path / "x.toml"))


def test_fewer_nodes_are_the_first_ones():
    ls6 = load_cluster("ls6")
    small = with_nodes(ls6, 72)
    assert small.node_count == 72
    assert small.partitions[0].nodes == ls6.partitions[0].nodes[:72] == small.nodes[0].names
    assert with_nodes(small, 76) == ls6
    assert with_nodes(ls6, 80).nodes[0].names[-1] == "c080"


def test_resizing_keeps_what_remains_of_partitions_events_and_reservations():
    text = SMALL + (
        '[[partitions]]\nname = "low"\nnodes = "c[02-03]"\n'
        '[[reservations]]\nname = "r"\nstart = 1\nend = 2\nnodes = "c[01-04]"\n'
        '[[node_events]]\ntime = 3\nnodes = "c04"\nstate = "down"\n'
    )
    config = parse_cluster(text, "x")
    two = with_nodes(config, 2)
    assert [p.nodes for p in two.partitions] == [("c01", "c02"), ("c02",)]
    assert (two.reservations[0].nodes, two.node_events) == (("c01", "c02"), ())
    assert [len(p.nodes) for p in with_nodes(config, 6).partitions] == [6, 2]


@pytest.mark.parametrize(
    ("config", "count", "said"),
    [
        (SMALL, 0, "cannot have 0 nodes"),
        (SMALL + "min_nodes = 3\n", 2, "leaves partition batch 2; it needs 3"),
        (SMALL.replace("c[01-04]", "one"), 2, "has no number"),
        (SMALL + '[[nodes]]\nnames = "d1"\n', 2, "2 node groups (4 like c01, 1 like d1)"),
        (SMALL + '[[partitions]]\nname = "p2"\nnodes = "c04"\n', 2, "leaves partition p2 0; it needs one"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(config: str, count: int, said: str):
    with pytest.raises(ConfigError) as caught:
        with_nodes(parse_cluster(config, "x"), count)
    assert said in str(caught.value)
