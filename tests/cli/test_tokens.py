"""``mirage tokens`` as a process, on a real socket; the policy in ``mirage config check``."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from api_world import world

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

ME = pwd.getpwuid(os.getuid()).pw_name


def mirage(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TZ": "UTC"} | variables
    command = [sys.executable, "-m", "mirage", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def tokens(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    return mirage("tokens", *arguments, MIRAGE_SOCKET=str(world.socket))


def test_a_token_is_shown_once_listed_and_revoked(world: World) -> None:
    made = tokens(world, "create", "--label", "notebook", "--scope", "operate", "--expires", "2d")
    assert made.returncode == 0, made.stderr
    text = made.stdout.strip()
    assert text.startswith("mirage_")
    assert "not shown again" in made.stderr
    proof = world.service.gate.tokens.find(text)
    assert proof is not None
    assert (proof.owner, proof.scope, proof.expires - proof.created) == (ME, "operate", 2 * 86_400)
    listed = tokens(world, "list")
    assert "notebook" in listed.stdout
    assert text not in listed.stdout
    (document,) = json.loads(tokens(world, "list", "--json").stdout)["tokens"]
    assert document["id"] == proof.token_id
    assert tokens(world, "revoke", proof.token_id).returncode == 0
    assert world.service.gate.tokens.find(text) is None
    assert tokens(world, "revoke", proof.token_id).returncode == 3


def test_mistakes_are_said(world: World) -> None:
    assert tokens(world, "create", "--expires", "soon").returncode == 2
    assert tokens(world, "create", "--expires", "UNLIMITED").returncode == 2
    scope = tokens(world, "create", "--scope", "god")
    assert (scope.returncode, "scope" in scope.stderr) == (2, True)
    link = tokens(world, "link")
    assert (link.returncode, "api.listen" in link.stderr) == (4, True), link


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ('[users]\nada = "god"\n', "line 2: users.ada: it should be 'none', 'read', 'operate' or 'admin'"),
        ('everyone = "read"\n', "line 1: everyone: there is no such key"),
        ("x = = 1", "not TOML"),
        ('anonymous = "operate"', "anonymous"),
        ("", "line 1: everybody: missing"),
        ('everybody = "read"\n[users]\nada = "none"', "line 1: everybody: put it last"),
    ],
)
def test_a_wrong_policy_is_found_before_the_daemon_starts(tmp_path: Path, policy: str, words: str) -> None:
    (tmp_path / "policy.toml").write_text(policy)
    (tmp_path / "mirage.toml").write_text(f'[api]\npolicy = "{tmp_path}/policy.toml"\n')
    checked = mirage("config", "check", str(tmp_path / "mirage.toml"))
    assert checked.returncode == 1
    assert words in checked.stderr
    assert "mirage.toml:2: api.policy" in checked.stderr


def test_an_open_address_is_refused_before_the_daemon_starts(tmp_path: Path) -> None:
    (tmp_path / "mirage.toml").write_text('[api]\nlisten = "0.0.0.0:8421"\n')
    checked = mirage("config", "check", str(tmp_path / "mirage.toml"))
    assert (checked.returncode, "unencrypted" in checked.stderr) == (1, True)
    (tmp_path / "short.key").write_bytes(b"abc")
    (tmp_path / "mirage.toml").write_text(f'[api.jwt]\nkey = "{tmp_path}/short.key"\n')
    checked = mirage("config", "check", str(tmp_path / "mirage.toml"))
    assert (checked.returncode, "can be guessed" in checked.stderr) == (1, True)
