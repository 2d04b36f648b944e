"""Connections have a deadline for the whole exchange: ``mirage.client.deadline`` and its users."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "mirage.client.listener": "a datagram socket that sends nothing: its address is all that is asked for",
    "mirage.allocation.inference.serving.load_client": "measures a gateway, each request with its own timeout",
    "mirage.allocation.inference.serving.serverwatch": "the gateway ends a worker whose answer takes too long",
    "mirage.allocation.inference.serving.upstream": "a deadline for each exchange, by asyncio",
    "mirage.allocation.inference.serving.worker": "the connection of a worker's life, to its own gateway",
    "mirage.bench.api": "measures a daemon that it has started itself",
    "mirage.daemon.doctor.account": "connects to a socket of this machine and says nothing",
    "mirage.daemon.doctor.machine": "connects to a socket of this machine and says nothing",
    "mirage.api.server": "connects to a socket of this machine and says nothing",
    "mirage.client.deadline": "this is where the deadlines are",
    "mirage.notifications.channels": "by connections of mirage.client.deadline",
}
"""Modules that connect in another way, and why they may. A reason that is not needed any more fails, too."""

_OPENING = {
    *("HTTPConnection", "HTTPSConnection", "urlopen", "build_opener", "SMTP", "SMTP_SSL"),
    *("create_connection", "open_connection", "open_unix_connection", "create_unix_connection"),
}


def _opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    if name.endswith(".connect"):
        return bool(node.args) and name.split(".")[-2] in ("plain", "to", "probe", "sock", "socket", "connection")
    return name.rpartition(".")[2] in _OPENING


def test_connections_have_a_deadline_for_the_whole_exchange() -> None:
    found = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted((ROOT / "mirage").rglob("*.py"))
        if any(map(_opens, ast.walk(ast.parse(file.read_bytes()))))
    }
    assert found - ELSEWHERE.keys() == set(), "use mirage.client.deadline or TimedSocket"
    assert ELSEWHERE.keys() - found == set(), "these need no reason any more"
