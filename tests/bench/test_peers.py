"""Other simulators next to ours: what they are given, what is read back, where AccaSim's EASY parts from ours."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.bench import peers
from mirage.bench.peers import Program, Workload, parse_program, run_program
from mirage.domain.errors import ConfigError, MirageError
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from pathlib import Path

THREE = Workload("three", np.array([(1, 10, 10, 6), (2, 5, 5, 8), (3, 9, 9, 2)]), 8)
"""The last may not go ahead of the second, which it would delay by a second: 1, 11, 16."""


def drawn(seed: int, count: int = 200, processors: int = 8) -> Workload:
    random = np.random.default_rng(seed)
    request = random.integers(1, 400, count)
    columns = (
        np.sort(random.integers(1, 20_000, count)),
        np.minimum(random.integers(1, 400, count), request),
        request,
        random.integers(1, processors + 1, count),
    )
    return Workload("drawn", np.column_stack(columns), processors)


def fake(text: str) -> Program:
    """A program that answers any workload with ``text``."""
    code = "import sys; open(sys.argv[2], 'w').write(sys.argv[3])"
    return parse_program(f"fake={sys.executable} -c {shlex.quote(code)} {{swf}} {{schedule}} {shlex.quote(text)}")


def test_the_log_has_what_the_workload_has(tmp_path: Path) -> None:
    workload = drawn(1)
    workload.write(tmp_path / "log.swf")
    found = read_trace(tmp_path / "log.swf")
    table = found.table
    assert found.header.number("MaxProcs") == 8
    assert table.job_id.tolist() == [str(k + 1) for k in range(200)]
    read = np.column_stack((table.submit, table.runtime, table.limit, table.cpus))
    assert read.tolist() == workload.jobs.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "job_id,start\n1,1\n3,16\n2,11\n",
        "job_id,submission_time,starting_time\n1,1,1.000000\n2,2,11.000000\n3,3,16.000000\n",  # Batsim's _jobs.csv
        "".join(
            f"{k} {k} {wait} 5 1 -1 -1 1 9 -1 1 1 1 -1 -1 -1 -1 -1\n" for k, wait in ((1, 0), (2, 9), (3, 13))
        ),
    ],
)
def test_schedules_are_read_back_in_the_order_of_jobs(text: str) -> None:
    assert run_program(fake(text), THREE).starts.tolist() == THREE.starts().tolist() == [1, 11, 16]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("job_id,start\n1,1\n", "no start for 2 of 3 jobs; the first is job 2"),
        ("job_id,start\n4,1\n", "has a job 4; the workload has 1 to 3"),
        ("job_id,start\n1,soon\n", "line 2: could not convert"),
        ("job_id,when\n1,1\n", "no column start, start_time or starting_time"),
    ],
)
def test_a_schedule_that_is_none_is_told(text: str, complaint: str) -> None:
    with pytest.raises(MirageError, match=complaint):
        run_program(fake(text), THREE)


def test_a_program_that_fails_is_told_in_its_own_words() -> None:
    failing = parse_program(
        f"old={sys.executable} -c 'raise SystemExit(\"no such platform\")' {{swf}} {{schedule}}"
    )
    with pytest.raises(MirageError, match=r"old failed \(1\): no such platform"):
        run_program(failing, THREE)
    silent = parse_program("lazy=true {swf} {schedule}")
    with pytest.raises(MirageError, match="lazy ended without writing its schedule"):
        run_program(silent, THREE)


@pytest.mark.parametrize("text", ["batsim", "=run {swf} {schedule}", "batsim=run {swf}", "batsim=run {schedule}"])
def test_a_command_without_its_words_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not NAME=COMMAND"):
        parse_program(text)


def test_without_accasim_the_others_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(peers, "RUNS", 1)
    monkeypatch.setattr(peers, "_workloads", lambda traces: (THREE,))
    monkeypatch.setattr(peers, "_OURS", fake("job_id,start\n1,1\n2,11\n3,16\n"))
    late = fake("job_id,start\n1,1\n2,11\n3,17\n")
    (section,) = peers.measure_peers(tmp_path, (late,), lambda step: None)
    rows = section.rows
    assert "mean wait 7.33 s" in rows[0][1]
    assert "mean wait 7.67 s" in rows[3][1]
    assert "66.7% start when ours do" in rows[3][1]
    assert rows[-1][1].startswith("not measured: AccaSim cannot be installed")


@pytest.fixture(scope="module")
def accasims() -> tuple[Program, Program]:
    """Mirage's EASY and the textbook's; tests install nothing."""
    if not (peers.environment_folder() / "installed").is_file():
        pytest.skip("AccaSim is not installed (`mirage bench peers` does it)")
    own, textbook = peers.accasim_programs()
    return own, textbook


def test_a_textbook_in_accasims_engine_starts_jobs_when_we_do(accasims: tuple[Program, Program]) -> None:
    workload = drawn(2)
    assert run_program(accasims[1], workload).starts.tolist() == workload.starts().tolist()


def test_accasims_own_lets_jobs_delay_the_one_it_has_reserved_for(accasims: tuple[Program, Program]) -> None:
    assert run_program(accasims[0], THREE).starts.tolist() == [1, 12, 3]


def test_accasims_own_keeps_to_a_reservation_that_has_become_too_late(accasims: tuple[Program, Program]) -> None:
    """The first was to end at 101 and ends at 5; the second, which it was in the way of, waits for 101."""
    early = Workload("early", np.array([(1, 4, 100, 8), (2, 5, 5, 8), (50, 1, 1, 1)]), 8)
    assert early.starts().tolist() == [1, 5, 50]
    assert run_program(accasims[0], early).starts.tolist() == [1, 101, 50]
