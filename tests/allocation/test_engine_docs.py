"""Task files are as the documentation describes them."""

from __future__ import annotations

import re
from pathlib import Path

from mirage.allocation.engine.taskfile import TaskEntry, read_plan

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_key_is_documented_and_no_other() -> None:
    text = (DOCS / "allocation.md").read_text()
    table = text[text.index("| key | meaning |") :].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    documented = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert documented == set(TaskEntry.model_fields)


def test_the_example_can_be_read() -> None:
    plan = read_plan(DOCS / "examples" / "tasks.toml")
    assert [task.name for task in plan.tasks] == ["prepare", "train-large", "train-small", "probe"]
    assert plan.tasks[3].share == 0.25
