"""A login name that is given to another person: nothing of the former owner remains."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fake_slurm.fake import HOUR, FakeSlurm
from fakes import chain

from mirage.api.access.caller import Scope
from mirage.api.access.holders import UNKNOWN, Holders
from mirage.api.access.protocol import Peer
from mirage.api.access.sessions import Session
from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.config.loading import load_config
from mirage.daemon.supervision import Supervisor
from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirage.api.access.authentication import Authenticator

MIN = 60


class Site:
    """A daemon that acts for others, in this process, on a fake Slurm; its user database is ``users``."""

    rate = 1.0

    def __init__(self, slurm: FakeSlurm, folder: Path) -> None:
        self.slurm, self.folder, self.users = slurm, folder, {"alice": 1_007, "bob": 1_008}
        self.start()

    def now(self) -> int:
        return self.slurm.now()

    def start(self) -> None:
        file = self.folder / "mirage.toml"
        file.write_text(
            f'[service]\nstate = "{self.folder}"\nruntime = "{self.folder}"\n[loop]\npredictor = "reactive"\n'
            '[acting]\nmode = "agent"\n'
        )
        commands = CommandRunner(self.slurm.environment("alice"), 30.0)
        actuator = CliActuator(commands, "alice")
        world = ClusterConnection(CliCluster(commands, self), actuator, actuator, self)
        self.service = assemble(load_config(file).config, world, lambda: None)
        assert self.service.holders is not None
        self.service.holders._uid_of = lambda name: self.users.get(name, UNKNOWN)
        self.supervisor = Supervisor(self.service)

    @property
    def holders(self) -> Holders:
        assert self.service.holders is not None
        return self.service.holders

    @property
    def gate(self) -> Authenticator:
        assert self.service.interface is not None
        return self.service.interface.service.gate

    def again(self) -> None:
        self.service.close()
        self.start()

    def cycle(self, count: int = 1) -> None:
        for _ in range(count):
            self.slurm.advance(10 * MIN)
            self.supervisor.cycle()
            assert not self.supervisor.failures

    def enters(self, session: Session) -> str:
        """The user who is admitted over the network with this proof; empty: none."""
        try:
            return self.gate._caller(session, "token").name
        except NotPermitted:
            return ""

    @property
    def record(self) -> ChainRecord:
        (record,) = self.service.store.chains.load()
        record.check()
        return record


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    with FakeSlurm(tmp_path / "slurm") as slurm:
        made = Site(slurm, folder)
        service = chain(2 * HOUR, DoneCondition(exit_code=None, links=9))
        request = replace(service.request, partition="cpu")
        made.service.store.chains.save(ChainRecord(replace(service, request=request)))
        made.cycle(2)
        yield made
        made.service.close()


@pytest.mark.parametrize("found_by", ["socket", "token", "review", "submission", "restart"])
def test_new_holder_of_a_name_gets_nothing_of_the_former_ones(found_by: str, site: Site) -> None:
    text, token = site.gate.tokens.create("alice", "", Scope.OPERATE, 0)
    kept = Session("alice", Scope.OPERATE, token.token_id)
    cookie = site.gate.sessions.open(Session("alice", Scope.OPERATE, by_link=True))
    assert site.enters(kept) == "alice"
    assert site.record.links[0].running
    jobs = len(list(site.slurm.jobs()))
    site.users["alice"] = 1_050
    time.sleep(0.01)
    site.holders._checked.clear()  # a minute has passed
    match found_by:
        case "socket":
            with pytest.raises(NotPermitted, match=r"1007.*1050"):
                site.gate._peer(Peer(1_050, "alice"))
        case "token":
            assert site.enters(kept) == ""
        case "review":
            site.service.refresh_access()
        case "submission":
            site.cycle(20)
        case "restart":
            site.again()
            site.service.refresh_access()
    site.cycle(2)
    assert site.gate._peer(Peer(1_050, "alice")).name == "alice", "the new holder is welcome"
    assert site.record.status is ChainStatus.STOPPED
    assert site.record.chain.owner == site.record.chain.request.user == "uid:1007"
    assert site.gate.tokens.find(text) is None
    assert found_by == "restart" or site.gate.sessions.read(cookie) is None
    site.cycle(20)
    assert len(list(site.slurm.jobs())) == jobs, "no link ran in the new holder's name"
    site.again()
    assert site.record.status is ChainStatus.STOPPED
    assert site.gate._peer(Peer(1_050, "alice")).name == "alice"


def test_user_who_has_gone_comes_in_no_more_until_the_database_knows_them_again(site: Site) -> None:
    kept = Session("alice", Scope.OPERATE)
    assert site.enters(kept) == "alice"
    uid = site.users.pop("alice")
    assert site.enters(kept) == "alice", "a short outage of the database locks out no user"
    site.holders._checked.clear()
    assert site.enters(kept) == ""
    assert site.gate._peer(Peer(uid, "alice")).name == "alice", "the kernel knows"
    site.users["alice"] = uid
    assert site.enters(kept) == "alice"
    assert site.record.status is ChainStatus.ACTIVE


def test_root_comes_in_while_the_user_database_hangs(site: Site) -> None:
    def hangs(name: str) -> int:
        raise NotPermitted("the user database has not answered within 5 s")

    site.holders._uid_of = hangs
    assert site.gate._peer(Peer(0, "root")).is_admin


def test_name_that_stands_for_two_users_is_neithers(site: Site) -> None:
    """Two sources of users, such as files and a directory, that disagree."""
    with pytest.raises(NotPermitted, match=r"1050.*1007"):
        site.gate._peer(Peer(1_050, "alice"))
    assert site.record.status is ChainStatus.ACTIVE


def test_names_that_this_machine_does_not_know_are_compared_with_nothing(site: Site) -> None:
    """A container lists only local users; Slurm's tokens and an administrator's name other people all the same."""
    assert site.enters(Session("carol", Scope.READ)) == "carol"
    site.users["carol"] = 1_009
    site.holders._checked.clear()
    assert site.enters(Session("carol", Scope.READ)) == "carol"
    assert site.service.store.holders.load()["carol"] == 1_009


def test_while_the_user_database_hangs_links_are_submitted_for_a_while() -> None:
    now, asked, hanging = [0.0], [], [False]

    def looked_up(name: str) -> int:
        asked.append(name)
        if hanging[0]:
            now[0] += 5
            raise NotPermitted("the user database has not answered within 5 s")
        return 1_007

    holders = Holders(Kept(), lambda name, uid, done, failed: failed(), looked_up, lambda: now[0])
    holders.permit("alice")
    now[0], hanging[0] = 600.0, True
    holders.permit("alice")
    assert asked == ["alice"], "the loop waits for no user database that hangs"
    now[0] = 901.0
    with pytest.raises(NotPermitted):
        holders.permit("alice")
    now[0], hanging[0] = 970.0, False
    holders.review(["alice"])
    holders.permit("alice")


def test_a_user_who_comes_back_after_hours_is_looked_up_again() -> None:
    """Nobody has asked meanwhile: that is no failure of the user database."""
    now = [0.0]
    holders = Holders(Kept(), lambda name, uid, done, failed: failed(), lambda name: 1_007, lambda: now[0])
    holders.permit("alice")
    now[0] = 7_200.0
    holders.permit("alice")


def test_only_one_act_waits_for_a_user_database_that_hangs() -> None:
    now, asked = [0.0], []

    def hangs(name: str) -> int:
        asked.append(name)
        now[0] += 5
        raise NotPermitted("the user database has not answered within 5 s")

    holders = Holders(Kept(), lambda name, uid, done, failed: failed(), hangs, lambda: now[0])
    for name in ("alice", "bob", "carol"):
        with pytest.raises(NotPermitted):
            holders.permit(name)
    assert asked == ["alice"]
    now[0] += 61
    with pytest.raises(NotPermitted):
        holders.permit("bob")
    assert asked == ["alice", "bob"]


def test_what_cannot_be_put_away_now_is_tried_again() -> None:
    users, tries = {"alice": 1}, []

    def succession(name: str, uid: int, done: Callable[[], None], failed: Callable[[], None]) -> None:
        tries.append(uid)
        failed() if len(tries) == 1 else done()

    holders = Holders(Kept(), succession, lambda name: users[name])
    holders.check("alice")
    users["alice"] = 2
    for _ in range(2):
        with pytest.raises(NotPermitted):
            holders.check("alice")
    holders.check("alice")
    assert tries == [1, 1]


class Kept:
    """UIDs in memory."""

    def __init__(self) -> None:
        self.uids: dict[str, int] = {}

    def load(self) -> dict[str, int]:
        return dict(self.uids)

    def put(self, name: str, uid: int) -> None:
        self.uids[name] = uid
