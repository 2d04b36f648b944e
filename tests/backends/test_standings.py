"""Users' limits in the controller: read from recorded output of real Slurms, polled periodically, known or not."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_slurm.fake import FakeSlurm, Fault

from mirage.backends.execution import CommandRunner
from mirage.backends.owner_limits import EVERY, CliStandings, Granted, RunningJob, RunningJobLimits
from mirage.backends.simulated import SimulatedCluster
from mirage.domain.decision import NO_LIMIT, Standing
from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, JobRequest
from mirage.simulator.cluster import Association, Qos, Reservation
from mirage.simulator.configuration.clusterfile import parse_cluster
from mirage.simulator.simulation import Simulation
from mirage.slurm.shares_and_partitions import (
    read_default_accounts,
    read_partition_nodes,
    read_reservations,
    read_shares,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3_600
ASSETS = Path(__file__).resolve().parents[1] / "assets"
VERSIONS = sorted(path.name for path in ASSETS.iterdir() if (path / "sshare.txt").exists())


def text(version: str, name: str) -> str:
    return (ASSETS / version / name).read_text()


def asked(user: str = "alice", account: str = "", partition: str = "cpu", limit: int = 48 * HOUR) -> JobRequest:
    return JobRequest("svc", user, limit, partition=partition, account=account)


# What real Slurms printed


@pytest.mark.parametrize("version", VERSIONS)
def test_fair_shares_are_those_of_users_in_accounts(version: str) -> None:
    shares = read_shares(text(version, "sshare.txt"))
    lines = [line.split("|") for line in text(version, "sshare.txt").splitlines()[1:]]
    expected = {(cells[0].strip(), cells[1]): float(cells[7]) for cells in lines if cells[1]}
    assert shares == expected
    assert {("research", "alice"), ("limited", "alice")} <= shares.keys()
    assert all(0 <= share <= 1 for share in shares.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_reservations_and_partitions_are_read(version: str) -> None:
    today, tomorrow = read_reservations(text(version, "scontrol.reservations.epoch.txt"))
    assert (today.nodes, today.users, today.accounts) == ({"cpu-007"}, ("alice",), ())
    assert (tomorrow.users, tomorrow.accounts) == ((), ("research",))
    assert today.end - today.start == 24 * HOUR
    assert today.admits("alice", "any")
    assert not today.admits("bob", "research")
    assert tomorrow.admits("bob", "research")
    partitions = read_partition_nodes(text(version, "scontrol.partitions-oneline.txt"))
    assert partitions["cpu"].nodes == {f"cpu-00{n}" for n in range(1, 8)}
    assert partitions["cpu"].default
    assert not partitions["a100"].default


@pytest.mark.parametrize("version", VERSIONS)
def test_default_accounts_are_read(version: str) -> None:
    accounts = read_default_accounts(text(version, "sacctmgr.users.txt"))
    assert (accounts["alice"], accounts["carol"]) == ("research", "teaching")


def test_who_is_kept_out_of_a_reservation() -> None:
    line = "ReservationName=r StartTime=1 EndTime=2 Nodes=n1 Users=-alice,-bob Accounts=(null)\n"
    (reserved,) = read_reservations(line)
    assert not reserved.admits("alice", "")
    assert reserved.admits("carol", "")
    (nobodys,) = read_reservations("ReservationName=r StartTime=1 EndTime=2 Nodes=n1 Users=(null) Accounts=(null)")
    assert not nobodys.admits("root", "root")


@pytest.mark.parametrize(
    "spoilt", ["", "nonsense", "Account|User|FairShare\na|b", "Account|User|FairShare\na|b|nan"]
)
def test_what_is_no_share_is_said(spoilt: str) -> None:
    with pytest.raises(BadSpelling):
        read_shares(spoilt)


# Limits


def limits(*running: tuple[str, str], **changes: int) -> RunningJobLimits:
    rows = {
        ("lab", ""): Association("lab", grp_jobs=changes.get("lab", -1)),
        ("team", ""): Association("team", parent="lab", max_jobs=changes.get("team", -1)),
        ("team", "alice"): Association("team", "alice", max_jobs=changes.get("alice", -1)),
        ("team", "bob"): Association("team", "bob"),
    }
    qos = {"normal": Qos("normal", max_jobs_per_user=changes.get("per_user", -1))}
    return RunningJobLimits(rows, qos, tuple(RunningJob(user, account, "normal") for user, account in running))


RUNNING = (("alice", "team"), ("alice", "team"), ("bob", "team"), ("bob", "lab"))


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({}, NO_LIMIT),
        ({"alice": 5}, 3),
        ({"alice": 1}, 0),
        ({"team": 4}, 2),
        ({"alice": 5, "team": 2}, 3),
        ({"lab": 6}, 2),
        ({"lab": 6, "alice": 3}, 1),
        ({"per_user": 2}, 0),
    ],
)
def test_the_tightest_limit_counts(changes: dict[str, int], left: int) -> None:
    assert limits(*RUNNING, **changes).left("alice", "team", ("normal",)) == left


def test_accounts_in_a_circle_end() -> None:
    rows = {("a", ""): Association("a", parent="b"), ("b", ""): Association("b", parent="a", grp_jobs=2)}
    assert RunningJobLimits(rows, {}, ()).left("alice", "a", ()) == 2


def test_where_nothing_was_told_nothing_is_known() -> None:
    standing = Granted().standing(asked(), 0)
    assert math.isnan(standing.fair_share)
    assert (standing.jobs_left, standing.reserved_nodes) == (ABSENT, ABSENT)


# Asked by commands

VERSION = VERSIONS[0]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    told = {
        ("sshare", "--parsable2"): text(VERSION, "sshare.txt"),
        ("sacctmgr", "user"): text(VERSION, "sacctmgr.users.txt"),
        ("sacctmgr", "assoc"): text(VERSION, "sacctmgr.associations.txt"),
        ("sacctmgr", "qos"): text(VERSION, "sacctmgr.qos.txt"),
        ("scontrol", "config"): text(VERSION, "scontrol.config.txt"),
        ("scontrol", "reservation"): text(VERSION, "scontrol.reservations.epoch.txt"),
        ("scontrol", "partition"): text(VERSION, "scontrol.partitions-oneline.txt"),
        ("squeue", "--format=%u|%a|%q"): "alice|limited|normal\nbob|research|normal\n",
    }
    with FakeSlurm(tmp_path / "slurm", told=told) as fake:
        yield fake


class At:
    def __init__(self, time: int) -> None:
        self.time = time

    def now(self) -> int:
        return self.time


@pytest.fixture
def clock() -> At:
    today, _ = read_reservations(text(VERSION, "scontrol.reservations.epoch.txt"))
    return At(today.start + HOUR)


@pytest.fixture
def standings(slurm: FakeSlurm, clock: At) -> CliStandings:
    return CliStandings(CommandRunner(slurm.environment("alice"), 10), clock)


def test_a_standing_is_what_slurm_says(standings: CliStandings) -> None:
    assert standings.refresh() == "fair shares, limits and reservations are available"
    shares = read_shares(text(VERSION, "sshare.txt"))
    assert standings.standing(asked()) == Standing(shares["research", "alice"], NO_LIMIT, 0)
    limited = standings.standing(asked(account="limited"))
    assert (limited.fair_share, limited.jobs_left) == (shares["limited", "alice"], 0)
    assert standings.standing(asked("bob", "limited")).jobs_left == 1
    assert standings.standing(asked("carol")).reserved_nodes == 1, "today's node, and the same one tomorrow"
    assert standings.standing(asked("carol", partition="a100")).reserved_nodes == 0
    assert math.isnan(standings.standing(asked("stranger")).fair_share)


@pytest.mark.parametrize(
    ("private", "hidden"), [("none", False), ("accounts,jobs", True), ("usage", False), ("(null)", False)]
)
def test_private_jobs_are_known_once_slurm_has_told(tmp_path: Path, clock: At, private: str, hidden: bool) -> None:
    config = re.sub(r"(?m)^PrivateData .*$", f"PrivateData = {private}", text(VERSION, "scontrol.config.txt"))
    assert f"= {private}\n" in config
    with FakeSlurm(tmp_path / "slurm", told={("scontrol", "config"): config}) as slurm:
        standings = CliStandings(CommandRunner(slurm.environment("alice"), 10), clock)
        assert standings.hides_jobs(), "not known yet"
        standings.refresh()
        assert standings.hides_jobs() is hidden
        slurm.fault("scontrol", Fault.UNREACHABLE)
        clock.time += 2 * HOUR
        standings.refresh()
        assert standings.hides_jobs() is hidden, "as last reported"


def test_the_default_partition_counts_where_none_is_named(standings: CliStandings) -> None:
    standings.refresh()
    assert standings.standing(asked("carol", partition="")).reserved_nodes == 1


def test_a_standing_asks_nothing_and_a_refresh_once_an_hour(
    standings: CliStandings, slurm: FakeSlurm, clock: At
) -> None:
    standings.standing(asked())
    assert not slurm.calls
    standings.refresh()
    count = len(slurm.calls)
    clock.time += EVERY - 1
    assert standings.refresh() == ""
    assert len(slurm.calls) == count
    clock.time += 1
    assert standings.refresh()
    assert len(slurm.calls) == 2 * count


def test_limits_that_are_not_enforced_are_none(standings: CliStandings, slurm: FakeSlurm) -> None:
    slurm.told["scontrol", "config"] = "AccountingStorageEnforce = associations\nClusterName = testbed\n"
    standings.refresh()
    assert standings.standing(asked(account="limited")).jobs_left == NO_LIMIT


@pytest.mark.parametrize("kind", [Fault.GARBAGE, Fault.EMPTY, Fault.UNREACHABLE, Fault.CUT_OFF, Fault.KILLED])
def test_what_cannot_be_asked_is_not_known_and_all_else_is(
    standings: CliStandings, slurm: FakeSlurm, kind: Fault
) -> None:
    slurm.fault("sshare", kind)
    said = standings.refresh()
    found = standings.standing(asked("bob", "limited"))
    assert found.jobs_left == 1
    if kind is not Fault.CUT_OFF:
        assert said.startswith("not available: ")
        assert math.isnan(found.fair_share)


def test_a_cluster_without_accounting_grants_what_is_known(standings: CliStandings, slurm: FakeSlurm) -> None:
    slurm.told = {key: told for key, told in slurm.told.items() if key[0] == "scontrol"}
    assert "not running a supported accounting_storage plugin" in standings.refresh()
    found = standings.standing(asked("carol"))
    assert math.isnan(found.fair_share)
    assert (found.jobs_left, found.reserved_nodes) == (ABSENT, 1)


# The simulated controller

CLUSTER = """
[cluster]
name = "small"
[[nodes]]
names = "n[1-8]"
[[partitions]]
name = "cpu"
nodes = "n[1-6]"
[[associations]]
account = "lab"
grp_jobs = 4
[[associations]]
account = "lab"
user = "alice"
max_jobs = 3
usage = 1000.0
[[associations]]
account = "lab"
user = "bob"
[priority]
fair_share = 1000
"""


def simulated(text: str = CLUSTER) -> SimulatedCluster:
    made = parse_cluster(text, "small")
    reserved = Reservation("r", 1_000, 50_000, ("n5", "n6", "n7"), users=("bob",))
    return SimulatedCluster(Simulation(replace(made, reservations=(reserved,)), start=0))


def test_a_simulated_controller_grants_as_a_real_one() -> None:
    cluster = simulated()
    assert cluster.standing(asked(account="lab")).jobs_left == 3
    for user in ("alice", "bob", "bob"):
        cluster.submit(asked(user, "lab", limit=HOUR))
    cluster.advance(600)
    alice, bob = cluster.standing(asked(account="lab")), cluster.standing(asked("bob", "lab"))
    assert (alice.jobs_left, bob.jobs_left) == (1, 1), "three of the lab's four run"
    assert 0 < alice.fair_share < bob.fair_share <= 1
    assert (alice.reserved_nodes, bob.reserved_nodes) == (2, 0), "of the partition's nodes"
    assert cluster.standing(asked(account="lab", limit=100)).reserved_nodes == 0
    cluster.advance(60_000)
    assert cluster.standing(asked(account="lab")) == Standing(
        cluster.standing(asked(account="lab")).fair_share, 3, 0
    )


def test_simulated_standing_of_a_stranger_has_no_limit() -> None:
    cluster = simulated()
    before = cluster.snapshot()
    found = cluster.standing(asked("stranger"))
    assert math.isnan(found.fair_share)
    assert found.jobs_left == NO_LIMIT
    assert cluster.snapshot().users == before.users
