"""``mirage chain logs`` and ``mirage chain wait`` as processes, on a real socket."""

from __future__ import annotations

import getpass
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import START, definition, world

from mirage.cli.chainlogs import output_of
from mirage.domain.chain import ChainStatus
from mirage.domain.errors import MirageError
from mirage.domain.job import BatchScript, JobId, JobState
from mirage.domain.link import Link, LinkState
from mirage.domain.tags import ChainId

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

MAIN = "import sys; from mirage.cli.main import main; sys.argv[0] = 'mirage'; main()"


@pytest.fixture
def chained(world: World, tmp_path: Path) -> World:
    """A chain that writes to ``tmp_path``: link 1 has ended, link 2 runs, link 3 waits."""
    world.call("POST", "/api/v1/chains", definition())
    (record,) = world.loop.records
    batch = BatchScript("#!/bin/sh\n", ("--output=out-%5j.txt",), directory=str(tmp_path))
    chain = replace(record.chain, request=replace(record.chain.request, batch=batch))
    ended = Link(
        1, chain.tag(1), START - 9_000, LinkState.ENDED, JobId(101), START - 9_000, START - 8_000, START - 4_400,
        job_state=JobState.TIMEOUT,
    )  # fmt: skip
    runs = Link(
        2, chain.tag(2), START - 7_000, LinkState.RUNNING, JobId(102), START - 7_000, START - 4_340, START + 3_600,
        job_state=JobState.RUNNING,
    )  # fmt: skip
    waits = Link(3, chain.tag(3), START - 60, LinkState.PENDING, JobId(103), START - 60)
    (tmp_path / "out-00101.txt").write_text("one\n")
    (tmp_path / "out-00102.txt").write_text("two\n")
    world.loop.records = [replace(record, chain=chain, links=(ended, runs, waits))]
    world.loop.cycle()
    return world


def begin(world: World, *arguments: str) -> subprocess.Popen[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "TZ": "UTC", "MIRAGE_SOCKET": str(world.socket)}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def mirage(world: World, *arguments: str) -> tuple[int, str, str]:
    process = begin(world, *arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def over(world: World, status: ChainStatus) -> None:
    """The third link runs and ends, and the chain is over."""
    (record,) = world.loop.records
    links = [
        replace(
            link, state=LinkState.ENDED, start=START - 50 + link.index, end=START, job_state=JobState.COMPLETED
        )
        for link in record.links
    ]
    world.loop.records = [replace(record, status=status, links=tuple(links))]
    world.loop.cycle()


@pytest.mark.parametrize(("words", "text"), [((), "two\n"), (("1",), "one\n"), (("2",), "two\n")])
def test_logs_print_the_output_of_a_link(chained: World, words: tuple[str, ...], text: str) -> None:
    code, out, _ = mirage(chained, "chain", "logs", "train-k3q9", *words)
    assert (code, out) == (0, text)


def test_logs_of_a_link_without_output_are_not_found(chained: World, tmp_path: Path) -> None:
    for words in (("3",), ("4",)):
        code, out, err = mirage(chained, "chain", "logs", "train-k3q9", *words)
        assert (code, out, err.count("\n")) == (3, "", 1)
    (tmp_path / "out-00102.txt").unlink()
    code, out, err = mirage(chained, "chain", "logs", "train-k3q9")
    assert (code, out) == (3, "")
    assert str(tmp_path / "out-00102.txt") in err
    assert mirage(chained, "chain", "logs", "train-k3q9", "0")[0] == 2


def test_logs_of_a_chain_that_is_done_are_of_the_link_that_ran_last(chained: World) -> None:
    """Its successor was cancelled while it waited."""
    (record,) = chained.loop.records
    first, second, third = record.links
    second = replace(second, state=LinkState.ENDED, job_state=JobState.COMPLETED, end=START - 60)
    third = replace(third, state=LinkState.ENDED, job_state=JobState.CANCELLED, end=START - 50)
    chained.loop.records = [replace(record, links=(first, second, third), status=ChainStatus.DONE, ended_by=2)]
    chained.loop.cycle()
    process = begin(chained, "chain", "logs", "train-k3q9")
    assert process.communicate(timeout=60)[0] == "two\n"


def test_followed_logs_go_over_to_the_next_link_and_end_with_the_chain(chained: World, tmp_path: Path) -> None:
    process = begin(chained, "chain", "logs", "train-k3q9", "-f")
    assert process.stdout
    assert process.stdout.readline() == "two\n"
    with (tmp_path / "out-00102.txt").open("a") as file:
        file.write("more\n")
    assert process.stdout.readline() == "more\n"
    (tmp_path / "out-00103.txt").write_text("three\n")
    over(chained, ChainStatus.DONE)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "three\n")
    assert [line.split(",")[0] for line in err.splitlines()] == ["==> link 2", "==> link 3"]


@pytest.mark.parametrize(
    ("options", "file"),
    [
        ([], "/home/slurm-7.out"),
        (["--error=e", "--output=a", "--output=%x/%u-%4A%%"], "/home/job/ann-0007%"),
        (["--output=/abs/%j"], "/abs/7"),
        ([r"--output=\%j"], "/home/%j"),
    ],
)
def test_output_is_where_sbatch_puts_it(options: list[str], file: str) -> None:
    request = {"options": options, "directory": "/home", "job_name": "job"}
    assert str(output_of({"request": request, "owner": "ann"}, 7)) == file


def test_output_that_only_the_node_knows_is_asked_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'JobId=7'\necho '   StdOut=/scratch/n1 a/7.out'\n")
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    request = {"options": ["--output=%N/%j.out"], "directory": "/home", "job_name": "job"}
    assert str(output_of({"request": request, "owner": "ann"}, 7)) == "/scratch/n1 a/7.out"
    scontrol.write_text(f"#!/bin/sh\necho '   StdOut={tmp_path}/[x]-%N-7.out'\n")  # as 22.05 does
    assert output_of({"request": request, "owner": "ann"}, 7) == tmp_path / "[x]-%N-7.out", "it is not there yet"
    for name in ("[x]-n1-7.out", "[x]-n1-8.out", "x-n1-7.out"):
        (tmp_path / name).touch()
    assert output_of({"request": request, "owner": "ann"}, 7) == tmp_path / "[x]-n1-7.out"


def test_output_is_found_when_slurm_has_forgotten_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no scontrol
    request = {"options": [f"--output={tmp_path}/[o]_%x_%8j_%N_%3t%%-%b"], "directory": "/home", "job_name": "job"}
    wanted = tmp_path / "[o]_job_00000007_n1_000%-7"
    for name in (wanted.name, "[o]_job_00000008_n1_000%-8", "o_job_00000007_n1_000%-7"):
        (tmp_path / name).touch()
    assert output_of({"request": request, "owner": "ann"}, 7) == wanted
    with pytest.raises(MirageError):
        output_of({"request": request, "owner": "ann"}, 9)


@pytest.mark.parametrize(("status", "code"), [(ChainStatus.DONE, 0), (ChainStatus.STOPPED, 6)])
def test_wait_ends_with_the_chain(chained: World, status: ChainStatus, code: int) -> None:
    threading.Timer(1.5, over, (chained, status)).start()
    begun = time.monotonic()
    assert mirage(chained, "chain", "wait", "train-k3q9", "--timeout", "1m")[:2] == (code, "")
    assert time.monotonic() - begun > 1


def test_wait_for_what_is_already_so_and_what_is_not(chained: World) -> None:
    assert mirage(chained, "chain", "wait", "train-k3q9", "--until", "running")[0] == 0
    assert mirage(chained, "chain", "wait", "train-k3q9", "--timeout", "1s")[0] == 7
    assert mirage(chained, "chain", "wait", "none")[0] == 3
    over(chained, ChainStatus.DONE)
    assert mirage(chained, "chain", "wait", "train-k3q9", "--until", "running")[0] == 6


@pytest.mark.parametrize("words", [("--until", "up"), ("--timeout", "5"), ("--timeout", "0s"), ()])
def test_wait_for_nothing_that_there_is(chained: World, words: tuple[str, ...]) -> None:
    assert mirage(chained, "chain", "wait", *(("train-k3q9", *words) if words else ()))[0] == 2


def test_log_is_the_journal(chained: World) -> None:
    code, out, _ = mirage(chained, "chain", "log", "train-k3q9")
    assert (code, out) == (0, mirage(chained, "chain", "explain", "train-k3q9")[1])
    assert out


def test_list_is_repeated(chained: World) -> None:
    for command in ("chains", "queue"):
        process = begin(chained, command, "-i", "1", "-h")
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(8)]
        process.kill()
        process.communicate()
        assert sum(line == "\n" for line in lines) >= 2, lines
    assert mirage(chained, "chains", "-i", "1", "--json")[:2] == (2, "")
    assert mirage(chained, "chains", "-i", "0")[:2] == (2, "")


def test_status_is_one_screen(chained: World) -> None:
    code, out, _ = mirage(chained, "status")
    assert (code, "train-k3q9" in out, "1 up" in out) == (0, True, True)
    assert len(out.splitlines()) < 24
    (record,) = chained.loop.records
    paused = replace(record.chain, chain_id=type(record.chain.chain_id)("other.x"))
    chained.loop.records = [record, replace(record, chain=paused, status=ChainStatus.PAUSED, links=())]
    chained.loop.cycle()
    lines = mirage(chained, "status")[1].splitlines()
    order = [line.split()[0] for line in lines if line.startswith(("other.x", "train-k3q9"))]
    assert order[0] == "other.x", "the one with trouble comes first"
    assert any("mirage chain resume other.x" in line for line in lines)


def test_cancelled_chain_whose_job_runs_on_is_shown_with_what_lacks(chained: World) -> None:
    """Without an agent nothing of the user's is cancelled: the job takes nodes until its limit."""
    (record,) = chained.loop.records
    healthy = [
        replace(record, chain=replace(record.chain, chain_id=ChainId(f"healthy-{k}"), name=f"healthy-{k}"))
        for k in range(12)
    ]
    chained.loop.records = [*healthy, replace(record, status=ChainStatus.STOPPED, cancel_running=True)]
    chained.loop.cycle()
    out = mirage(chained, "status")[1]
    assert any(line.startswith("train-k3q9") and "CANCELLED" in line for line in out.splitlines()), out
    assert "-> start your agent: mirage agent" in out.splitlines()
    assert any(line.startswith("train-k3q9") for line in mirage(chained, "chains")[1].splitlines())
    chained.desk.attach(getpass.getuser())
    assert "mirage agent" not in mirage(chained, "status")[1]
