"""Predictors by configuration: look-ahead on the cluster's own slurm.conf, models from the registry, shadows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_slurm.fake import FakeSlurm
from fakes import FakeCluster, chain

from mirage.backends.execution import CommandRunner
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.backends import copied_from_slurm, described_by_slurm
from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo
from mirage.bootstrap.policies import build_guards
from mirage.bootstrap.records import refill
from mirage.config.loading import load_config
from mirage.domain.chain import ChainRecord, DoneCondition
from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.journal import EntryKind
from mirage.features.summary import LENGTH, SPACING, QueueWindows
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.simulation import Simulation
from mirage.store.opening import open_store
from mirage.trace.generator import generate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.config.model import Config

CONF = """
ClusterName=site
NodeName=n[1-4] CPUs=16
PartitionName=gpu Nodes=n[1-4] Default=YES MaxTime=2-0
AccountingStorageEnforce=limits
"""
ASSOC = "Cluster|Account|User|MaxJobs\nsite|root||\nsite|lab||\nsite|lab|alice|3\n"


def config(folder: Path, text: str) -> Config:
    file = folder / "mirage.toml"
    file.write_text(f'[service]\nstate = "{folder}/state"\n[api]\nenabled = false\n{text}')
    return load_config(file).config


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    conf = tmp_path / "etc/slurm.conf"
    conf.parent.mkdir()
    conf.write_text(CONF)
    told = {
        ("scontrol", "config"): f"SLURM_CONF = {conf}\n",
        ("scontrol", "--version"): "slurm 24.11.5\n",
        ("sacctmgr", "assoc"): ASSOC,
        ("sacctmgr", "qos"): "Name|Priority\nnormal|0\n",
    }
    with FakeSlurm(tmp_path / "slurm", told=told) as fake:
        yield fake


# The cluster as it says itself


def test_a_cluster_is_described_by_the_file_it_has_read_and_by_its_accounts(slurm: FakeSlurm) -> None:
    found = described_by_slurm("", CommandRunner(slurm.environment("alice")))
    assert (found.name, found.node_count, found.partitions[0].name) == ("site", 4, "gpu")
    assert next(row.max_jobs for row in found.associations if row.user == "alice") == 3
    assert [quality.name for quality in found.qos] == ["normal"]
    assert found.slurm == "24.11"


def test_without_accounting_all_are_equal(slurm: FakeSlurm) -> None:
    slurm.told = {key: told for key, told in slurm.told.items() if key == ("scontrol", "config")}
    found = described_by_slurm("", CommandRunner(slurm.environment("alice")))
    assert (found.associations, found.slurm) == ((), "22.05")


def test_dumps_beside_the_file_come_first(slurm: FakeSlurm, tmp_path: Path) -> None:
    (tmp_path / "etc/assoc.txt").write_text(ASSOC.replace("|3", "|5"))
    found = described_by_slurm(str(tmp_path / "etc/slurm.conf"), CommandRunner(slurm.environment("alice")))
    assert next(row.max_jobs for row in found.associations if row.user == "alice") == 5
    assert not any("assoc" in call.arguments for call in slurm.calls)


def test_a_file_that_is_not_here_is_asked_for(slurm: FakeSlurm) -> None:
    slurm.told["scontrol", "config"] = "SLURM_CONF = /nowhere/slurm.conf\n"
    with pytest.raises(ConfigError, match=r"predictors.lookahead.cluster: .*/nowhere/slurm.conf.*set a copy"):
        described_by_slurm("", CommandRunner(slurm.environment("alice")))


def test_another_program_reads_the_same_cluster(slurm: FakeSlurm, tmp_path: Path) -> None:
    commands = CommandRunner(slurm.environment("alice"))
    (tmp_path / "etc/slurmdbd.conf").write_text("StoragePass=secret\n")
    work = tmp_path / "work"
    work.mkdir()
    assert load_cluster(copied_from_slurm("", commands, work)) == described_by_slurm("", commands)
    assert all(path.is_symlink() or "secret" not in path.read_text() for path in (work / "cluster").iterdir())


# Which predictors


def test_look_ahead_knows_its_cluster_and_prices(slurm: FakeSlurm, tmp_path: Path) -> None:
    from mirage.predictors.lookahead import Lookahead

    commands = CommandRunner(slurm.environment("alice"))
    lore = ClusterInfo(description=lambda: described_by_slurm("", commands))
    guards = build_guards(config(tmp_path, '[loop]\npredictor = "lookahead"\n'), lore)
    assert isinstance(guards.of("").predictor, Lookahead)
    assert guards.wants.history > 0
    guards.close()


def test_a_named_cluster_needs_no_question(tmp_path: Path) -> None:
    text = '[loop]\npredictor = "lookahead"\n[predictors.lookahead]\ncluster = "demo"\n'
    guards = build_guards(config(tmp_path, text), ClusterInfo())
    assert guards.of("").predictor.name == "lookahead"
    guards.close()


def test_members_of_an_ensemble_are_those_that_the_daemon_would_have(tmp_path: Path) -> None:
    text = '[loop]\npredictor = "ensemble:lookahead+quantile"\n[predictors.lookahead]\ncluster = "demo"\n'
    guards = build_guards(config(tmp_path, text), ClusterInfo())
    assert guards.of("").predictor.name == "ensemble:lookahead+quantile"
    assert guards.wants.history > 0
    guards.close()
    with pytest.raises(ConfigError, match=r"loop.predictor: .*cannot describe the cluster"):
        build_guards(config(tmp_path, '[loop]\npredictor = "ensemble:lookahead+quantile"\n'), ClusterInfo())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('predictor = "lookahead"', r"loop.predictor: .*cannot describe the cluster"),
        ('predictor = "lookahead:3"', r"loop.predictor: .*takes no parameter"),
        ('shadows = ["average", "crystal-ball"]', r"loop.shadows: no predictor 'crystal-ball'"),
        ('shadows = ["fixed:soon"]', r"loop.shadows: predictor 'fixed:soon'"),
        ('fallback = "crystal-ball"', r"loop.fallback: no predictor 'crystal-ball'"),
    ],
)
def test_a_predictor_that_cannot_be_had_stops_the_start(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        build_guards(config(tmp_path, f"[loop]\n{text}\n"), ClusterInfo())
    assert "\n" not in str(raised.value)


def test_a_chain_that_names_a_shadow_gets_it(tmp_path: Path) -> None:
    guards = build_guards(config(tmp_path, '[loop]\nshadows = ["fixed:6h", "average"]\n'), ClusterInfo())
    assert [shadow.predictor.name for shadow in guards.shadows] == ["fixed:6h", "average"]
    assert guards.of("average") is guards.shadows[1]
    assert guards.wants.waits > 0
    guards.close()


def test_at_a_reload_the_old_ones_stay(tmp_path: Path) -> None:
    cluster = FakeCluster()
    cluster.rate = 1.0
    (tmp_path / "state").mkdir(mode=0o700)
    made = config(tmp_path, '[loop]\nshadows = ["average"]\n')
    service = assemble(made, ClusterConnection(cluster, cluster, cluster, cluster), lambda: None)
    before = service.guards
    with pytest.raises(ConfigError, match=r"loop.shadows"):
        service.reconfigure(config(tmp_path, '[loop]\nshadows = ["crystal-ball"]\n'))
    assert service.guards is before
    service.reconfigure(config(tmp_path, '[loop]\nshadows = ["fixed:1h"]\n'))
    assert [shadow.predictor.name for shadow in service.guards.shadows] == ["fixed:1h"]
    service.close()


def test_a_shadow_that_fails_is_written_down_as_that_and_not_as_its_fallback(tmp_path: Path) -> None:
    """Without jobs of the past look-ahead has no answer; the reactive one would have."""
    cluster = FakeCluster()
    cluster.rate = 1.0
    (tmp_path / "state").mkdir(mode=0o700)
    shadow = 'predictor = "average"\nshadows = ["lookahead"]\n[predictors.lookahead]\ncluster = "demo"\n'
    service = assemble(
        config(tmp_path, f"[loop]\n{shadow}"), ClusterConnection(cluster, cluster, cluster, cluster), lambda: None
    )
    service.store.chains.save(ChainRecord(chain(done=DoneCondition(links=2))))
    for _ in range(4):
        cluster.advance(cluster.now() + 600)
        service.loop.cycle()
    service.store.journal.flush()
    assert service.store.journal.read(kinds=[EntryKind.SHADOW]) == ()
    (first, *_) = service.store.journal.read(kinds=[EntryKind.TROUBLE])
    assert "shadow predictor lookahead: no prediction: " in first.entry.text
    service.close()


# The last day


def test_a_restart_does_not_lose_the_queues_last_day(tmp_path: Path) -> None:
    from mirage.backends.simulated import SimulatedCluster

    trace = generate("demo", 1)
    begin = int(trace.submit[0]) + 2 * 86_400
    cluster = SimulatedCluster(Simulation(load_cluster("demo"), trace, start=begin))
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    seen = QueueWindows()
    for step in range(LENGTH + 10):
        cluster.advance(begin + step * SPACING + step % 7)
        snapshot = cluster.snapshot()
        seen.add(snapshot)
        store.snapshots.write(snapshot)
    again = QueueWindows()
    refill(again, store.snapshots, cluster.now())
    for partition in ("", cluster.simulation.partition_names[0]):
        whole, found = seen.of(partition), again.of(partition)
        assert whole is not None
        assert found is not None
        assert len(found) >= LENGTH - 1
        assert found.times.tolist() == whole.times.tolist()[-len(found) :]
        assert (found.rows == whole.rows[-len(found) :]).all()
    store.close()


def test_a_store_that_cannot_be_read_costs_the_day_not_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")

    def fails(*_: object) -> None:
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(type(store.snapshots), "times", fails)
    refill(QueueWindows(), store.snapshots, 0)
    assert "the disk is away" in caplog.text
    store.close()
