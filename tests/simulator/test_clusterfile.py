"""Cluster files: what they say, what is rejected and where, the presets, other sizes."""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulator.clusterfile_texts import FULL, SMALL

from mirage.domain.errors import ConfigError
from mirage.domain.job import UNLIMITED
from mirage.simulator import cluster as parts
from mirage.simulator.cluster import ClusterConfig, FairShare, NodeGroup, TresLimit
from mirage.simulator.configuration.clusterfile import parse_cluster
from mirage.simulator.configuration.clusterschema import SECTIONS
from mirage.simulator.configuration.toml_errors import line_of


def outcome(text: str, source: str = "my.toml") -> ClusterConfig | ConfigError:
    try:
        return parse_cluster(text, source)
    except ConfigError as error:
        return error


def refused(text: str) -> ConfigError:
    error = outcome(text)
    assert isinstance(error, ConfigError)
    return error


def test_a_small_file_has_slurms_defaults():
    config = parse_cluster(SMALL, "small.toml")
    assert config == ClusterConfig(
        name="small",
        nodes=(NodeGroup(names=("c01", "c02", "c03", "c04"), cpus=8),),
        partitions=(parts.Partition(name="batch", nodes=("c01", "c02", "c03", "c04"), default=True),),
    )
    assert config.source == "small.toml"


def test_every_section_arrives():
    config = parse_cluster(FULL, "full.toml")
    gpu, rest = config.partitions
    assert config.nodes[0] == NodeGroup(
        names=("a001", "a002", "a003", "b7"),
        cpus=64,
        memory_mb=256 * 1024,
        gres=(("gpu:a100", 4), ("npu", 2)),
        features=("ib", "a100"),
        weight=5,
    )
    assert config.nodes[1].down
    assert config.slurm == "24.11"
    assert (gpu.max_time, gpu.default_time, gpu.exclusive, gpu.priority_tier) == (172_800, 3600, True, 3)
    assert gpu.billing_weights == (("cpu", 1.0), ("mem", 0.25 / 1024), ("gres/gpu", 2.0))
    assert (rest.nodes, rest.max_time, rest.default) == (("d1", "b7"), UNLIMITED, False)
    assert config.qos[0].grp_tres == TresLimit((("node", 3), ("gres/gpu:a100", 8), ("mem", 1024 * 1024)))
    assert (config.qos[0].max_jobs_per_user, config.qos[0].grp_jobs) == (2, -1)
    assert [(a.account, a.user, a.parent, a.shares, a.max_jobs) for a in config.associations] == [
        ("physics", "", "", 10, -1),
        ("plasma", "", "physics", 1, -1),
        ("plasma", "alice", "", 1, 4),
    ]
    assert (config.default_association.max_jobs, config.enforce_associations) == (8, True)
    assert (config.scheduler.bf_window, config.scheduler.bf_interval, config.scheduler.bf_continue) == (
        172_800,
        60,
        True,
    )
    assert config.scheduler.over_time_limit == 600
    assert (config.priority.age, config.priority.max_age) == (1000, 86_400)
    assert config.priority.fair_share_algorithm is FairShare.CLASSIC
    start = int(datetime(2023, 2, 1, 6, tzinfo=UTC).timestamp())
    (maintenance,) = config.reservations
    assert (maintenance.start, maintenance.end - start, maintenance.users) == (start, 6 * 3600, ("root",))
    assert maintenance.nodes == ("a001", "a002")
    assert config.node_events == (parts.NodeEvent(time=start, nodes=("a001",), state="drain"),)


def test_naive_date_times_are_utc():
    text = SMALL + '[[node_events]]\ntime = 1970-01-02T00:00:00\nnodes = "c01"\nstate = "down"\n'
    assert parse_cluster(text, "x").node_events[0].time == 86_400


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        ("3600", 3600),
        ('"1:00:00"', 3600),
        ('"30:00"', 1800),
        ('"2-00:00:00"', 172_800),
        ('"1-12"', 129_600),
        ('"48h"', 172_800),
        ('"90m"', 5400),
        ('"45s"', 45),
        ('"2d"', 172_800),
        ('"UNLIMITED"', UNLIMITED),
    ],
)
def test_durations(spelled: str, seconds: int):
    config = parse_cluster(SMALL + f"max_time = {spelled}\n", "x")
    assert config.partitions[0].max_time == seconds


WRONG = [
    # (text, line, key, part of the problem)
    (SMALL.replace("cpus", "cpu"), 6, "nodes[1].cpu", "did you mean cpus?"),
    (SMALL + "MaxTime = 5\n", 11, "partitions[1].MaxTime", "did you mean max_time?"),
    (SMALL + "[scheduler]\nbf_intervall = 30\n", 12, "scheduler.bf_intervall", "did you mean bf_interval?"),
    (SMALL + "[shceduler]\nbf_interval = 30\n", 11, "shceduler", "did you mean scheduler?"),
    (SMALL + 'max_time = "60"\n', 11, "partitions[1].max_time", "minutes or seconds?"),
    (SMALL + 'max_time = "soon"\n', 11, "partitions[1].max_time", "soon"),
    (SMALL + "max_time = -5\n", 11, "partitions[1].max_time", "greater than or equal to 0"),
    (SMALL + "max_time = true\n", 11, "partitions[1].max_time", "expected a duration"),
    (SMALL.replace("cpus = 8", 'cpus = "8"'), 6, "nodes[1].cpus", "integer"),
    (SMALL.replace("cpus = 8", "cpus = 0"), 6, "nodes[1].cpus", "greater than or equal to 1"),
    (SMALL.replace("cpus = 8", 'memory = "much"'), 6, "nodes[1].memory", "much"),
    (SMALL.replace("cpus = 8", 'gres = "gpu:a100:four:4"'), 6, "nodes[1].gres", "gpu:a100:four:4"),
    (SMALL.replace("cpus = 8", 'gres = "gpu:1,gpu:a100:2"'), 6, "nodes[1].gres", "with and without a type"),
    (
        SMALL + '[[qos]]\nname = "q"\ngrp_tres = "node=1,cpu=2,node=3"\n',
        13,
        "qos[1].grp_tres",
        "node is given twice",
    ),
    (SMALL + 'billing_weights = "CPU=1,cpu=2"\n', 11, "partitions[1].billing_weights", "cpu is given twice"),
    (SMALL.replace('"ALL"', '"c[03-05]"'), 10, "partitions[1].nodes", "no such node: c05"),
    (SMALL.replace('"ALL"', '"c01,c01"'), 10, "partitions[1].nodes", "c01 is listed twice"),
    (SMALL.replace('"c[01-04]"', '"c[01-04],c02"'), 5, "nodes[1].names", "c02 is already in node group 1"),
    (SMALL.replace('"c[01-04]"', '"c[01-"'), 5, "nodes[1].names", "c[01-"),
    (SMALL + 'qos = "lnog"\n[[qos]]\nname = "long"\n', 11, "partitions[1].qos", "did you mean long?"),
    (SMALL + "min_nodes = 5\n", 11, "partitions[1].min_nodes", "more than the partition's 4 nodes"),
    (SMALL + 'max_time = "1h"\ndefault_time = "2h"\n', 12, "partitions[1].default_time", "longer than max_time"),
    (SMALL + "[scheduler]\nbf_window = 0\n", 12, "scheduler.bf_window", "outside Slurm's range"),
    (SMALL + "[scheduler]\nbf_window = 60\nbf_resolution = 120\n", 13, "scheduler.bf_resolution", "coarser"),
    (
        SMALL + '[[associations]]\naccount = "a"\nparent = "b"\n',
        13,
        "associations[1].parent",
        "no such account: b",
    ),
    (SMALL + '[[associations]]\naccount = "a"\nuser = "u"\n', 12, "associations[1].account", "no row of its own"),
    (
        SMALL + '[[associations]]\naccount = "a"\nparent = "b"\n[[associations]]\naccount = "b"\nparent = "a"\n',
        13,
        "associations[1].parent",
        "a is its own ancestor",
    ),
    (
        SMALL + '[[partitions]]\nname = "batch"\nnodes = "c01"\n',
        12,
        "partitions[2].name",
        "batch is defined already",
    ),
    (
        SMALL + 'default = true\n[[partitions]]\nname = "b"\nnodes = "c01"\ndefault = true\n',
        15,
        "partitions[2].default",
        "batch is the default already",
    ),
    (SMALL + '[[node_events]]\ntime = 5\nnodes = "c01"\nstate = "up"\n', 14, "node_events[1].state", "'down'"),
    (SMALL.replace('name = "small"', ""), 1, "cluster.name", "this key is needed"),
    (SMALL.replace('name = "small"', "name = 'a'\nscheduling = 'fcfs'"), 3, "cluster.scheduling", "'easy'"),
    (SMALL.replace('name = "small"', "name = 'a'\nslurm = 'newest'"), 3, "cluster.slurm", '"24.11"'),
    (SMALL + 'billing_weights = "energy=1"\n', 11, "partitions[1].billing_weights", "energy is not counted"),
    (SMALL + '[default_association]\ngrp_tres = "billing=5"\n', 12, "default_association.grp_tres", "billing"),
    (SMALL + "cpus = [\n", 11, "", "not TOML"),
]


@pytest.mark.parametrize(("text", "line", "key", "problem"), WRONG, ids=[f"{w[2]}: {w[3]}" for w in WRONG])
def test_errors_name_file_line_and_key(text: str, line: int, key: str, problem: str):
    error = refused(text)
    assert error.where == (f"my.toml:{line}: {key}" if key else f"my.toml:{line}")
    assert problem in error.problem


def test_the_first_fault_in_the_file_is_named_and_the_others_counted():
    error = refused(SMALL.replace("cpus = 8", "cpu = 8") + "max_tim = 5\n")
    assert error.where == "my.toml:6: nodes[1].cpu"
    assert "1 more" in error.problem


def test_lines_are_found_past_multi_line_values():
    text = (
        'a = [\n  "x = 1",\n  { y = 2 },\n]\nb = """\nc = 3\n"""\nc.d = 4\n'
        '[[t]]\nu = 1 # [t]\n[[t]]\n"u" = 2\n[t.v]\nw = 3\n'
    )
    places = {("a",): 1, ("a", 1, "y"): 1, ("b",): 5, ("c", "d"): 8, ("t", 0, "u"): 10, ("t", 1, "u"): 12}
    assert {path: line_of(text, path) for path in places} == places
    assert line_of(text, ("t", "v", "w")) == 14
    assert line_of(text, ("nowhere",)) == 0


def test_every_setting_of_the_configuration_can_be_written_in_the_file():
    """Names in the file are those of the configuration, so that a new field is not forgotten in the file."""
    renamed = {"memory_mb": "memory", "over_time_limit": None}
    for section, of in {
        "nodes": parts.NodeGroup,
        "partitions": parts.Partition,
        "qos": parts.Qos,
        "associations": parts.Association,
        "scheduler": parts.SchedulerParameters,
        "priority": parts.PriorityWeights,
        "reservations": parts.Reservation,
        "node_events": parts.NodeEvent,
    }.items():
        names = {f.name if of is parts.Partition else renamed.get(f.name, f.name) for f in fields(of)} - {None}
        assert names == set(SECTIONS[section].model_fields), section


def test_every_key_is_in_the_reference():
    import mirage.simulator.configuration.clusterfile as documented

    text = documented.__doc__ or ""
    for section, model in SECTIONS.items():
        for key in model.model_fields:
            if section != "default_association":
                assert f"``{key}``" in text, f"[{section}] {key}"


LINES = st.lists(st.sampled_from(FULL.splitlines()), max_size=40).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(LINES | st.text(max_size=60) | st.text(max_size=20).map(lambda t: SMALL + t))
@example(SMALL.replace("c[01-04]", "c[1-999999999]"))
@example(SMALL.replace("c[01-04]", "c[1-9999][1-9999]"))
@example(SMALL + "max_time = 99999999999999999999\n")
@example(SMALL + "[[node_events]]\ntime = 0001-01-01T00:00:00\nnodes = 'c01'\nstate = 'down'\n")
@example("a = " + "[" * 5000)
@example("cluster = 1\nnodes = 'x'\npartitions = {}\nqos = [1]\n")
def test_any_text_is_a_cluster_or_a_config_error(text: str):
    found = outcome(text)
    if isinstance(found, ConfigError):
        assert found.where.startswith("my.toml")
    else:
        assert found.node_count > 0


TOML_VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_value_under_any_key_is_taken_or_refused_at_its_line(data: st.DataObject):
    section = data.draw(st.sampled_from(["partitions", "scheduler", "priority", "default_association"]))
    key = data.draw(st.sampled_from(sorted(SECTIONS[section].model_fields)))
    value = json.dumps(data.draw(TOML_VALUES))
    text = SMALL if section == "partitions" else f"{SMALL}[{section}]\n"
    text += f"{key} = {value}\n"
    try:
        tomllib.loads(text)
    except ValueError:
        return  # the partition has that key already, or JSON's escapes are not TOML's
    found = outcome(text)
    if isinstance(found, ConfigError):
        assert f":{text.count(chr(10))}: {section}" in found.where
