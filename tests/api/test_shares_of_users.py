"""Shares of users: UIDs without a name count as one user, and changes have a separate rate."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import world
from serving import serving

from mirage.api.access import concurrency
from mirage.api.access.caller import Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.rates import RateLimiter

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

ME = pwd.getpwuid(os.getuid()).pw_name
CHAIN = {"chain_id": "c", "request": {"limit": 60, "batch": {"text": "#!/bin/sh\n", "directory": "/tmp"}}}
NAMELESS = [4_000_000_001 + k for k in range(3)]
ASK = """
import http.client, json, os, socket, sys
uid, path, method, target, body = sys.argv[1:]
os.setgroups([]); os.setresgid(int(uid), int(uid), int(uid)); os.setresuid(int(uid), int(uid), int(uid))
line = http.client.HTTPConnection("mirage", timeout=60)
line.sock = socket.socket(socket.AF_UNIX)
line.sock.connect(path)
line.request(method, target, body or None, {"Content-Type": "application/json"} if body else {})
answer = line.getresponse()
print(json.dumps([answer.status, json.loads(answer.read() or b"null")]))
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes other users")


def ask(path: Path, uid: int, method: str, target: str, body: str = "") -> tuple[int, Any]:
    argv = [sys.executable, "-I", "-S", "-c", ASK, str(uid), str(path), method, target, body]
    status, document = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return status, document


def open_to_all(path: Path) -> None:
    """Every user may reach the socket, as the daemon's own is."""
    path.chmod(0o666)
    for parent in path.parents[:3]:
        if os.stat(parent).st_uid == os.getuid() and str(parent) != "/tmp":  # noqa: PTH116
            parent.chmod(0o755)


@as_root
def test_uids_without_a_name_are_one_user_who_looks(world: World) -> None:
    gate = replace(world.service.gate, rates=RateLimiter(0.001, 4))
    with serving(world, gate=gate) as served:
        open_to_all(served.socket)
        status, me = ask(served.socket, NAMELESS[0], "GET", "/api/v1/me")
        assert (status, me["name"], me["scope"]) == (200, "uid:*", "read")
        assert ask(served.socket, NAMELESS[1], "POST", "/api/v1/chains", json.dumps(CHAIN))[0] == 403
        assert ask(served.socket, NAMELESS[1], "POST", "/api/v1/replays", "{}")[0] == 403
        assert ask(served.socket, NAMELESS[1], "GET", "/api/v1/me")[0] == 200
        assert ask(served.socket, NAMELESS[2], "GET", "/api/v1/me")[0] == 429, "the four before were theirs, too"
        daemon = pwd.getpwnam("daemon").pw_uid
        assert ask(served.socket, daemon, "GET", "/api/v1/me")[1]["name"] == "daemon"


@as_root
def test_uid_without_a_name_that_the_policy_names_is_itself(world: World) -> None:
    policy = AccessPolicy(Scope.READ, users={f"uid:{NAMELESS[0]}": Scope.OPERATE})
    with serving(world, gate=replace(world.service.gate, policy=lambda: policy)) as served:
        open_to_all(served.socket)
        assert ask(served.socket, NAMELESS[0], "GET", "/api/v1/me")[1]["scope"] == "operate"


@as_root
def test_uids_without_a_name_share_the_places_of_one_user(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MOST_OF_ONE", 1)
    begun, go = threading.Event(), threading.Event()

    def check() -> dict[str, str]:
        begun.set()
        assert go.wait(60)
        return {}

    with serving(world, readiness=check) as served, ThreadPoolExecutor(1) as pool:
        open_to_all(served.socket)
        waiting = pool.submit(ask, served.socket, NAMELESS[0], "GET", "/readyz")
        assert begun.wait(60)
        assert ask(served.socket, NAMELESS[1], "GET", "/api/v1/me")[0] == 429
        assert ask(served.socket, pwd.getpwnam("daemon").pw_uid, "GET", "/api/v1/me")[0] == 200
        go.set()
        assert waiting.result(60)[0] == 200


def test_changes_of_one_user_have_a_rate_of_their_own(world: World) -> None:
    policy, daemon = AccessPolicy(Scope.OPERATE), pwd.getpwnam("daemon").pw_uid
    gate = replace(world.service.gate, changes=RateLimiter(0.001, 2), policy=lambda: policy)
    with serving(world, gate=gate) as served:
        if os.getuid() == 0:
            open_to_all(served.socket)
            asked = [ask(served.socket, daemon, "POST", "/api/v1/chains/nix/pause")[0] for _ in range(3)]
            assert asked == [404, 404, 429]
            assert ask(served.socket, daemon, "GET", "/api/v1/me")[0] == 200, "it may look all the same"
            assert served.call("POST", "/api/v1/chains/nix/pause")[0] == 404, "and no other user waits"
        else:
            asked = [served.call("POST", "/api/v1/chains/nix/pause")[0] for _ in range(3)]
            assert asked == [404, 404, 429]
