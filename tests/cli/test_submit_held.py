"""``mirage submit --held-links``: links that are there, held, before their chain."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import serve
from cli.submit_world import folder, submit

from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

    from mirage.domain.job import Job

__all__ = ["folder"]


SBATCH = """\
#!/bin/sh
echo "sbatch: $MIRAGE_LINK after $MIRAGE_PREV_JOBID: $*" >>"$HOME/slurm.log"
echo "$MIRAGE_TASKS_STATE" >>"$HOME/states"
cat >/dev/null
[ "$MIRAGE_LINK" != "$REFUSED_LINK" ] || { echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }
echo "10$MIRAGE_LINK"
"""
SQUEUE = """\
#!/bin/sh
case $* in *format=%T*) echo PENDING; exit 0;; esac
cat "$HOME/queue" 2>/dev/null || true
"""
SCONTROL = """\
#!/bin/sh
case $1 in update) echo "scontrol: $*" >>"$HOME/slurm.log"; exit 0;; esac
echo "PartitionName=cpu Default=YES DefaultTime=NONE MaxTime=1-00:00:00"
echo "PartitionName=gpu Default=NO DefaultTime=01:00:00 MaxTime=2-00:00:00"
"""
SCANCEL = """\
#!/bin/sh
echo "scancel: $*" >>"$HOME/slurm.log"
case $* in *"$KEPT") echo "scancel: error: Kill job error on job id $KEPT: Socket timed out" >&2; exit 1;; esac
"""


@pytest.fixture
def world() -> Iterator[World]:
    """A daemon that releases links."""
    yield from serve(releases_links=True)


@pytest.fixture
def slurm(folder: Path) -> Path:
    """Slurm's commands in ``bin``; the result is the log of their calls."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL), ("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder / "slurm.log"


def submit_held(folder: Path, socket: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A chain with two held links."""
    settings = {"MIRAGE_SOCKET": str(socket), "KEPT": "none", "REFUSED_LINK": "none"} | variables
    return submit(folder, "--held-links=2", "--json", "train.sh", **settings)


def test_links_to_be_released_are_submitted_held_in_advance(folder: Path, slurm: Path, world: World) -> None:
    done = submit_held(folder, world.socket)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["held_jobs"] == [101, 102]
    first, second = slurm.read_text().splitlines()
    assert first.startswith("sbatch: 1 after :")
    assert second.startswith("sbatch: 2 after 101:")
    for index, line in ((1, first), (2, second)):
        assert "--hold" in line.split()
        assert f"--comment=mirage:{document['chain']['id']}:{index}" in line.split()


def test_every_link_is_told_where_its_tasks_state_is(folder: Path, slurm: Path, world: World) -> None:
    """Those too that are there before the daemon knows of their chain."""
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
    done = submit(folder, "--tasks-state=tasks", "--held-links=2", "train.sh", **settings)
    assert done.returncode == 0, done.stderr
    assert (folder / "states").read_text().splitlines() == [f"{folder}/tasks"] * 2
    request = world.loop.records[0].chain.link_request(3)
    assert request.batch is not None
    assert dict(request.batch.environment)["MIRAGE_TASKS_STATE"] == f"{folder}/tasks"


REFUSAL = b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{"detail": "no predictor xy"}'


def read_request(connected: socket.socket) -> None:
    """Head and body: a connection closed before all is read is reset."""
    with connected.makefile("rb") as stream:
        head = list(iter(stream.readline, b"\r\n"))
        stream.read(sum(int(line.split()[1]) for line in head if line.lower().startswith(b"content-length")))


@pytest.mark.parametrize(
    ("answer", "code", "words"), [(REFUSAL, 1, "no predictor xy"), (b"", 5, "without response")]
)
def test_held_links_are_there_before_their_chain_and_go_with_it(
    folder: Path, slurm: Path, answer: bytes, code: int, words: str
) -> None:
    seen: list[str] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/none.sock")
        listening.listen()

        def refuse() -> None:
            connected, _ = listening.accept()
            seen.extend(slurm.read_text().splitlines())
            read_request(connected)
            connected.sendall(answer)
            connected.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        done = submit_held(folder, folder / "none.sock")
        thread.join()
    assert [line.split()[0] for line in seen] == ["sbatch:", "sbatch:"]
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "cancelled 2 held links" in done.stderr
    assert slurm.read_text().splitlines()[2:] == ["scancel: --verbose 101", "scancel: --verbose 102"]


def test_without_a_daemon_no_held_link_is_left(folder: Path, slurm: Path) -> None:
    done = submit_held(folder, folder / "none.sock")
    assert (done.returncode, done.stdout) == (5, "")
    acts = [line.split()[0] for line in slurm.read_text().splitlines()]
    assert acts == ["sbatch:", "sbatch:", "scancel:", "scancel:"]


def test_a_held_link_that_is_refused_takes_the_others_with_it(folder: Path, slurm: Path, world: World) -> None:
    done = submit_held(folder, world.socket, REFUSED_LINK="2")
    assert done.returncode == 1
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    assert "cancelled 1 held links" in done.stderr
    assert slurm.read_text().splitlines()[-1] == "scancel: --verbose 101"
    assert world.loop.records == []


def test_held_links_that_stay_are_named(folder: Path, slurm: Path) -> None:
    done = submit_held(folder, folder / "none.sock", KEPT="101")
    assert done.returncode == 5
    assert "job 101 could not be cancelled" in done.stderr
    assert "scancel 101\n" in done.stderr
    assert slurm.read_text().splitlines()[-1] == "scancel: --verbose 102"


def add_links(folder: Path, world: World, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Two more held links for the chain of the world."""
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"} | variables
    chain = world.loop.records[0].chain.chain_id
    return submit(folder, "--held-links=2", f"--chain={chain}", *options, "train.sh", **settings)


def polled(world: World, *stock: Job) -> None:
    """Set the held links of the last snapshot."""
    status = world.loop.status
    world.loop.status = replace(status, snapshot=replace(status.snapshot, stock=stock))


def test_held_links_are_added_to_a_chain(folder: Path, slurm: Path, world: World) -> None:
    """Where one is missing first: links are released in order. Others' comments in the queue change nothing."""
    assert submit_held(folder, world.socket).returncode == 0
    polled(world)
    chain_id = world.loop.records[0].chain.chain_id
    others = f"7|mirage:{chain_id}x:3\n8|(null)\n9|mirage:{chain_id}:x\n"
    (folder / "queue").write_text(f"102|mirage:{chain_id}:2\n{others}")
    done = add_links(folder, world, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"id": chain_id, "held_jobs": [101, 103]}
    first, third = [line for line in slurm.read_text().splitlines()[2:] if line.startswith("sbatch")]
    assert first.startswith("sbatch: 1 after :")
    assert third.startswith("sbatch: 3 after 102:")
    for index, line in ((1, first), (3, third)):
        assert {"--hold", f"--comment=mirage:{chain_id}:{index}"} <= set(line.split())
    assert len(world.loop.records) == 1


def dependencies(lines: list[str]) -> list[str]:
    """The dependency of each submitted job."""
    words = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]
    return [of.get("--dependency", "") for of in words]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ([], "afternotok"),
        (["--signal=B:USR1@120"], "afterany"),
        (["--done-exit-code=none", "--links=10"], "afterany"),
        (["--done-file=model.done"], "afterany"),
    ],
)
def test_held_links_of_one_writer_wait_for_each_other(
    folder: Path, slurm: Path, world: World, options: list[str], kind: str
) -> None:
    """So that none runs next to another, or after the work is done, also where its owner releases it."""
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
    done = submit(folder, "--held-links=10", *options, "train.sh", **settings)
    assert done.returncode == 0, done.stderr
    submitted = dependencies(slurm.read_text().splitlines())
    assert submitted[:4] == [
        "",
        f"{kind}:101",
        f"{kind}:101,{kind}:102",
        f"{kind}:101,{kind}:102,{kind}:103",
    ]
    assert submitted[9] == ",".join(f"{kind}:10{index}" for index in range(2, 10)), "a bounded number"


def test_held_links_that_may_overlap_wait_for_none(folder: Path, slurm: Path, world: World) -> None:
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
    done = submit(folder, "--held-links=2", "--handover=overlap", "train.sh", **settings)
    assert done.returncode == 0, done.stderr
    polled(world)
    assert add_links(folder, world).returncode == 0
    assert dependencies(slurm.read_text().splitlines()) == [""] * 4


def test_links_added_to_one_writer_wait_for_its_others(folder: Path, slurm: Path, world: World) -> None:
    """Those behind a cancelled link that is replaced wait for the new one too."""
    assert submit_held(folder, world.socket).returncode == 0
    polled(world)
    chain_id = world.loop.records[0].chain.chain_id
    (folder / "queue").write_text(f"102|mirage:{chain_id}:2\n")
    assert add_links(folder, world, "--no-check").returncode == 0
    lines = slurm.read_text().splitlines()[2:]
    assert lines[1] == "scontrol: update JobId=102 Dependency=afternotok:101"
    assert dependencies([lines[0], lines[2]]) == ["", "afternotok:101,afternotok:102"]


def test_an_added_link_that_is_rejected_takes_the_others_with_it(folder: Path, slurm: Path, world: World) -> None:
    submit_held(folder, world.socket)
    polled(world)
    done = add_links(folder, world, REFUSED_LINK="2")
    assert done.returncode == 1
    assert slurm.read_text().splitlines()[-1] == "scancel: --verbose 101"


def test_held_links_of_another_make_are_not_added(folder: Path, slurm: Path, world: World) -> None:
    submit_held(folder, world.socket)
    polled(world)
    before = slurm.read_text()
    for options in (["--nodes=3"], ["--time=10"], ["--job-name=other"], ["--qos=high"]):
        done = add_links(folder, world, *options)
        assert (done.returncode, done.stdout) == (1, ""), options
    assert slurm.read_text() == before


@pytest.mark.parametrize("change", ["text", "arguments", "no arguments"])
def test_held_links_of_another_script_are_not_added(folder: Path, slurm: Path, world: World, change: str) -> None:
    """Its text and arguments come from the chain, whatever else the environment holds by now."""
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
    words = ["train.sh", "a b", "c"]
    assert submit(folder, "--held-links=2", *words, **settings).returncode == 0
    polled(world)
    before = slurm.read_text()
    chain = f"--chain={world.loop.records[0].chain.chain_id}"
    other = {"text": words, "arguments": ["train.sh", "a", "b c"], "no arguments": ["train.sh"]}[change]
    script, text = folder / "train.sh", (folder / "train.sh").read_text()
    script.write_text(f"{text}# more\n" if change == "text" else text)
    done = submit(folder, "--held-links=1", chain, *other, **settings)
    assert (done.returncode, done.stdout) == (1, "")
    assert slurm.read_text() == before
    script.write_text(text)
    assert submit(folder, "--held-links=1", chain, *words, **settings, NEW="1").returncode == 0


def test_chains_that_need_no_held_links_get_none(folder: Path, slurm: Path, world: World) -> None:
    submit_held(folder, world.socket)
    before = slurm.read_text()
    assert add_links(folder, world).returncode == 1, "no held link is known: it is not released"
    polled(world)
    world.loop.records = [replace(world.loop.records[0], status=ChainStatus.DONE)]
    world.loop.cycle()
    assert add_links(folder, world).returncode == 1
    assert slurm.read_text() == before


def test_an_addition_names_the_chain_and_the_number(folder: Path) -> None:
    assert submit(folder, "--chain=train", "train.sh").returncode == 2
    assert submit(folder, "--chain=", "--held-links=1", "train.sh").returncode == 2


@pytest.mark.parametrize(("releases", "options"), [(True, []), (False, ["--held-links=2"])])
def test_held_links_that_do_not_fit_the_daemon_are_refused(
    folder: Path, slurm: Path, releases: bool, options: list[str]
) -> None:
    for world in serve(releases_links=releases):
        settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
        done = submit(folder, *options, "--no-check", "train.sh", **settings)
        assert (done.returncode, done.stdout) == (1, "")
        assert "held_links" in done.stderr
        assert world.loop.records == []
    acts = slurm.read_text().split() if slurm.exists() else []
    assert acts.count("sbatch:") == acts.count("scancel:"), "nothing is left in the queue"
