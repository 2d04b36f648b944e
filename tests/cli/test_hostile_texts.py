"""No command prints control characters of one user's text to another user's terminal."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_world import START, definition, world
from cli.test_chains import mirage
from hypothesis import given
from hypothesis import strategies as st

import mirage.cli as commands
from mirage.cli.printing import show_error
from mirage.domain.errors import MirageError
from mirage.domain.job import JobId
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import Link, LinkState
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from api_world import World

__all__ = ["world"]

HOSTILE = "\x1b]0;PWN\x07\x1b[31m\nFAKE LINE\r\x9b2J\u202e\u2066\u200f\x7f\x08\t"
KEPT = ("chain_id", "owner", "user", "tag", "text", "environment")
"""Fields that find the chain and its links, and fields that are never shown."""
COMMANDS = [
    ("chains", "--all"),
    ("chains", "--all", "-o", "chain,name,partition,account,qos,gres,workdir,reason,predictor,aim"),
    ("chains", "--all", "-o", "%i %j %P %a %q %b %Z %r"),
    ("chain", "show", "train-k3q9"),
    ("chain", "explain", "train-k3q9"),
    ("explain", "train-k3q9"),
    ("explain", "train-k3q9", "1"),
    ("explain", "train-k3q9", "9"),
    ("chain", "show", "none" + HOSTILE),
    ("chain", "pause", "train-k3q9"),
]


def spoiled(value: Any) -> Any:
    """The same with a hostile text wherever there is one."""
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return value + HOSTILE
    if isinstance(value, tuple):
        return tuple(map(spoiled, value))
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name not in KEPT]
        return replace(value, **{name: spoiled(getattr(value, name)) for name in names})
    return value


@pytest.fixture
def hostile(world: World) -> World:
    """A chain that was stored before there were bounds, with all its journal entries."""
    document = definition()
    document["request"] |= {"account": "a", "qos": "q", "partition": "p", "features": ["f"], "reservation": "r"}
    document["request"]["gres_per_node"] = [["gpu", 2]]
    document |= {"predictor": "quantile", "done": {"file": "/done"}}
    status, answer = world.call("POST", "/api/v1/chains", document)
    assert status == 201, answer
    (record,) = world.loop.records
    tag = record.chain.tag
    links = tuple(
        Link(n, tag(n), START - 60 * n, LinkState.PENDING, JobId(n), START - 60 * n, reason="why") for n in (1,)
    )
    world.loop.records = [spoiled(replace(record, links=links, reason="it was asked for"))]
    world.loop.journal += [
        Entry(START, record.chain.chain_id, kind, f"said {HOSTILE}", link=1) for kind in EntryKind
    ]
    world.loop.cycle()
    return world


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_prints_no_control_of_a_chain(hostile: World, command: tuple[str, ...]) -> None:
    done = mirage(hostile, *command)
    shown = done.stdout + done.stderr
    assert shown
    assert shown.replace("\n", "").isprintable(), ascii(shown)
    assert not re.search("^FAKE LINE", shown, re.MULTILINE)


@given(st.text())
def test_printable_keeps_to_one_line_and_its_length(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


def test_error_keeps_its_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(MirageError("first\nsecond \x1b[2J"))
    assert capsys.readouterr().err == "mirage: first\nsecond ?[2J\n"


def test_commands_that_ask_the_daemon_print_by_one_way() -> None:
    own = re.compile(r"typer\.echo\((?!json\.dumps\()|\bprint\(|Console\(")
    asking = re.compile("from mirage.cli.connection import|mirage.client")
    allowed = {"main.py", "submit.py", "sending.py", "adopt.py", "heldlinks.py", "completing.py", "connection.py"}
    found = {
        f"{path.name}:{number}"
        for path in Path(commands.__file__).parent.glob("*.py")
        if path.name not in allowed and asking.search(text := path.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), 1)
        if own.search(line) and "def " not in line and "columns.print(" not in line
    }
    assert found == set()
