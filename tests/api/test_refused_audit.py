"""A request for another user's chain is treated like one for a missing chain, whatever the database does."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from network_world import CHAINS, slurm_token

from mirage.api.access import auditing
from mirage.api.access.auditing import AuditWriter
from mirage.api.access.caller import Scope
from mirage.api.feed import Feed
from mirage.api.listening import Listening
from mirage.api.port import ChainIndex
from mirage.api.server import ApiServer
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import JobRequest
from mirage.domain.tags import owned_id
from mirage.store.access import AuditEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from network_world import Answer, Network

    from mirage.store.access import AuditLog

ADA, BOB = slurm_token("ada"), slurm_token("bob")
BOBS, NONE = owned_id("bobs-x1", "bob"), owned_id("bobs-x2", "bob")
REQUESTS = [
    ("GET", f"{CHAINS}/%s"),
    ("GET", f"{CHAINS}/%s/explain"),
    ("GET", f"{CHAINS}/%s/timeline"),
    ("GET", f"{CHAINS}/%s/tasks"),
    ("GET", "/api/v1/events?chain=%s"),
    ("GET", "/chains/%s"),
    ("POST", f"{CHAINS}/%s/pause"),
    ("POST", f"{CHAINS}/%s/resume"),
    ("POST", f"{CHAINS}/%s/cancel"),
]


class HungAudit:
    """An audit log whose database hangs until it is released."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.go = threading.Event()
        self.begun = threading.Event()

    def write_all(self, entries: Sequence[AuditEntry]) -> None:
        self.begun.set()
        assert self.go.wait(60)
        self._log.write_all(entries)


class Audit:
    """An audit that keeps its lines in memory, where no test waits for it."""

    def __init__(self) -> None:
        self.lines: list[AuditEntry] = []

    def write_all(self, entries: Sequence[AuditEntry]) -> None:
        self.lines += entries


class AwayAudit:
    """An audit whose database does not answer."""

    def write_all(self, entries: Sequence[AuditEntry]) -> None:
        raise StoreUnavailable("the database is away")


@pytest.fixture
def hung(network: Network) -> Iterator[HungAudit]:
    made = HungAudit(network.store.audit)
    yield made
    made.go.set()


@contextlib.contextmanager
def served_with(network: Network, audit: Any) -> Iterator[Network]:
    """A second server on the same store; its audit is another."""
    feed = Feed(lambda chain: "")
    service = replace(network.server.service, audit=audit, feed=feed, journal=network.store.journal)
    server = ApiServer(service, network.server._path.with_suffix(".audit"), Listening.of("127.0.0.1:0"))
    server.start()
    try:
        yield replace(network, server=server)
    finally:
        server.stop()


def entry(user: str, number: int = 0) -> AuditEntry:
    return AuditEntry(number, user, -1, f"GET {number}", None, "another's chain", "jwt")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.getMessage().startswith("event=audit_entry_not_stored")
    ]


# The order of answer and line


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_refusal_is_answered_while_the_audit_hangs(
    network: Network, hung: HungAudit, method: str, path: str
) -> None:
    assert network.with_token("POST", CHAINS, BOB, definition("bobs-x1")).status == 201
    with served_with(network, hung) as served:
        answers: list[Answer] = []
        for chain in (BOBS, NONE, BOBS, NONE):
            answers.append(served.with_token(method, path % chain, ADA))
            assert hung.begun.wait(60), "a line is on its way for either"
        assert [line.entry.user for line in network.store.audit.read()] == ["bob"]
        hung.go.set()
    assert {answer.status for answer in answers} == {404}
    assert len({str(answer.body).replace(BOBS, NONE) for answer in answers}) == 1
    lines = [line for line in network.audited(5) if line.user == "ada"]
    assert [(line.chain, line.result) for line in lines] == [
        (BOBS, "another's chain"),
        (NONE, "no such chain"),
    ] * 2


@pytest.mark.parametrize("chain", [BOBS, NONE])
def test_refusal_of_either_kind_reaches_the_database(network: Network, hung: HungAudit, chain: str) -> None:
    assert network.with_token("POST", CHAINS, BOB, definition("bobs-x1")).status == 201
    with served_with(network, hung) as served:
        assert served.with_token("GET", f"{CHAINS}/{chain}", ADA).status == 404
        assert hung.begun.wait(60)
        hung.go.set()


def test_change_without_scope_is_refused_while_audit_hangs(network: Network, hung: HungAudit) -> None:
    with served_with(network, hung) as served:
        made = served.token("ada", Scope.READ)
        assert served.with_token("POST", f"{CHAINS}/train/pause", made).status == 403
        assert hung.begun.wait(60)
        hung.go.set()
    (line,) = network.audited(1)
    assert (line.user, line.result) == ("ada", "rejected (403)")


def test_command_is_answered_after_its_audit_line(network: Network, hung: HungAudit) -> None:
    assert network.with_token("POST", CHAINS, ADA, definition()).status == 201
    with served_with(network, hung) as served, ThreadPoolExecutor(1) as threads:
        asked = threads.submit(served.with_token, "POST", f"{CHAINS}/train/pause", ADA)
        assert hung.begun.wait(60)
        assert served.with_token("GET", f"{CHAINS}/{NONE}", ADA).status == 404
        assert not asked.done()
        hung.go.set()
        assert asked.result().status == 200
        assert "pause" in [line.entry.action for line in network.store.audit.read()]


def test_own_typing_errors_are_not_in_the_audit(network: Network) -> None:
    audit = Audit()
    with served_with(network, audit) as served:
        for name in ("train", owned_id("train", "ada")):
            assert served.with_token("GET", f"{CHAINS}/{name}", ADA).status == 404
        assert served.with_token("GET", f"{CHAINS}/{NONE}", slurm_token("chief")).status == 404
    assert audit.lines == []


# No line is lost in silence


def test_audit_lines_that_wait_are_written_at_the_end(network: Network, hung: HungAudit) -> None:
    with served_with(network, hung) as served:
        for _ in range(7):
            assert served.with_token("GET", f"{CHAINS}/{NONE}", ADA).status == 404
        threading.Timer(0.2, hung.go.set).start()
    assert [line.entry.result for line in network.store.audit.read()] == ["no such chain"] * 7


def test_audit_writer_closed_while_hung_logs_its_lines(
    network: Network, hung: HungAudit, caplog: pytest.LogCaptureFixture
) -> None:
    writer = AuditWriter(hung)  # type: ignore[arg-type]
    writer.add(entry("ada", 0))
    assert hung.begun.wait(60)
    for number in (1, 2):
        writer.add(entry("ada", number))
    writer.close(0.1)
    writer.add(entry("ada", 3))
    assert [line.partition("action=")[2][1:6] for line in told(caplog)] == ["GET 0", "GET 1", "GET 2", "GET 3"]


def test_audit_lines_of_a_lost_database_are_in_the_log(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    with served_with(network, AwayAudit()) as served:
        assert served.with_token("GET", f"{CHAINS}/{NONE}", ADA).status == 404
        assert served.with_token("POST", CHAINS, ADA, definition()).status == 201
    lines = told(caplog)
    assert len(lines) == 2
    assert all("the database is away" in line for line in lines)
    assert all(each.__dict__["always"] for each in caplog.records if each.getMessage() in lines)


def test_audit_writer_goes_on_after_any_error(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Audit):
        def write_all(self, entries: Sequence[AuditEntry]) -> None:
            if entries[0].user == "ada":
                raise ZeroDivisionError("the secret of the house")
            super().write_all(entries)

    audit = Failing()
    writer = AuditWriter(audit)  # type: ignore[arg-type]
    writer.write(entry("ada"))
    writer.add(entry("bob"))
    writer.close(60)
    assert [line.user for line in audit.lines] == ["bob"]
    assert len(told(caplog)) == 1


def test_audit_lines_of_one_user_leave_room_for_others(
    network: Network, hung: HungAudit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auditing, "MOST_OF_ONE", 5)
    monkeypatch.setattr(auditing, "MOST", 12)
    writer = AuditWriter(hung)  # type: ignore[arg-type]
    for user in ("ada", "bob", "eve"):
        for number in range(8):
            writer.add(entry(user, number))
    logged = [line.partition("user=")[2].partition(" ")[0] for line in told(caplog)]
    assert logged == ["ada"] * 3 + ["bob"] * 3 + ["eve"] * 6
    hung.go.set()
    writer.close(60)
    users = [line.user for line in network.audited(12)]
    assert [users.count(user) for user in ("ada", "bob", "eve")] == [5, 5, 2]
    assert len(told(caplog)) == len(logged)


# The look-up


def test_chain_index_reads_each_state_once() -> None:
    class Counting(tuple[ChainRecord, ...]):
        __slots__ = ()
        reads = 0

        def __iter__(self) -> Iterator[ChainRecord]:
            Counting.reads += 1
            return super().__iter__()

    def record(owner: str, number: int) -> ChainRecord:
        chain_id = owned_id(f"c{number}", owner)
        return ChainRecord(Chain(chain_id, "c", owner, JobRequest("c", owner, 3_600)))

    records = Counting([record(owner, number) for number in range(50) for owner in ("ada", "bob")])
    index = ChainIndex()
    for _ in range(10):
        assert index.find(records, ChainId("none")) is None
        assert index.find(records, records[7].chain.chain_id) is records[7]
        assert list(index.owned(records, "bob")) == list(records[1::2])
        assert index.owned(records, "eve") == ()
    assert Counting.reads == 1
    assert index.find((), records[7].chain.chain_id) is None
