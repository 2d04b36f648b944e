"""The report on a slurm.conf: what is missing, not modelled, read otherwise by other releases, or wrong."""

from __future__ import annotations

import pytest
from simulator.slurmconf_texts import MINIMAL, UNMODELLED, config_of, with_line

from mirage.domain.errors import ConfigError
from mirage.simulator.configuration.slurmconf import read_slurm_conf


def test_without_dumps_the_report_says_what_is_missing():
    report = read_slurm_conf(MINIMAL.replace("Nodes=ALL", "Nodes=ALL QOS=long"), "slurm.conf")
    assert report.config.partitions[0].qos == ""
    assert any("assoc.txt" in sentence for sentence in report.assumed)
    assert any("qos.txt" in sentence and "long" in sentence for sentence in report.assumed)


@pytest.mark.parametrize(("told", "said"), [("slurm 22.05.8", False), ("slurm of ours", True), (None, True)])
def test_that_the_release_is_not_known_is_said(told: str | None, said: bool):
    report = read_slurm_conf(MINIMAL, "slurm.conf", {} if told is None else {"version.txt": told})
    assert any("version.txt" in sentence for sentence in report.assumed) == said


@pytest.mark.parametrize("line", UNMODELLED)
def test_what_is_not_modelled_is_said(line: str):
    base = set(read_slurm_conf(MINIMAL, "slurm.conf").unmodelled)
    report = read_slurm_conf(f"{MINIMAL}{line}\n", "slurm.conf")
    added = [sentence for sentence in report.unmodelled if sentence not in base]
    assert len(added) == 1
    key, _, _ = line.rsplit(maxsplit=1)[-1].partition("=")
    assert key in added[0]


@pytest.mark.parametrize(
    "line",
    [
        "PreemptType=preempt/none",
        "SuspendTime=-1",
        "SchedulerParameters=bf_max_time=600,max_rpc_cnt=150,bf_continue,bf_window=2880",
        "SlurmctldLogFile=/var/log/slurm.log\nSlurmctldPort=6817",
        "PartitionName=x Nodes=n1 AllowAccounts=ALL AllowGroups=ALL LLN=NO Hidden=YES",
        "EnforcePartLimits=NO",
    ],
)
def test_what_bears_on_no_schedule_is_not_mentioned(line: str):
    base = {sentence.split(":")[0] for sentence in read_slurm_conf(MINIMAL, "f").unmodelled}
    report = read_slurm_conf(f"{MINIMAL}{line}\n", "f")
    assert {sentence.split(":")[0] for sentence in report.unmodelled} == base


def test_choices_where_releases_differ_are_said():
    text = "NodeName=n1\nPartitionName=p Nodes=n1\nPriorityWeightAge=5\n"
    said = "\n".join(read_slurm_conf(text, "slurm.conf").assumed)
    assert "SelectType is not set" in said
    assert "PriorityType is not set" in said
    two = "PartitionName=a Nodes=n1 Default=YES\nPartitionName=b Nodes=n1 Default=YES\n"
    report = read_slurm_conf(MINIMAL + two, "slurm.conf")
    assert [p.name for p in report.config.partitions if p.default] == ["b"]
    assert any("the last one, b," in sentence for sentence in report.assumed)


def test_default_time_above_max_time_is_ignored_as_by_slurmctld():
    report = read_slurm_conf(f"{MINIMAL}PartitionName=dbg Nodes=ALL DefaultTime=24:00:00 MaxTime=1:00:00\n", "f")
    debug = report.config.partitions[-1]
    assert (debug.name, debug.max_time, debug.default_time) == ("dbg", 3600, 0)
    assert any("f:5: PartitionName=dbg" in sentence for sentence in report.assumed)


@pytest.mark.parametrize(
    ("line", "place", "problem"),
    [
        ("MaxArraySize=many", "slurm.conf:5: MaxArraySize", "whole number"),
        ("NodeName=x CPUs=70000", "slurm.conf:5: CPUs", "outside 1..65533"),
        ("NodeName=x CPUs=2 CoreSpecCount=2", "slurm.conf:5: NodeName=x", "leaves 0 CPUs"),
        ("NodeName=x Gres=gpu:a:b:4", "slurm.conf:5: Gres", "gpu:a:b:4"),
        ("NodeName=n3", "slurm.conf:5: NodeName=n3", "n3 is already in node group 1"),
        ("NodeName=y[1-", "slurm.conf:5: NodeName", "y[1-"),
        ("PartitionName=q Nodes=n[3-5]", "slurm.conf:5: PartitionName=q: nodes", "no such node: n5"),
        ("PartitionName=q Nodes=n1 MinNodes=3", "slurm.conf:5: PartitionName=q: min_nodes", "more than"),
        ("PartitionName=q Nodes=n1 MaxTime=soon", "slurm.conf:5: MaxTime", "soon"),
        ("PartitionName=q Nodes=n1 Default=maybe", "slurm.conf:5: Default", "YES or NO"),
        ("PartitionName=q Nodes=n1 TRESBillingWeights=gold=1", "slurm.conf:5: TRESBillingWeights", "gold=1"),
        (
            "SchedulerParameters=bf_window=0",
            "slurm.conf:5: SchedulerParameters: bf_window",
            "outside Slurm's range",
        ),
        ("SchedulerParameters=bf_window=x", "slurm.conf:5: SchedulerParameters: bf_window", "whole number"),
        ("PriorityMaxAge=old", "slurm.conf:5: PriorityMaxAge", "old"),
        ("OverTimeLimit=70000", "slurm.conf:5: OverTimeLimit", "outside 0..65533"),
        ("what is this", "slurm.conf:5", "what is this"),
    ],
)
def test_errors_name_file_line_and_key(line: str, place: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        with_line(line)
    assert caught.value.where == place
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("dump", "place", "problem"),
    [
        ("", "assoc.txt", "sacctmgr -P show assoc"),
        ("mini|physics||10\n", "assoc.txt:1", "no column account"),
        ("Account|User\na\n", "assoc.txt:2", "1 columns where the header has 2"),
        ("Account|User|MaxJobs\na||\na|u|few\n", "assoc.txt:3: maxjobs", "whole number"),
        ("Account|User\na|u\n", "assoc.txt: row 1", "has no row of its own"),
    ],
)
def test_errors_in_a_dump_name_its_line(dump: str, place: str, problem: str):
    with pytest.raises(ConfigError) as caught:
        config_of(MINIMAL, **{"assoc.txt": dump})
    assert caught.value.where == place
    assert problem in caught.value.problem
