"""Small parts of the daemon: word to systemd, logs, lock, heartbeat, housekeeping, reload, failing cycles."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shlex
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes import FakeCluster, chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.bootstrap.records import LoggedJournal
from mirage.config.loading import load_config
from mirage.control.clocks import JumpWatch
from mirage.control.stores import MemoryJournal
from mirage.daemon.chores import Chore, Housekeeping
from mirage.daemon.host import SystemdNotifier
from mirage.daemon.logs import JsonLines, KeyValues, Prioritised, read_by_journal
from mirage.daemon.process import plan_reload
from mirage.daemon.state_directory import AlreadyRunning, Heartbeat, read_beat, single_instance
from mirage.daemon.supervision import Supervisor
from mirage.domain.chain import ChainId, ChainRecord, DoneCondition
from mirage.domain.errors import ConfigError, MirageError, StoreUnavailable
from mirage.domain.journal import Entry, EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import Config


# Word to systemd


def test_without_a_manager_nothing_is_said() -> None:
    notifier = SystemdNotifier({})
    notifier.ready()
    notifier.alive()
    assert notifier.watchdog_seconds == 0


def test_a_manager_that_has_gone_or_does_not_listen_is_no_trouble(tmp_path: Path) -> None:
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        notifier = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "deaf")})
        for _ in range(10_000):
            notifier.ready()


def test_an_abstract_socket_is_understood() -> None:
    name = f"mirage-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        SystemdNotifier({"NOTIFY_SOCKET": "@" + name}).status("two\nlines")
        assert manager.recv(100) == b"STATUS=two lines"


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_watchdog_is_fed_only_where_it_watches_us(environ: dict[str, str], seconds: float) -> None:
    assert SystemdNotifier(environ).watchdog_seconds == seconds


# Logs


def record(text: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("mirage.journal", logging.INFO, "f", 1, "%s", (text,), None)
    made.fields = fields
    return made


@given(st.text(), st.text())
def test_a_line_can_be_taken_apart_again(text: str, value: str) -> None:
    line = KeyValues().format(record(text, chain=value))
    assert "\n" not in line
    document = json.loads(JsonLines().format(record(text, chain=value)))
    assert (document["text"], document["chain"], document["from"]) == (text, value, "journal")


def test_the_journal_is_told_how_urgent_each_line_is(tmp_path: Path) -> None:
    made = record("trouble", chain="svc")
    made.levelno, made.exc_info = logging.ERROR, (ValueError, ValueError("no"), None)
    lines = Prioritised(KeyValues()).format(made).split("\n")
    assert len(lines) > 1
    assert all(line.startswith("<3>") for line in lines)
    assert Prioritised(JsonLines()).format(record("all is well")).startswith("<6>{")
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        assert read_by_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not read_by_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
        assert not read_by_journal(stream, {}), "a terminal, a file, a pipe of another user"


def test_a_decision_is_called_the_same_in_the_log_and_in_the_journal(caplog: pytest.LogCaptureFixture) -> None:
    stored = MemoryJournal()
    decision = Entry(5, ChainId("a"), EntryKind.DECISION, "hold: early", 2, "xgboost", model="0123456789ab")
    with caplog.at_level(logging.INFO):
        LoggedJournal(stored, lambda: None).write(decision)
    fields = caplog.records[-1].fields
    assert (fields["id"], fields["model"]) == (stored.entries[0].key, "0123456789ab")


def test_a_line_reads_as_a_shell_would_read_it() -> None:
    line = KeyValues().format(record('submitted link 3 as job 7: it said "now"', chain="svc", link=3))
    assert shlex.split(line)[3:] == ['text=submitted link 3 as job 7: it said "now"', "chain=svc", "link=3"]


def test_a_decision_that_does_not_change_is_logged_once_and_stored_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored = MemoryJournal()
    written: list[int] = []
    journal = LoggedJournal(stored, lambda: written.append(1))
    with caplog.at_level(logging.INFO):
        for text in ("hold", "hold", "submit", "hold"):
            for name in ("a", "b"):
                journal.write(Entry(1, ChainId(name), EntryKind.DECISION, text))
        journal.write(Entry(1, None, EntryKind.TROUBLE, "the cluster does not answer"))
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.INFO] == [
        text for text in ("hold", "submit", "hold") for _ in "ab"
    ]
    assert caplog.records[-1].levelno == logging.WARNING
    assert len(stored.entries) == len(written) == 9


def test_every_listener_hears_every_entry_and_one_that_fails_disturbs_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stored, early, late = MemoryJournal(), list[str](), list[str]()

    def broken(entry: Entry) -> None:
        raise RuntimeError(entry.text)

    journal = LoggedJournal(stored, lambda: None, [broken, lambda entry: early.append(entry.text)])
    journal.write(Entry(1, None, EntryKind.EVENT, "first"))
    journal.listen(lambda entry: late.append(entry.text))
    journal.write(Entry(2, None, EntryKind.EVENT, "second"))
    assert early == [entry.text for entry in stored.entries] == ["first", "second"]
    assert late == ["second"]
    assert [r.levelname for r in caplog.records if r.exc_info] == ["ERROR"]


# Lock


def test_the_lock_is_free_afterwards_and_not_inherited(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    for _ in range(2):
        with single_instance(file):
            assert file.read_text().strip() == str(os.getpid())
            with pytest.raises(AlreadyRunning, match=str(os.getpid())), single_instance(file):
                pass


def test_of_many_that_start_at_once_one_gets_the_lock(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    results, go = spawn.Queue(), spawn.Event()
    starters = [spawn.Process(target=_try_lock, args=(tmp_path / "lock", results, go)) for _ in range(4)]
    for starter in starters:
        starter.start()
    outcomes = [results.get(timeout=120) for _ in starters]
    go.set()
    for starter in starters:
        starter.join(120)
    assert sorted(outcomes) == ["held", "refused", "refused", "refused"]


def _try_lock(file: Path, results, go) -> None:
    try:
        with single_instance(file):
            results.put("held")
            go.wait(120)
    except AlreadyRunning:
        results.put("refused")


def test_a_lock_that_cannot_be_made_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"service\.state"), single_instance(tmp_path / "no" / "lock"):
        pass


# Heartbeat


def test_the_heartbeat_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "heartbeat"
    assert read_beat(file) is None
    Heartbeat(file).beat(3, "held")
    assert (read_beat(file).cycles, read_beat(file).sentence, read_beat(file).pid) == (3, "held", os.getpid())
    for text in ("", "[]", '{"pid": 1}'):
        file.write_text(text)
        assert read_beat(file) is None


def test_a_heartbeat_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    heart = Heartbeat(tmp_path / "no" / "heartbeat")
    heart.beat(1, "a")
    heart.beat(2, "b")
    assert len([r for r in caplog.records if "event=heartbeat_not_written" in r.getMessage()]) == 1


# Housekeeping


def test_a_chore_that_fails_comes_again_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    enough = threading.Event()
    runs = {"bad": 0, "ugly": 0, "good": 0}

    def work(name: str, error: Exception | None) -> str:
        runs[name] += 1
        if all(count >= 2 for count in runs.values()):
            enough.set()
        if error:
            raise error
        return "done"

    faults = {"bad": StoreUnavailable("locked"), "ugly": RuntimeError("what?"), "good": None}
    chores = tuple(Chore(name, 0.02, 0.0, lambda n=name, e=fault: work(n, e)) for name, fault in faults.items())
    with caplog.at_level(logging.INFO):
        house = Housekeeping(chores)
        assert enough.wait(120)
        house.close()
    said = [r.getMessage() for r in caplog.records]
    assert "event=chore_failed chore=bad error='locked'" in said
    assert any("event=internal_error chore=ugly" in line for line in said)


# Reload


def config_of(folder: Path, text: str) -> Config:
    (folder / "mirage.toml").write_text(f'[service]\nstate = "{folder}"\nruntime = "{folder}"\n{text}')
    return load_config(folder / "mirage.toml").config


def test_what_holds_at_once_and_what_waits(tmp_path: Path) -> None:
    old = config_of(tmp_path, "")
    new = config_of(
        tmp_path,
        '[loop]\ninterval = 7\n[limits]\nlive_links = 9\n[cluster]\nbackend = "rest"\n'
        "[store]\nsnapshot_every = 1\n[store.retention]\nwaits = 5\n",
    )
    plan = plan_reload(old, new)
    assert plan.changed == ("loop.interval", "limits.live_links", "store.retention.waits")
    assert plan.waiting == ("cluster.backend", "store.snapshot_every")
    assert (plan.config.loop.interval, plan.config.store.retention.waits) == (7, 5)
    assert (plan.config.cluster.backend, plan.config.store.snapshot_every) == ("cli", 600)
    assert plan_reload(new, new).changed == ()


# Cycles


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.rate = 1.0
    return made


@pytest.fixture
def service(tmp_path: Path, cluster: FakeCluster) -> Iterator[DaemonService]:
    config = config_of(tmp_path, '[loop]\npredictor = "reactive"\n[api]\nenabled = false\n')
    made = assemble(config, ClusterConnection(cluster, cluster, cluster, cluster), lambda: None)
    yield made
    made.close()


def test_a_failing_cycle_is_a_hold_and_slows_down(service: DaemonService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.store.chains.save(ChainRecord(chain(name="svc", done=DoneCondition(exit_code=None))))
    supervisor = Supervisor(service)
    supervisor.cycle()
    fault: list[Exception] = [MirageError("the store is away")]

    def failing():
        raise fault[0]

    with monkeypatch.context() as patch:
        patch.setattr(service.loop, "cycle", failing)
        assert supervisor.cycle().sentence == "hold: the store is away"
        assert service.pace.stretched
        fault[0] = ZeroDivisionError("oops")
        assert supervisor.cycle().sentence == "hold: unexpected ZeroDivisionError: oops"
        assert supervisor.failures == 2
        shown = service.loop.status
        assert "ZeroDivisionError" in shown.sentence
        assert "oops" not in shown.sentence, "it may quote another user's data"
        assert shown.explained == {"svc": shown.sentence}
    assert supervisor.cycle().sentence != shown.sentence
    assert "ZeroDivisionError" not in service.loop.status.sentence
    assert supervisor.failures == 0


def test_a_journal_that_cannot_be_written_is_a_failed_cycle(service: DaemonService, monkeypatch) -> None:
    def full():
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(type(service.store.journal), "flush", lambda journal: full())
    assert Supervisor(service).cycle().sentence == "hold: the disk is full"


def test_supervisor_error_of_one_chain_is_no_failed_cycle(
    service: DaemonService, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submit, told = cluster.submit, []

    def failing(request):
        if request.tag.startswith("mirage:bad:"):
            raise OverflowError("int too large")
        return submit(request)

    def broken(status) -> None:
        raise ValueError("a watcher that fails")

    monkeypatch.setattr(cluster, "submit", failing)
    service.watchers = (broken, told.append)
    for name in ("bad", "good"):
        service.store.chains.save(ChainRecord(chain(name=name, done=DoneCondition(exit_code=None))))
    supervisor = Supervisor(service)
    for cycle in range(5):
        cluster.advance(cycle * 600)
        supervisor.cycle()
        assert supervisor.failures == 0
        assert not service.pace.stretched
        assert len(told) == cycle + 1
        assert service.store.journal.unsaved == 0
    named = [r.fields for r in caplog.records if getattr(r, "fields", {}).get("kind") == "chain-failed"]
    assert named == [{"kind": "chain-failed", "chain": "bad"}] * 1, "reported when it is new"
    counted = service.watching.meters.registry.get_sample_value
    assert counted("mirage_chain_failures_total") > 0
    assert counted("mirage_cycles_total", {"result": "ok"}) == 5


def test_a_clock_that_jumps_is_said_and_breaks_nothing(
    service: DaemonService, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    wall = {"now": 1e9}
    service.store.chains.save(ChainRecord(chain(done=DoneCondition(exit_code=None))))
    supervisor = Supervisor(service, JumpWatch(lambda: wall["now"], lambda: 0.0))
    cluster.time = 1_000_000_000
    for jump in (0, 90 * 86_400, -180 * 86_400, 90 * 86_400):
        wall["now"] += jump
        cluster.time += jump
        supervisor.cycle()
        (kept,) = service.store.chains.load()
        kept.check()
    assert supervisor.failures == 0
    assert [r.getMessage() for r in caplog.records if "event=clock_set" in r.getMessage()] == [
        "event=clock_set direction=forward seconds=7776000",
        "event=clock_set direction=back seconds=15552000",
        "event=clock_set direction=forward seconds=7776000",
    ]
    assert len(cluster.submissions) == len({request.tag for request in cluster.submissions})


def test_memory_and_files_stay_level_over_thousands_of_cycles(
    service: DaemonService, cluster: FakeCluster
) -> None:
    """Links of an hour, a poll each minute: the first thousand cycles fill what is to be filled."""
    service.store.chains.save(ChainRecord(chain(3_600, DoneCondition(exit_code=None))))
    supervisor, sizes = Supervisor(service), []
    for cycle in range(4_000):
        cluster.advance(cluster.time + 60)
        supervisor.cycle()
        if cycle % 1_000 == 999:
            service.prune()
            sizes.append((_resident_mb(), len(list(Path("/proc/self/fd").iterdir()))))
    (_, first_files), (early, _), *_, (late, files) = sizes
    assert supervisor.failures == 0
    assert files <= first_files
    assert late - early < 20, sizes


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
