"""The doctor's findings on Slurm's settings: recorded answers of real Slurms, one setting changed at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.backends.cluster_queries import read_controller_time
from mirage.config.model import ClusterConnectionSection, Config, LoopSection
from mirage.daemon.doctor.examination import check_settle
from mirage.daemon.doctor.finding import (
    read_partitions,
    read_settings,
    read_table,
)
from mirage.daemon.doctor.slurm_settings import (
    check_associations,
    check_operator,
    check_partitions,
    check_privacy,
    check_settings,
    check_steering,
)
from mirage.domain.chain import Steering
from mirage.domain.errors import BadSpelling
from mirage.slurm.conf import read_version

ASSETS = Path(__file__).resolve().parents[2] / "assets"
VERSIONS = sorted(folder.name for folder in ASSETS.iterdir() if (folder / "scontrol.config.txt").exists())


def recorded(version: str, name: str) -> str:
    return (ASSETS / version / name).read_text()


def settings(**changes: str) -> dict[str, str]:
    return read_settings(recorded(VERSIONS[0], "scontrol.config.txt")) | changes


def levels(interval: int = 60, client: str = "slurm 22.05.8", **changes: str) -> dict[str, str]:
    return {f.check: str(f.level) for f in check_settings(settings(**changes), client, interval, Steering.OFF)}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_real_testbed_is_well(version: str) -> None:
    answers = [recorded(version, f"scontrol.{name}.txt") for name in ("config", "version")]
    found = list(check_settings(read_settings(answers[0]), answers[1], 60, Steering.OFF))
    assert {str(f.level) for f in found} == {"ok"}, [f for f in found if f.level != "ok"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorded_partitions_are_read(version: str) -> None:
    partitions = read_partitions(recorded(version, "scontrol.partitions-oneline.txt"))
    assert {"cpu", "v100", "a100", "npu"} <= {row["PartitionName"] for row in partitions}
    findings = list(check_partitions(partitions))
    assert "cpu 2-00:00:00" in findings[0].found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_controllers_time_is_read(version: str) -> None:
    assert read_controller_time(recorded(version, "sdiag.txt")) > 1_700_000_000


@pytest.mark.parametrize(
    ("changes", "check", "level"),
    [
        ({"PriorityType": "priority/basic"}, "priority", "ok"),
        ({"PriorityWeightAge": "0"}, "age", "warn"),
        ({"PriorityWeightAge": "1000", "PriorityWeightFairShare": "100000"}, "age", "warn"),
        ({"PriorityWeightAge": "1000", "PriorityWeightFairShare": "99999"}, "age", "ok"),
        ({"SchedulerType": "sched/builtin"}, "backfill", "warn"),
        ({"AccountingStoreFlags": ""}, "accounting", "warn"),
        ({"AccountingStorageType": "accounting_storage/none"}, "accounting", "warn"),
        ({"MinJobAge": "100 sec"}, "memory", "warn"),
        ({"MinJobAge": "0 sec"}, "memory", "ok"),
        ({"MinJobAge": ""}, "memory", "ok"),
        ({"MinJobAge": "(null)"}, "memory", "ok"),
        ({"SlurmctldParameters": "rl_enable,rl_refill_rate=1"}, "rate limit", "ok"),
        ({"JobSubmitPlugins": "job_submit/lua"}, "marks", "warn"),
        ({"JobSubmitPlugins": "all_partitions,lua"}, "marks", "warn"),
        ({"SLURM_VERSION": "19.05.1"}, "versions", "fail"),
        ({"SLURM_VERSION": "26.05.3"}, "versions", "ok"),
    ],
)
def test_one_setting_changes_one_finding(changes: dict[str, str], check: str, level: str) -> None:
    assert levels(**changes)[check] == level


@pytest.mark.parametrize(
    ("flags", "enforce", "ages", "words"),
    [
        ("ACCRUE_ALWAYS", "associations,limits,qos,safe", True, "hold ages"),
        ("CALCULATE_RUNNING,ACCRUE_ALWAYS", "none", True, "hold ages"),
        ("", "associations,limits,qos", False, "from the release, whenever"),
        ("FAIR_TREE", "safe", False, "from the release, whenever"),
        ("", "all", False, "from the release, whenever"),
        ("", "none", False, "if a job is submitted held"),
        ("", "associations", False, "if a job is submitted held"),
    ],
)
def test_what_ages_is_as_measured(flags: str, enforce: str, ages: bool, words: str) -> None:
    """DESIGN.md, "What keeps a successor back": the rows hold and pin of its three sorts of site."""
    site = settings(PriorityFlags=flags, AccountingStorageEnforce=enforce)
    for chosen in Steering:
        finding = check_steering(site, chosen)
        assert words in finding.follows
        assert "pin ages" in finding.follows
        assert (str(finding.level) == "warn") == (chosen is Steering.HOLD and not ages)


@pytest.mark.parametrize(
    ("settle", "timeout", "level"), [(120, 30, "ok"), (46, 30, "ok"), (45, 30, "warn"), (60, 60, "warn")]
)
def test_a_submission_under_way_is_waited_for(settle: int, timeout: int, level: str) -> None:
    config = Config(loop=LoopSection(settle=settle), cluster=ClusterConnectionSection(timeout=timeout))
    assert str(check_settle(config).level) == level


def test_a_partition_that_is_down_or_short_is_named() -> None:
    rows = [
        {"PartitionName": "a", "MaxTime": "2-00:00:00", "State": "DOWN"},
        {"PartitionName": "b", "MaxTime": "00:30:00", "State": "UP"},
        {"PartitionName": "c", "MaxTime": "UNLIMITED", "State": "UP"},
    ]
    findings = list(check_partitions(rows))
    assert [str(f.level) for f in findings] == ["ok", "warn", "warn"]
    assert findings[1].found.endswith(": a")
    assert findings[2].found.endswith(": b")
    assert str(next(check_partitions([])).level) == "fail"


def test_partition_that_oversubscribes_nodes_is_named() -> None:
    rows = [
        {"PartitionName": name, "MaxTime": "2-00:00:00", "State": "UP", "OverSubscribe": shared}
        for name, shared in [("a", "NO"), ("b", "FORCE:2"), ("c", "YES:4"), ("d", "EXCLUSIVE"), ("e", "FORCE")]
    ]
    first, shared = check_partitions(rows)
    assert [str(first.level), str(shared.level)] == ["ok", "warn"]
    assert shared.found == "OverSubscribe: b FORCE:2, c YES:4, e FORCE"
    assert "links there may not be pinned" in shared.follows


def test_the_limits_of_the_recorded_users() -> None:
    rows = read_table(recorded(VERSIONS[0], "sacctmgr.associations.txt"))
    findings = list(check_associations("alice", rows, enforced=True))
    assert "alice: limited, research" in findings[0].found
    assert [(str(f.level), f.found) for f in findings[1:]] == [("ok", "MaxSubmitJobs=3"), ("warn", "MaxJobs=1")]


@pytest.mark.parametrize(("most", "level"), [("1", "fail"), ("2", "ok"), ("", "")])
def test_a_chain_needs_two_jobs_in_the_queue(most: str, level: str) -> None:
    row = {"User": "eve", "Account": "x", "MaxSubmit": most, "GrpSubmit": "100", "MaxJobs": "", "GrpJobs": ""}
    findings = list(check_associations("eve", [row], enforced=True))
    about = [f for f in findings if "MaxSubmitJobs" in f.found and f.found != "MaxSubmitJobs=100"]
    assert [str(f.level) for f in about] == ([level] if level else [])


def test_a_user_without_account_is_refused_only_where_that_is_enforced() -> None:
    assert [str(f.level) for f in check_associations("eve", [], enforced=True)] == ["fail"]
    assert [str(f.level) for f in check_associations("eve", [], enforced=False)] == ["ok"]


def test_who_is_an_operator() -> None:
    users = read_table(recorded(VERSIONS[0], "sacctmgr.users.txt"))
    assert str(check_operator("mirage", users).level) == "ok"
    assert str(check_operator("alice", users).level) == "fail"
    assert str(check_operator("alice", users, "alice(1001)").level) == "ok"


@pytest.mark.parametrize(
    ("private", "sees_all", "others", "level"),
    [
        ("none", False, True, "ok"),
        ("usage,users", False, True, "ok"),
        ("jobs,usage", True, True, "ok"),
        ("jobs,usage", False, True, "fail"),
        ("Jobs", False, False, "warn"),
    ],
)
def test_privacy_is_judged_by_what_the_account_sees(
    private: str, sees_all: bool, others: bool, level: str
) -> None:
    found = check_privacy("mirage", private, sees_all=sees_all, acts_for_others=others)
    assert str(found.level) == level


@pytest.mark.parametrize("read", [read_settings, read_controller_time, read_version])
@pytest.mark.parametrize("text", ["", "slurm_load_ctl_conf error: Unable to contact slurm controller"])
def test_what_is_no_answer_is_not_taken_for_one(read, text: str) -> None:
    with pytest.raises(BadSpelling):
        read(text)


def test_hold_and_nice_gain_nothing_where_jobs_run_in_turn() -> None:
    for chosen in Steering:
        found = check_settings(settings(PriorityType="priority/basic"), "slurm 24.11.5", 60, chosen)
        level = next(str(each.level) for each in found if each.check == "priority")
        assert (level == "warn") == (chosen in (Steering.HOLD, Steering.NICE))
