"""Files of tasks as a watch finds them, and what it reports of them."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
from typing import TYPE_CHECKING, Any

from mirage.api.agentstatus import TaskStatus
from mirage.api.taskfiles import Reading, StateUnseen, read_state
from mirage.api.taskwatch import Shown, TaskWatch
from mirage.backends.file_check import Viewer
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.job import JobRequest

if TYPE_CHECKING:
    from pathlib import Path

ME = pwd.getpwuid(os.getuid()).pw_name
NOTHING = {"version": 1, "time": 1_700_000_000.5, "over": False, "links": [], "tasks": [], "lanes": {}}


def viewer(uid: int | None = None, *, own: bool = True) -> Viewer:
    return Viewer("alice", os.getuid() if uid is None else uid, own=own)


def read(folder: Path | str, uid: int | None = None) -> TaskStatus | str:
    found = read_state(str(folder), viewer(uid))
    assert found is not None
    return found.seen


def refusal(folder: Path | str, uid: int | None = None) -> str:
    try:
        found = read(folder, uid)
    except StateUnseen as unseen:
        return str(unseen)
    assert isinstance(found, str)
    return found


def time_of(folder: Path) -> float:
    found = read(folder)
    assert isinstance(found, TaskStatus)
    return found.time


def write(folder: Path, content: object) -> Path:
    file = folder / "status.json"
    file.write_text(json.dumps(content))
    return file


def chain(number: int, owner: str = "alice") -> Chain:
    request = JobRequest("x", owner, 60)
    return Chain(ChainId(f"c{number}"), "x", owner, request, tasks_state=f"/there/{number}")


def looked(watch: TaskWatch, *chains: Chain, now: int = 0) -> dict[str, Any]:
    """By chain: its document, or why none is available now."""
    found = asyncio.run(watch.look([ChainRecord(each) for each in chains], now))
    return {name: json.loads(each.body) if isinstance(each, Shown) else each for name, each in found.items()}


def status(**changes: Any) -> TaskStatus:
    return TaskStatus.model_validate(NOTHING | changes)


class Files:
    """Stands for the file system: each read costs what a test sets, and finds a new file where it says so."""

    def __init__(self) -> None:
        self.looks, self.made, self.changing = 0, 0, True

    def read(self, folder: str, owner: Viewer, known: tuple[int, ...] | None) -> Reading | None:
        self.looks += 1
        if known is not None and not self.changing:
            return None
        self.made += 1
        return Reading((self.made,), status(time=float(self.made)), 1_000)


def of_uid(owner: str) -> Viewer:
    return Viewer(owner, 1)
