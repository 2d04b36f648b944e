"""``mirage protected`` as a process, on a real socket."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from api_world import START, world

from mirage.provisioner.rejections import Protection

if TYPE_CHECKING:
    from api_world import World

__all__ = ["world"]


def protected(world: World, *arguments: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "MIRAGE_SOCKET": str(world.socket)}
    command = [sys.executable, "-m", "mirage", "protected", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_shown_and_lifted(world: World) -> None:
    assert protected(world) == "off"
    world.loop.status = replace(world.loop.status, protection=Protection(START, 5, START + 600))
    shown = protected(world)
    assert shown.startswith("on since 2023-11-14T22:13:20: Slurm has rejected 5 chains in a row")
    assert shown.endswith("next try at 2023-11-14T22:23:20")
    assert json.loads(protected(world, "--json"))["on"] is True
    assert "all chains may try again" in protected(world, "off")
    assert protected(world) == "off"
