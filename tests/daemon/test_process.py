"""The daemon as a process: signals, reload, one instance, deaths and notifications to systemd."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest
from daemons import DaemonFolder, Manager, wait_until

from mirage.daemon.state_directory import read_beat
from mirage.domain.link import LinkState

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> DaemonFolder:
    return DaemonFolder(tmp_path)


def test_a_chain_is_kept_running_and_the_daemon_ends_when_told(folder: DaemonFolder) -> None:
    folder.add_chain()
    with folder.start() as daemon:
        daemon.wait_for("submitted link 3")
        daemon.signal(signal.SIGTERM)
        assert daemon.ended() == 0
    assert daemon.said("the chains' jobs stay on the cluster")
    assert "Traceback" not in daemon.text
    record = folder.record()
    record.check()
    assert folder.submissions() == [link.tag for link in record.links]
    assert all(outcome.overlap == 0 for outcome in record.outcomes())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_end_it_also_while_it_waits(folder: DaemonFolder, number: signal.Signals) -> None:
    folder.configure('[loop]\npredictor = "reactive"\ninterval = "30d"\nlongest_interval = "30d"\n')
    with folder.start() as daemon:
        daemon.wait_for("predictor=reactive")
        daemon.signal(number)
        assert daemon.ended() == 0


def test_what_the_daemon_writes_is_nobody_elses_whatever_the_umask_and_the_folder(folder: DaemonFolder) -> None:
    state = folder.folder / "state"
    state.mkdir()
    state.chmod(0o777)
    former = os.umask(0)
    try:
        daemon = folder.start("--once")
    finally:
        os.umask(former)
    with daemon:
        assert daemon.ended() == 0
    open_to_others = [file.name for file in state.rglob("*") if file.stat().st_mode & 0o077]
    assert sorted(file.name for file in state.iterdir())
    assert open_to_others == []


def test_once_is_one_cycle(folder: DaemonFolder) -> None:
    folder.add_chain()
    with folder.start("--once") as daemon:
        assert daemon.ended() == 0
    assert folder.submissions() == ["mirage:svc:1"]
    assert read_beat(folder.folder / "state" / "heartbeat").cycles == 1


def test_once_fails_where_its_cycle_does(folder: DaemonFolder) -> None:
    folder.ask("bug")
    with folder.start("--once") as daemon:
        assert daemon.ended() == 1


def test_the_second_daemon_names_the_first(folder: DaemonFolder) -> None:
    with folder.start() as first:
        first.wait_for("predictor=reactive")
        with folder.start() as second:
            assert second.ended() == 1
        assert f"a daemon runs already, process {first.process.pid}" in second.text
        assert len(second.lines) == 1
        assert first.process.poll() is None


def test_the_lock_of_a_killed_daemon_is_free(folder: DaemonFolder) -> None:
    with folder.start() as first:
        first.wait_for("predictor=reactive")
        first.process.kill()
        first.ended()
    with folder.start("--once") as second:
        assert second.ended() == 0


@pytest.mark.parametrize("death", ["die-before-submit", "die-after-submit", "die-after-save"])
def test_killed_at_any_step_of_a_submission_there_is_one_successor(folder: DaemonFolder, death: str) -> None:
    folder.add_chain(links=3)
    for _ in range(3):
        folder.ask(death)
        with folder.start() as daemon:
            assert daemon.ended() == -signal.SIGKILL
    with folder.start() as daemon:
        wait_until(lambda: folder.record().over, "the end of the chain")
    record = folder.record()
    record.check()
    assert len(set(folder.submissions())) == len(folder.submissions()), "a link was submitted twice"
    assert [link.state for link in record.links] == [LinkState.ENDED] * 3
    assert all(link.tag in folder.submissions() for link in record.links)


def test_reload_takes_over_what_it_can_and_says_what_it_cannot(folder: DaemonFolder) -> None:
    with folder.start() as daemon:
        daemon.wait_for("predictor=reactive")
        folder.configure('[loop]\npredictor = "fixed:1h"\n[acting]\nmode = "agent"\n[log]\nformat = "json"\n')
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("event=restart_needed keys=acting.mode")
    assert daemon.said('"text": "event=configuration_reloaded changed=loop.predictor,log.format"')


@pytest.mark.parametrize(
    ("bad", "key"),
    [
        ('[loop]\npredictor = "fixed:soon"\n', "loop.predictor: predictor 'fixed:soon'"),
        ("[loop]\nintervall = 5\n", "loop.intervall: no such key; did you mean interval?"),
        ("[loop\n", "not TOML"),
        ("[limits]\nsubmissions_per_hour = -1\n", "limits.submissions_per_hour"),
    ],
)
def test_a_bad_file_changes_nothing_and_is_named(folder: DaemonFolder, bad: str, key: str) -> None:
    with folder.start() as daemon:
        daemon.wait_for("predictor=reactive")
        folder.configure(bad)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("event=reload_failed")
        folder.configure('[loop]\npredictor = "average"\n')
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("event=configuration_reloaded changed=loop.predictor")
    (complaint,) = [line for line in daemon.lines if "event=reload_failed" in line]
    assert key in complaint
    assert str(folder.config) in complaint


def test_a_bad_file_at_the_start_is_one_line(folder: DaemonFolder) -> None:
    folder.configure("[loop]\ninterval = true\n")
    with folder.start() as daemon:
        assert daemon.ended() == 1
    assert len(daemon.lines) == 1
    assert f"{folder.config}:8: loop.interval: expected a duration" in daemon.text


def test_systemd_hears_of_everything(folder: DaemonFolder, tmp_path: Path) -> None:
    folder.add_chain()
    with Manager(tmp_path / "notify") as manager:
        with folder.start(NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="400000") as daemon:
            wait_until(lambda: manager.count("STATUS="), "a status")
            wait_until(lambda: manager.count("WATCHDOG=1") > 3, "the watchdog's food")
            daemon.signal(signal.SIGHUP)
            wait_until(lambda: manager.count("READY=1") == 2, "ready again")
            daemon.signal(signal.SIGTERM)
            assert daemon.ended() == 0
        wait_until(lambda: manager.count("STOPPING=1"), "the end")
    heard = [message.partition("=")[0] for message in manager.heard]
    assert heard.index("READY") < heard.index("RELOADING") < heard.index("STOPPING")
    (told, *_) = [message for message in manager.heard if message.startswith("STATUS=")]
    assert told.startswith("STATUS=cycle 1; chains: 1 "), "all users see it, so nothing about one chain"
    (reloading,) = [message for message in manager.heard if message.startswith("RELOADING=1")]
    assert reloading.partition("MONOTONIC_USEC=")[2].isdigit()


def test_the_watchdog_is_fed_during_a_long_wait(folder: DaemonFolder, tmp_path: Path) -> None:
    folder.configure('[loop]\npredictor = "reactive"\ninterval = "30d"\nlongest_interval = "30d"\n')
    with (
        Manager(tmp_path / "notify") as manager,
        folder.start(NOTIFY_SOCKET=manager.path, WATCHDOG_USEC="200000"),
    ):
        wait_until(lambda: manager.count("WATCHDOG=1") > 5, "the watchdog's food")
    assert manager.count("STATUS=") == 1


def test_a_silent_controller_freezes_decisions(folder: DaemonFolder) -> None:
    folder.add_chain()
    folder.ask("down")
    with folder.start() as daemon:
        asked = folder.world / "asked-while-down"
        wait_until(lambda: asked.exists() and asked.stat().st_size >= 3, "three cycles")
        assert daemon.text.count("the cluster does not answer: no route to host") == 1
        assert folder.submissions() == []
        folder.take_back("down")
        daemon.wait_for("submitted link 1")


def test_the_unexpected_is_traced_once_and_survived(folder: DaemonFolder) -> None:
    folder.add_chain()
    folder.ask("bug")
    with folder.start() as daemon:
        daemon.wait_for("unexpected RuntimeError: nobody expects this", times=3)
        folder.take_back("bug")
        daemon.wait_for("event=cycle_recovered")
        daemon.wait_for("submitted link 1")
    assert daemon.text.count("Traceback") == 1


def test_a_store_that_fails_is_a_hold(folder: DaemonFolder) -> None:
    """Another process keeps the database locked for longer than the daemon waits."""
    folder.configure('[loop]\npredictor = "reactive"\n[store]\nsnapshot_every = 0\n')
    folder.add_chain()
    store = folder.store()
    with folder.start() as daemon:
        daemon.wait_for("submitted link 1")
        for time in (1, 2):
            holder = store.database._engine.raw_connection()
            holder.execute("BEGIN IMMEDIATE")
            daemon.wait_for("cycle-failed", times=2 * time)
            holder.execute("ROLLBACK")
            holder.close()
            daemon.wait_for("event=cycle_recovered", times=time)
        daemon.wait_for("submitted link 3")
    store.close()
    record = folder.record()
    record.check()
    assert len(set(folder.submissions())) == len(folder.submissions())
    assert all(a.end <= b.start for a, b in itertools.pairwise(record.links) if b.started)


def asked(folder: DaemonFolder, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("localhost")
    connection.sock = line = socket.socket(socket.AF_UNIX)
    address = str(folder.folder / "run" / "api.sock")
    try:
        # A socket is there a moment before it listens.
        wait_until(lambda: line.connect_ex(address) == 0, "the interface")
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_people_are_answered_and_obeyed(folder: DaemonFolder) -> None:
    folder.add_chain()
    with folder.start() as daemon:
        wait_until((folder.folder / "run" / "api.sock").exists, "the socket")
        status, health = asked(folder, "GET", "/healthz")
        assert (status, health["status"]) == (200, "ok")
        if os.geteuid() == 0:
            assert asked(folder, "POST", "/api/v1/chains/svc/pause")[0] == 200
            daemon.wait_for("paused")
        daemon.signal(signal.SIGTERM)
        assert daemon.ended() == 0
    assert not (folder.folder / "run" / "api.sock").exists()


def test_the_loop_goes_on_without_its_interface_which_comes_back(folder: DaemonFolder) -> None:
    folder.add_chain()
    with folder.start() as daemon:
        wait_until((folder.folder / "run" / "api.sock").exists, "the socket")
        folder.ask("end-api")
        daemon.wait_for("event=chore_done chore=interface text='the API server had ended and answers again'")
        assert asked(folder, "GET", "/healthz")[0] == 200
        known = len(folder.submissions())
        wait_until(lambda: len(folder.submissions()) > known, "another link")
    assert "Traceback" not in daemon.text


def test_questions_are_answered_while_the_loop_waits(folder: DaemonFolder) -> None:
    folder.add_chain()
    with folder.start() as daemon:
        wait_until((folder.folder / "run" / "api.sock").exists, "the socket")
        wait_until(lambda: bool(folder.submissions()), "a look at the cluster")
        status, found = asked(folder, "GET", "/api/v1/predictions?limit=1h&predictor=fixed:6h")
        assert status == 200, found
        told = {each["predictor"]: (each["wait_p50"], each["trouble"]) for each in found["predictions"]}
        assert told.keys() == {"reactive", "fixed:6h"}
        assert all(wait is None and "it submits" in rule for wait, rule in told.values()), "rules predict nothing"
        status, found = asked(folder, "GET", "/api/v1/configuration")
        source = {each["key"]: each["source"] for each in found["settings"]}["loop.predictor"]
        assert ".toml:" in source
    assert "Traceback" not in daemon.text


def test_a_command_is_not_left_hanging_when_the_daemon_ends(folder: DaemonFolder) -> None:
    """A command after the last cycle still gets an answer."""
    from mirage.control.commands import CommandQueue
    from mirage.daemon.process import _close
    from mirage.domain.chain import ChainId
    from mirage.domain.command import PauseChain
    from mirage.domain.errors import MirageError

    class Closed:
        commands = CommandQueue()

        def close(self) -> None:
            """Nothing is open."""

    answer = Closed.commands.put(PauseChain(ChainId("svc"), "alice"))
    _close(Closed())
    with pytest.raises(MirageError, match="the daemon is stopping"):
        answer.result(0)
