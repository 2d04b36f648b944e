"""Task files: their content, and all errors in one report, with their lines."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.engine.allocation_table import check_demands, task_table
from mirage.allocation.engine.discovery import Allocation, Device, NodeFound
from mirage.allocation.engine.plan import Checkpoint, Ranks, TaskSpec, WorkPlan, find_cycles
from mirage.allocation.engine.taskfile import read_plan
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[defaults]
cpus = 8
environment = { SEED = "1", SHARED = "yes" }
command = ["true"]

[[task]]
id = "train"
command = ["python", "train.py"]
devices = 6
max_nodes = 2
kinds = ["a100"]
ranks = "device"
memory = "64G"
expected = "2h"
time_limit = 7200
deadline = "48h"
model = "resnet"
tenant = "vision"
retries = 2
checkpoint = { signal = "SIGUSR2", grace = "5m", restart = 30 }
environment = { SEED = "2" }
directory = "work"
output = "train.log"

[[task]]
id = "check"
after = ["train"]
devices = 0
script = '''
id = "not a key"
'''
deadline = 2026-11-25T12:00:00Z
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "tasks.toml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_plan(write(folder, text))
    return caught.value.problem.splitlines()


def test_a_file_says_what_it_says(tmp_path: Path) -> None:
    train, check = read_plan(write(tmp_path, WHOLE)).tasks
    assert train == TaskSpec(
        "train", ("python", "train.py"), 6, 1.0, ("a100",), 2, Ranks.DEVICE, 8, 64 * 1024, 7200.0, 7200.0,
        48 * 3600.0, True, "resnet", "vision", (), 2, Checkpoint("USR2", 300.0, 30.0),
        {"SEED": "2", "SHARED": "yes"}, f"{tmp_path}/work", f"{tmp_path}/train.log",
    )  # fmt: skip
    assert check.command == ("/bin/sh", "-c", 'id = "not a key"\n')
    assert check.deadline == 1795608000.0
    assert not check.deadline_relative
    assert check.after == ("train",)


def test_every_mistake_is_named_at_once_with_its_line(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        '[defaults]\ncpus = -1\n[[task]]\nid = "a"\ncommand = ["x"]\nmemory = "lots"\ncolour = "red"\n'
        '[[task]]\nid = "a"\ncommand = []\nexpected = "3 parsecs"\nafter = ["nobody"]\n'
        '[[task]]\nid = "../etc"\nscript = "x"\ndevices = "two"\n[[task]]\nid = "c"\n'
        '[[task]]\nid = "d"\nscript = "x"\ndevices = 2\nshare = 0.5\ncheckpoint = { signal = "KILL" }\n[other]\n',
    )
    text = "\n".join(found)
    for expected in (
        "unknown table [other]",
        "line 2: task 'a', cpus: Input should be greater than or equal to 0",
        "line 6: task 'a', memory: 'lots': expected memory",
        "line 7: task 'a', colour: unknown key",
        "line 9: task 'a', id: an earlier task has this id",
        "line 10: task 'a', command",
        "line 11: task 'a', expected: '3 parsecs'",
        "line 14: task '../etc', id",
        "line 16: task '../etc', devices",
        "checkpoint: 'KILL' is no signal that a task can receive",
    ):
        assert expected in text, f"{expected}\nnot in\n{text}"


def test_mistakes_between_tasks_are_named(tmp_path: Path) -> None:
    head = 'command = ["x"]\n'
    found = mistakes(
        tmp_path,
        f'[[task]]\nid = "a"\nafter = ["c"]\n{head}[[task]]\nid = "b"\nafter = ["a"]\n{head}'
        f'[[task]]\nid = "c"\nafter = ["b", "x"]\n{head}',
    )
    assert "  line 11: task 'c', after: there is no task 'x'" in found
    assert any(line.endswith("tasks wait for each other: a -> c -> b -> a") for line in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[task]\n", "is not TOML"),
        ("", "has no [[task]]"),
        ("[task]\nid = 'a'\n", "each task begins with [[task]]"),
        ("defaults = 3\n[[task]]\nid='a'\nscript='x'\n", "[defaults] is a table"),
        ("[[task]]\nid = 'a'\ncommand = ['x']\nscript = 'x'\n", "give either command"),
        ("[[task]]\nid = 'a'\ncommand = ['x']\nshare = nan\n", "share"),
        ("[[task]]\nid = 'a'\ncommand = ['x']\nexpected = inf\n", "expected"),
        ("[[task]]\nid = 'a'\ncommand = ['x']\nenvironment = { 'A=B' = 'x' }\n", "no valid name of a variable"),
        ("[[task]]\nid = 'a'\ncommand = ['x\\u0000']\n".replace("'x\\u0000'", '"x\\u0000"'), "NUL"),
        ("[[task]]\nid = 'a'\ncommand = ['x']\nafter = ['a']\n", "waits for itself"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in "\n".join(mistakes(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.toml")


@given(st.binary(max_size=300))
def test_whatever_the_bytes_they_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("any") / "tasks.toml"
    path.write_bytes(b"[[task]]\nid = 'a'\n" + data)
    try:
        found = read_plan(path).tasks
    except ConfigError as error:
        found = ()
        said = str(error)
    assert found or str(path) in said


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=3).map(tuple)))
def test_a_ring_is_found_where_there_is_one(after: dict[str, tuple[str, ...]]) -> None:
    """The reference: a task that can be reached from itself, by Warshall's algorithm."""
    reach = {(a, b) for a, names in after.items() for b in names if b in after}
    for middle in after:
        reach |= {(a, c) for a, b in reach if b == middle for bb, c in reach if bb == middle}
    rings = find_cycles(after)
    assert bool(rings) == any((name, name) in reach for name in after)
    for ring in rings:
        assert all(later in after[name] for name, later in zip(ring, (*ring[1:], ring[0]), strict=True))


ALLOCATION = Allocation(
    (
        NodeFound("n1", 16, 1000, (Device(0, "gpu:a100"), Device(1, "gpu:a100"))),
        NodeFound("n2", 16, 1000, (Device(0, "gpu:v100"), Device(2, "gpu:v100"), Device(3, "gpu:v100"))),
    )
)


def said_of(tmp_path: Path, length: float = float("inf"), **more: object) -> str:
    plan = WorkPlan(tmp_path / "t.toml", (TaskSpec("x", ("true",), **more),))  # type: ignore[arg-type]
    try:
        check_demands(plan, ALLOCATION.pool(), length)
    except ConfigError as error:
        return error.problem
    return ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"devices": 3}, ""),
        ({"devices": 4}, "4 on one node; at most 3 suitable"),
        ({"devices": 5, "max_nodes": 2}, ""),
        ({"devices": 6, "max_nodes": 9}, "at most 5 suitable"),
        ({"devices": 3, "kinds": ("a100",)}, "at most 2"),
        ({"kinds": ("h100", "gpu:a100")}, ""),
        ({"kinds": ("h100",)}, "h100 not found here (available: gpu:a100, gpu:v100"),
        ({"devices": 2, "cpus": 17}, "no room for 17 CPUs"),
        ({"devices": 2, "cpus": 32, "max_nodes": 2, "memory_mb": 2000}, ""),
        ({"devices": 0, "memory_mb": 1001}, "no node has 1 CPUs and 1001 MB"),
        ({"expected": 100.0}, ""),
        ({"directory": "/no/such"}, "/no/such is no directory"),
    ],
)
def test_impossible_demands_are_named_before_anything_starts(
    tmp_path: Path, more: dict[str, object], said: str
) -> None:
    found = said_of(tmp_path, **more)
    assert (said in found) if said else not found


def test_a_task_longer_than_a_link_needs_a_checkpoint(tmp_path: Path) -> None:
    assert "the task has no checkpoint" in said_of(tmp_path, length=50.0, expected=100.0)
    assert not said_of(tmp_path, length=50.0, expected=100.0, checkpoint=Checkpoint())


def test_the_table_is_the_plan(tmp_path: Path) -> None:
    plan = read_plan(write(tmp_path, WHOLE))
    table = task_table(plan, ALLOCATION.pool(), 1795608000.0 - 60)
    assert table.kinds.tolist() == [1, 2**64 - 1]
    assert table.deadline.tolist() == [48 * 3600.0, 60.0]
    assert table.after == ((), (0,))
    assert table.restart[0] == 30.0
    assert np.isnan(table.restart[1])
    assert table.tenant.decode() == ["vision", ""]


def test_what_is_too_large_for_a_task_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.touch()
    os.truncate(path, 3 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="larger"):
            read_plan(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
