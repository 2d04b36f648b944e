"""The settings of a testbed, and how its state directory records them."""

from __future__ import annotations

import getpass
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from onehost.errors import TestbedError

NODE_KINDS = ("cpu", "v100", "a100", "npu")
MOST_NODES = 999
FASTEST = 600
"""Above, libmunge's fixed timeout of two seconds is over before munged has answered."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One testbed. ``speed`` is Slurm seconds per real second; ports are counted from ``base_port``."""

    directory: str
    speed: int = 1
    nodes: str = "cpu=4,v100=4,a100=4,npu=4"
    base_port: int = 26000
    privileged: bool = True
    priority_flags: str = ""
    conf_lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``TestbedError`` for invalid settings, before anything starts."""
        if not 1 <= self.speed <= FASTEST:
            raise TestbedError(f"--speed {self.speed}: from 1 (the real clock) to {FASTEST}")
        for line in self.conf_lines:
            if "=" not in line:
                raise TestbedError(f"--conf-line {line!r}: expected KEY=VALUE, as in slurm.conf")
        self.node_counts()

    def node_counts(self) -> dict[str, int]:
        """Nodes of each kind, from ``cpu=4,v100=2``; kinds left out have none."""
        counts = dict.fromkeys(NODE_KINDS, 0)
        for part in self.nodes.split(","):
            kind, _, count = part.partition("=")
            if kind not in counts or not count.isdigit() or int(count) > MOST_NODES:
                raise TestbedError(
                    f"--nodes {part!r}: expected KIND=COUNT with KIND one of {', '.join(NODE_KINDS)}"
                )
            counts[kind] = int(count)
        if not sum(counts.values()):
            raise TestbedError(f"--nodes {self.nodes}: at least one node is needed")
        return counts

    def node_names(self) -> tuple[str, ...]:
        """Every node. With a dash, because ``v100001`` would be folded to ``v[100001]`` by sinfo."""
        return tuple(f"{kind}-{i:03d}" for kind, count in self.node_counts().items() for i in range(1, count + 1))

    def differences(self, other: Settings) -> list[str]:
        """The settings in which two testbeds differ, one per line."""
        return [
            f"{f.name} is {getattr(self, f.name)!r}, asked for {getattr(other, f.name)!r}"
            for f in fields(self)
            if getattr(self, f.name) != getattr(other, f.name)
        ]

    def to_json(self) -> dict[str, Any]:
        """As stored in ``testbed.json``."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Settings:
        """The inverse of ``to_json``."""
        return cls(**{**document, "conf_lines": tuple(document["conf_lines"])})


def read_settings(directory: Path) -> Settings | None:
    """The settings of the testbed last started in ``directory``, ``None`` if there was none."""
    path = directory / "settings.json"
    try:
        return Settings.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise TestbedError(
            f"{path}: not readable by {getpass.getuser()}; was it started by another user?"
        ) from error


def default_directory() -> Path:
    """The default directory: short (Unix sockets allow 107 characters), on a file system that allows programs."""
    if os.geteuid() == 0:
        return Path("/run/mirage-testbed")
    return Path(f"/tmp/mirage-testbed-{getpass.getuser()}")  # noqa: S108 - owned and checked by layout.py
