"""``--signal=B:...`` of a script that does nothing with it: Slurm's warning would end each link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from api_world import world
from cli.submit_world import folder, submit

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

__all__ = ["folder", "world"]


@pytest.mark.parametrize(
    ("lines", "warned"),
    [
        ("#!/bin/bash\n# no trap\nsrun train", True),
        ("#!/usr/bin/env bash\npython train.py", True),
        ("#!/bin/sh\ntrap 'save' USR1\nsrun train & wait", False),
        ("#!/bin/bash\nexec python train.py", False),
        ("#!/usr/bin/python3\nimport train", False),
    ],
)
def test_a_warning_that_would_end_the_script_is_remarked(
    folder: Path, world: World, lines: str, warned: bool
) -> None:
    (folder / "plain.sh").write_text(f"{lines}\n")
    done = submit(folder, "--signal=B:USR1@300", "plain.sh", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, "--signal=B:USR1@300" in done.stderr) == (0, warned)
    done = submit(folder, "--signal=USR1@300", "plain.sh", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, "--signal=USR1@300" in done.stderr) == (0, False)
