"""``mirage chains``, ``mirage chain`` and ``mirage agent`` as processes, on a real socket."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from api_world import START, definition, world

from mirage.backends.agent_requests import AgentResponse, CancelJob, Verdict
from mirage.cli.chains import _list
from mirage.cli.connection import exit_code
from mirage.client.errors import Refusal
from mirage.domain.chain import ChainStatus
from mirage.domain.job import JobId, JobState
from mirage.domain.link import Link, LinkState
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

ME = pwd.getpwuid(os.getuid()).pw_name
ID = owned_id("train-k3q9", ME)


MAIN = "import sys; from mirage.cli.main import main; sys.argv[0] = 'mirage'; main()"


def mirage(world: World, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "TZ": "UTC", "MIRAGE_SOCKET": str(world.socket)}
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment | variables,
    )


@pytest.fixture
def running(world: World) -> World:
    """One chain whose second link runs while its third one waits."""
    world.call("POST", "/api/v1/chains", definition())
    (record,) = world.loop.records
    tag = record.chain.tag
    first = Link(
        1, tag(1), START - 9_000, LinkState.ENDED, JobId(101), START - 9_000, START - 8_000, START - 4_400,
        job_state=JobState.TIMEOUT, reason="the first link",
    )  # fmt: skip
    second = Link(
        2, tag(2), START - 7_000, LinkState.RUNNING, JobId(102), START - 7_000, START - 4_340, START + 3_600,
        job_state=JobState.RUNNING,
    )  # fmt: skip
    third = Link(3, tag(3), START - 60, LinkState.PENDING, JobId(103), START - 60, reason="it would start in time")
    world.loop.records = [replace(record, links=(first, second, third))]
    world.loop.cycle()
    return world


def test_the_list_is_as_squeues(running: World) -> None:
    heading, row = mirage(running, "chains").stdout.splitlines()
    shown = dict(zip(heading.split(), row.split(None, 10), strict=True))
    assert shown == {
        "CHAIN": ID,
        "USER": ME,
        "STATE": "UP",
        "LINKS": "3",
        "JOBID": "102",
        "TIME_LEFT": "01:00:00",
        "NEXT": "103",
        "GAPS": "00:01:00",
        "SAVED": "-",
        "OVERLAP": "00:00:00",
        "REASON": "hold: it is early",
    }
    document = json.loads(mirage(running, "chains", "--json").stdout)
    assert document["chains"][0]["links"][1]["job_id"] == 102


class Plain:
    """The client of a user who is no administrator; every answer of the daemon is noted."""

    def __init__(self, world: World) -> None:
        self._world, self.answers = world, []

    def get(self, path: str, **query: object) -> Any:
        target = f"/api/v1{path}?{urlencode({name: str(value).lower() for name, value in query.items()})}"
        status, document = self._world.call("GET", target, user="nobody")
        self.answers.append((path, status))
        return document

    def pages(self, path: str, **query: object) -> Iterator[Any]:
        yield self.get(path, **query)


@pytest.mark.parametrize("every", [False, True])
def test_list_of_a_plain_user_asks_for_nothing_denied(running: World, every: bool) -> None:
    """A denied request is a line in the daemon's log, for each time that a user types the command."""
    client = Plain(running)
    assert _list(client, every=every)["chains"] == []
    assert {status for _, status in client.answers} == {200}


def test_a_chain_that_is_over_is_listed_on_demand(running: World) -> None:
    (record,) = running.loop.records
    running.loop.records = [replace(record, status=ChainStatus.DONE, links=record.links[:1])]
    running.loop.cycle()
    assert "train-k3q9" not in mirage(running, "chains").stdout
    assert "train-k3q9" in mirage(running, "chains", "--all").stdout


def test_a_chain_of_which_no_link_runs_is_down_and_its_gap_counts(running: World) -> None:
    (record,) = running.loop.records
    first, second, third = record.links
    second = replace(second, state=LinkState.ENDED, end=START - 600, job_state=JobState.TIMEOUT)
    running.loop.records = [replace(record, links=(first, second, third))]
    running.loop.cycle()
    (row,) = mirage(running, "chains", "-h", "-o", "state,gaps,jobid,next").stdout.splitlines()
    assert row.split() == ["DOWN", "00:11:00", "-", "103"]
    assert "DOWN since 2023-11-14T22:03:20" in mirage(running, "chain", "show", "train-k3q9").stdout
    assert running.call("GET", "/api/v1/cluster")[1]["states"] == {"down": 1}
    assert ID in mirage(running, "chains", "-h", "-t", "dn").stdout
    assert ID not in mirage(running, "chains", "-h", "-t", "up,paused").stdout


def test_one_chain_is_shown_with_its_links(running: World) -> None:
    text = mirage(running, "chain", "show", "train-k3q9").stdout
    assert "1; interruption 00:01:00, overlap 00:00:00" in text
    first, second, third = text.splitlines()[-3:]
    assert first.split()[:3] == ["1", "101", "TIMEOUT"]
    assert first.endswith("the first link")
    assert "2023-11-14T21:01:00" in second
    assert third.split()[1:3] == ["103", "PENDING"]
    assert json.loads(mirage(running, "chain", "show", "train-k3q9", "--json").stdout)["id"] == ID


def test_commands_say_what_was_done(running: World) -> None:
    assert mirage(running, "chain", "pause", "train-k3q9").stdout == f"chain {ID} paused by {ME}\n"
    assert running.loop.records[0].status is ChainStatus.PAUSED
    assert (
        json.loads(mirage(running, "chain", "resume", "train-k3q9", "--json").stdout)["chain"]["status"]
        == "active"
    )
    assert mirage(running, "chain", "cancel", "train-k3q9").returncode == 0
    assert running.loop.records[0].status is ChainStatus.STOPPED


def test_explain_tells_the_story(running: World) -> None:
    mirage(running, "chain", "pause", "train-k3q9")
    lines = mirage(running, "chain", "explain", "train-k3q9").stdout.splitlines()
    assert lines[0].endswith(f"chain {ID} added by {ME}")
    assert lines[1].endswith(f"chain {ID} paused by {ME}")
    assert lines[2] == "now: hold: it is early"


def test_cancel_takes_several_chains_and_asks_nothing_on_a_pipe(running: World) -> None:
    (record,) = running.loop.records
    other = replace(record.chain, chain_id=type(record.chain.chain_id)(owned_id("other", ME)))
    running.loop.records = [record, replace(record, chain=other, links=())]
    running.loop.cycle()
    done = mirage(running, "chain", "cancel", "none", ID, other.chain_id)
    assert (done.returncode, done.stdout.count("\n"), done.stderr.count("\n")) == (3, 2, 3)
    assert "mirage chain wait" in done.stderr, "its job still runs"
    assert "mirage agent" in done.stderr, "no process can cancel the job of the first chain"
    assert {each.status for each in running.loop.records} == {ChainStatus.STOPPED}


def test_cancel_of_several_is_one_document(running: World) -> None:
    done = mirage(running, "chain", "cancel", "--yes", "--json", ID, "none")
    assert done.returncode == 3
    assert [each["id"] for each in json.loads(done.stdout)["chains"]] == [ID]


@pytest.mark.parametrize(("typed", "status"), [(b"n\n", ChainStatus.ACTIVE), (b"y\n", ChainStatus.STOPPED)])
def test_cancel_asks_on_a_terminal(running: World, typed: bytes, status: ChainStatus) -> None:
    on_a_terminal(running, 80, "chain", "cancel", ID, typed=typed)
    assert [each.status for each in running.loop.records] == [status]


@pytest.mark.parametrize("command", ["show", "pause", "resume", "cancel", "explain"])
def test_exit_codes(world: World, command: str) -> None:
    done = mirage(world, "chain", command, "nix/../x y")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    gone = mirage(world, "chain", command, "nix", MIRAGE_SOCKET="/nowhere.sock")
    assert (gone.returncode, "mirage daemon &" in gone.stderr) == (5, True)
    assert mirage(world, "chain", command).returncode == 2


@pytest.mark.parametrize(("status", "code"), [(403, 4), (404, 3), (409, 4), (422, 1), (429, 1), (503, 1)])
def test_exit_code_follows_the_kind_of_refusal(status: int, code: int) -> None:
    """A value that only this daemon rejects is no usage error."""
    assert exit_code(Refusal(status, "")) == code


def test_another_users_chain_is_none(world: World) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    world.call("POST", "/api/v1/chains", definition("of-one"), user="nobody")
    code = f"""
import contextlib, os, sys
from mirage.cli.main import main
with contextlib.suppress(SystemExit):  # loads what the other user may not read
    sys.argv = ["mirage", "chains", "--socket", "{world.socket}"]
    main()
os.setgid(1), os.setuid(1)
sys.argv = ["mirage", "chain", "cancel", "of-one", "--socket", "{world.socket}"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "there is no chain of-one" in done.stderr


SCANCEL = """\
#!/bin/sh
echo "scancel $*" >>"$0.log"
"""
SQUEUE = """\
#!/bin/sh
printf '7 %s 100 RUNNING mirage:train-k3q9:1\036\n' "$(id -un)"
"""


def test_an_agent_does_what_it_is_told_for_its_own_user(world: World, tmp_path: Path) -> None:
    for name, text in (("scancel", SCANCEL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    assert mirage(world, "agent", "--once", PATH=path).returncode == 0
    answers: list[AgentResponse] = []
    thread = threading.Thread(target=lambda: answers.append(world.desk.ask(ME, CancelJob(JobId(7)))))
    thread.start()
    agent = subprocess.Popen(
        [sys.executable, "-m", "mirage", "agent"],
        env={"PATH": path, "HOME": "/", "MIRAGE_SOCKET": str(world.socket), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    thread.join()
    agent.terminate()
    said, _ = agent.communicate()
    assert answers[0].verdict is Verdict.DONE, answers
    assert f"cancel job 7 for {ME}: done" in said
    assert "7" in (tmp_path / "scancel.log").read_text()


def test_an_agent_without_a_daemon_says_so(world: World) -> None:
    done = mirage(world, "agent", MIRAGE_SOCKET="/nowhere.sock")
    assert done.returncode == 5
    assert "no daemon answers" in done.stderr


def test_columns_are_chosen_by_squeues_letters(running: World) -> None:
    shown = mirage(running, "chains", "-o", "%.14i|%5u|%T %D nodes").stdout.splitlines()
    assert shown == ["         CHAIN|USER |STATE NODES nodes", f"{ID[:14]}|{ME[:5]:5}|UP 1 nodes"]


def test_columns_are_chosen_by_name(running: World) -> None:
    shown = mirage(running, "chains", "-h", "-o", "chain,time_left,steering").stdout.split()
    assert shown == [ID, "01:00:00", "nice"]


def test_a_column_that_is_none_is_a_mistake_of_usage(running: World) -> None:
    for layout in ("%X", "colour", "a b"):
        done = mirage(running, "chains", "-o", layout)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        assert "column" in done.stderr


def test_chains_are_sorted_and_filtered(world: World) -> None:
    for name, nodes in (("alpha", 2), ("beta", 8), ("gamma", 4)):
        request = definition()["request"] | {"nodes": nodes, "partition": "gpu" if nodes > 2 else "cpu"}
        world.call("POST", "/api/v1/chains", definition(name, name=name, request=request))

    def names(*arguments: str) -> list[str]:
        done = mirage(world, "chains", "-h", "-o", "%j", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert names("--sort", "-D") == ["beta", "gamma", "alpha"]
    assert names("-S", "P,-j") == ["alpha", "gamma", "beta"]
    assert names("-p", "gpu") == ["beta", "gamma"]
    assert names("-p", "gpu,cpu", "--me") == ["alpha", "beta", "gamma"]
    assert names("-u", "somebody-else") == []
    mirage(world, "chain", "pause", "beta")
    assert names("-t", "paused") == ["beta"]
    assert sorted(names("-t", "all")) == ["alpha", "beta", "gamma"]
    assert mirage(world, "chains", "-t", "asleep").returncode == 2


def test_what_is_piped_has_no_colours_and_is_never_cut(running: World) -> None:
    narrow = mirage(running, "chains", COLUMNS="20", FORCE_COLOR="1").stdout
    assert narrow == mirage(running, "chains").stdout
    assert "\x1b" not in narrow
    assert "hold: it is early" in narrow


def test_shells_complete_chains_from_the_daemon_and_are_silent_without_one(running: World) -> None:
    words = {"_MIRAGE_COMPLETE": "complete_bash", "COMP_WORDS": "mirage explain tra", "COMP_CWORD": "2"}
    assert mirage(running, **words).stdout.split() == [ID]
    silent = mirage(running, **words, MIRAGE_SOCKET="/nowhere")
    assert (silent.stdout.strip(), silent.stderr) == ("", "")


def test_the_versions(world: World) -> None:
    from mirage import __version__

    found = json.loads(mirage(world, "version", "--json").stdout)
    assert (found["mirage"], found["daemon"]) == (__version__, __version__)
    assert "does not reply" in mirage(world, "version", MIRAGE_SOCKET="/nowhere").stdout


def on_a_terminal(world: World, width: int, *arguments: str, typed: bytes = b"", **variables: str) -> str:
    """The text on a terminal of this width."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "TERM": "xterm", "MIRAGE_SOCKET": str(world.socket)}
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment | variables,
    )
    os.close(theirs)
    os.write(ours, typed)
    seen = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(4_096):
                seen += part
        except OSError:  # the other end is closed
            pass
    assert process.wait() == (1 if typed.startswith(b"n") else 0)
    return seen.decode()


def test_a_terminal_shows_states_in_colour_and_lines_end_at_its_edge(running: World) -> None:
    arguments = ("chains", "-o", "state,chain,reason")
    heading, row = on_a_terminal(running, 39, *arguments).splitlines()
    assert row == f"\x1b[32mUP   \x1b[0m  {ID}  hold: it is"
    assert heading == "STATE  CHAIN                REASON"
    plain = on_a_terminal(running, 39, *arguments, NO_COLOR="1").splitlines()
    assert plain == [heading, f"UP     {ID}  hold: it is"]


@pytest.mark.parametrize(
    "command", [["chains"], ["queue"], ["predict"], ["explain", "x"], ["chain", "show", "x"], ["tokens", "list"]]
)
def test_without_a_daemon_the_exit_code_is_five_and_one_line_says_what_to_do(
    tmp_path: Path, command: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MIRAGE_SOCKET": str(tmp_path / "none")},
    )
    assert done.returncode == 5
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "mirage daemon" in done.stderr


def test_a_slip_of_the_keyboard_is_answered_with_what_may_be_meant(world: World) -> None:
    done = mirage(world, "chians")
    assert done.returncode == 2
    assert "Did you mean" in done.stderr
    assert "chains" in done.stderr
