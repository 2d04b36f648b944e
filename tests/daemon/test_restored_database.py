"""A backup is restored after a chain has continued: no link is submitted twice, and no work is repeated."""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import HOUR, FakeSlurm, Fault
from fakes import chain
from sites import running_site

from mirage.backends.cli import CliCluster, CliLinkAccounting
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.backends.simulated import SimulatedExecution
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo
from mirage.config.loading import load_config
from mirage.control import restored
from mirage.daemon import chores as query
from mirage.daemon.chores import restored_query
from mirage.daemon.supervision import Supervisor
from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.command import CancelChain, ResumeChain
from mirage.domain.job import JobState
from mirage.store.backup import back_up
from mirage.store.location import locate
from mirage.store.restoration import declare_restored, read_restoration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.bootstrap.service import DaemonService

MIN = 60
LIMIT = 2 * HOUR
FIVE_LINKS = DoneCondition(exit_code=None, links=5)


class Site:
    """A daemon in this process, on a fake Slurm whose time the test moves."""

    rate = 1.0

    def __init__(self, slurm: FakeSlurm, folder: Path) -> None:
        self.slurm, self.folder = slurm, folder
        self.url = f"sqlite:///{folder}/mirage.db"
        self.accounts("job_comment")
        self.start()

    def now(self) -> int:
        return self.slurm.now()

    def accounts(self, flags: str) -> None:
        self.slurm.comments_accounted = "job_comment" in flags
        self.slurm.told["scontrol", "config"] = f"AccountingStoreFlags    = {flags}\n"

    def start(self, *, asks: bool = True, user: str = "") -> None:
        file = self.folder / "mirage.toml"
        file.write_text(
            f'[service]\nstate = "{self.folder}"\nruntime = "{self.folder}"\n[loop]\npredictor = "reactive"\n'
            f'[api]\nenabled = false\n[store]\nurl = "{self.url}"\n'
        )
        commands = CommandRunner(self.slurm.environment("alice"), 30.0)
        actuator = CliActuator(commands, "alice")
        lore = ClusterInfo(links=CliLinkAccounting(commands) if asks else None)
        world = ClusterConnection(CliCluster(commands, self), actuator, actuator, self, lore, user)
        self.service: DaemonService = assemble(load_config(file).config, world, lambda: None)
        self.supervisor = Supervisor(self.service)

    def add(self, done: DoneCondition = FIVE_LINKS, **more) -> None:
        made = chain(LIMIT, done, **more)
        self.service.store.chains.save(ChainRecord(replace(made, request=replace(made.request, partition="cpu"))))

    def cycle(self, count: int = 1, step: int = 10 * MIN) -> None:
        for _ in range(count):
            self.slurm.advance(step)
            self.supervisor.cycle()
            assert not self.supervisor.failures

    def cycle_until_links(self, count: int) -> None:
        while len(self.record.links) < count or not self.record.links[-1].running:
            self.cycle()

    def back_up(self) -> Path:
        place = self.folder / "backup.db"
        back_up(locate(self.url), place)
        return place

    def restore(self, backup: Path, *, asks: bool = True, user: str = "") -> None:
        """The procedure of docs/deploy.md; slurmctld has forgotten the ended jobs by then."""
        self.service.close()
        for name in ("mirage.db-wal", "mirage.db-shm"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.copyfile(backup, self.folder / "mirage.db")
        self.slurm.advance(2 * self.slurm.min_job_age)
        self.start(asks=asks, user=user)

    def ask_accounting(self) -> str:
        return restored_query(self.service, Event()).run()

    def resume(self) -> None:
        self.service.commands.put(ResumeChain(self.record.chain.chain_id, "alice"))

    @property
    def record(self) -> ChainRecord:
        (record,) = self.service.store.chains.load()
        record.check()
        return record

    @property
    def tags(self) -> list[int]:
        return [int(job.tag.rpartition(":")[2]) for job in self.slurm.jobs()]

    @property
    def settled(self) -> bool:
        return read_restoration(self.url) is None


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_PAUSE", 0.0)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with FakeSlurm(tmp_path / "slurm") as slurm:
        yield Site(slurm, folder)


def gone_on(site: Site, links: int = 3, done: DoneCondition = FIVE_LINKS) -> Path:
    """A backup that knows the first link alone; the last of ``links`` runs, or has ended the chain."""
    site.add(done)
    site.cycle_until_links(1)
    backup = site.back_up()
    site.cycle_until_links(links)
    return backup


def test_restored_chain_that_was_done_is_done_and_nothing_runs_again(site: Site) -> None:
    site.slurm.runs["mirage:svc:3"] = SimulatedExecution(HOUR, JobState.COMPLETED, 0)
    backup = gone_on(site, done=DoneCondition())
    while not site.record.over:
        site.cycle()
    before = site.record
    site.restore(backup)
    site.cycle(3)
    site.ask_accounting()
    site.cycle(20)
    assert site.tags == [1, 2, 3]
    assert site.record.status is ChainStatus.DONE
    assert site.record.reason == before.reason
    assert site.record.outcomes() == before.outcomes(), "and no interruption as long as the backup is old"
    assert site.settled


def test_restored_chain_waits_for_accounting_and_is_paused_then(site: Site) -> None:
    backup = gone_on(site)
    site.cycle(13)  # its third link ends, and a fourth runs
    site.restore(backup)
    site.cycle(3)
    assert "accounting has not answered yet" in site.service.loop.status.explained[site.record.chain.chain_id]
    assert len(site.record.links) == 1, "what became of the first link is judged with what followed"
    site.slurm.accounting_down = True
    assert site.ask_accounting() == ""
    site.cycle()
    assert "accounting does not answer" in site.service.loop.status.sentence
    assert not site.settled
    site.slurm.accounting_down = False
    site.slurm.fault("sacct", Fault.CUT_OFF)
    assert site.ask_accounting() == ""
    assert "jobs of links" in site.ask_accounting()
    site.cycle()
    assert site.settled
    assert site.record.status is ChainStatus.PAUSED
    assert [link.job_id for link in site.record.links] == [job.job_id for job in site.slurm.jobs()]
    assert all(str(job.job_id) in site.record.reason for job in site.slurm.jobs()[1:])
    known = len(site.record.links)
    site.cycle(20)
    assert len(site.tags) == known
    site.resume()
    while not site.record.over:
        site.cycle()
    assert site.tags == [1, 2, 3, 4, 5]
    assert site.record.status is ChainStatus.DONE


def test_restored_chain_without_further_links_continues(site: Site) -> None:
    site.add()
    site.cycle_until_links(1)
    site.restore(site.back_up())
    site.ask_accounting()
    while not site.record.over:
        site.cycle()
    assert site.tags == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("why", ["no comments", "no accounting", "not asked", "no such port", "too old"])
def test_restored_chains_are_paused_where_accounting_cannot_tell(site: Site, why: str) -> None:
    if why == "no comments":
        site.accounts("(null)")
    backup = gone_on(site)
    site.service.close()
    site.restore(backup, asks=why != "no such port")
    if why == "no accounting":
        site.slurm.accounting = False
    if why == "too old":
        site.slurm.advance(91 * 86_400)
    if why == "not asked":
        site.service.close()
        declare_restored(site.url, asks_accounting=False)
        site.start()
    site.ask_accounting()
    site.cycle(20)
    assert site.tags == [1, 2, 3]
    assert site.record.status is ChainStatus.PAUSED
    assert "restored from a backup" in site.record.reason
    assert "accounting" in site.record.reason
    assert site.settled


def test_restored_running_successor_is_found_without_accounting(site: Site) -> None:
    site.accounts("(null)")
    backup = gone_on(site, links=2)
    site.restore(backup)
    site.ask_accounting()
    site.cycle()
    assert site.record.links[1].running
    assert site.record.status is ChainStatus.PAUSED
    site.cycle(30)
    assert site.tags == [1, 2]


def test_restored_chains_wait_again_after_a_crash(site: Site) -> None:
    """The record is stored, the end of the comparison is not."""
    backup = gone_on(site)
    site.restore(backup)
    site.ask_accounting()
    kept = site.service.restored
    assert kept is not None
    kept.settle = lambda: None
    site.cycle()
    assert site.record.status is ChainStatus.PAUSED
    assert not site.settled
    site.service.close()
    site.start()
    site.cycle()
    site.ask_accounting()
    site.cycle(20)
    assert site.settled
    assert site.tags == [1, 2, 3]
    assert site.record.status is ChainStatus.PAUSED


def test_restored_chain_is_not_judged_by_an_old_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller was away for long after accounting had answered."""
    backup = gone_on(site)
    site.restore(backup)
    site.ask_accounting()
    monkeypatch.setattr(restored, "_FRESH_S", -1.0)
    site.cycle()
    assert site.record.status is ChainStatus.ACTIVE
    monkeypatch.undo()
    site.ask_accounting()
    site.cycle()
    assert site.record.status is ChainStatus.PAUSED


@pytest.mark.parametrize(("user", "named"), [("", True), ("alice", True), ("bob", False)])
def test_restored_database_names_chains_that_it_lacks(
    site: Site, caplog: pytest.LogCaptureFixture, user: str, named: bool
) -> None:
    """Those that it can have had: a daemon of bob's own never made one of alice's."""
    site.cycle()
    backup = site.back_up()
    site.add()
    site.cycle_until_links(2)
    site.restore(backup, user=user)
    site.ask_accounting()
    site.cycle()
    assert site.settled
    assert ("event=unknown_chains_in_accounting chains=1 first=svc:alice" in caplog.text) == named


def test_restored_chain_can_be_cancelled_while_it_waits(site: Site) -> None:
    backup = gone_on(site, links=1)
    site.restore(backup)
    site.service.commands.put(CancelChain(site.record.chain.chain_id, "alice"))
    site.cycle(2)
    assert site.record.status is ChainStatus.STOPPED
    assert site.slurm.live() == []


def test_restored_database_of_another_tool_is_declared(site: Site) -> None:
    """Its copy bears no mark, and the machine's snapshot took the number of the last transaction back as well."""
    site.add()
    site.cycle_until_links(1)
    site.service.close()
    shutil.copyfile(site.folder / "mirage.db", site.folder / "copy.db")
    site.start()
    site.cycle_until_links(3)
    (site.folder / "transactions").unlink()
    site.restore(site.folder / "copy.db")
    assert site.settled, "nothing shows it"
    site.service.close()
    declare_restored(site.url)
    site.start()
    site.ask_accounting()
    site.cycle(20)
    assert site.tags == [1, 2, 3]
    assert site.record.status is ChainStatus.PAUSED


def test_restored_by_commands_under_a_daemon_of_its_own(tmp_path: Path) -> None:
    """The process asks accounting by itself, and doctor warns until it has."""
    with running_site(tmp_path) as site:
        site.slurm.told["scontrol", "config"] = "AccountingStoreFlags = job_comment\n"
        site.add_chain(links=9)
        url = f"sqlite:///{tmp_path}/state/mirage.db"
        with site.daemon() as daemon:
            wait_until(lambda: site.record().links, "the first link")
            back_up(locate(url), tmp_path / "backup.db")
            known = len(site.record().links)
            wait_until(lambda: len(site.tags()) > known + 1, "further links")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(120) == 0
        for name in ("mirage.db-wal", "mirage.db-shm"):
            (tmp_path / "state" / name).unlink(missing_ok=True)
        shutil.copyfile(tmp_path / "backup.db", tmp_path / "state" / "mirage.db")
        wait_until(lambda: not site.slurm.live(), "the end of what runs")
        said = site.mirage("doctor", "--config", str(site.config)).stdout
        assert "its tokens are revoked" in said
        before = site.tags()
        with site.daemon() as daemon:
            wait_until(lambda: read_restoration(url) is None, "the comparison")
            assert site.record().status is ChainStatus.PAUSED
            assert "its tokens are revoked" not in site.mirage("doctor", "--config", str(site.config)).stdout
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(120) == 0
        assert site.tags() == before
