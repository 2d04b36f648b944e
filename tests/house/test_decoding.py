"""Bytes of Slurm and of users' processes become text at one place, which cannot fail: ``documentreading``."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("backends", "slurm")
ELSEWHERE = {
    "mirage.backends.sudo": "the kernel's own file about this process; never fails",
    "mirage.backends.agent_requests": "one user's helper or agent answers; what is no JSON fails that act alone",
    "mirage.backends.background": "the log of a process that this daemon started; never fails",
    "mirage.backends.background_files": "the kernel's table of mounts; never fails",
    "mirage.backends.restclient": "a token, and what is shown of an answer that is no JSON; neither fails a cycle",
}
"""Modules that decode in another way, and why they may. A reason that is not needed any more fails, too."""

_METHODS = {"decode", "read_text"}
_FUNCTIONS = {"parse_json", "json.loads", "json.load", "open"}
_OPTIONS = {"text", "encoding", "universal_newlines"}


def _decodes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        return True
    name = ast.unparse(node.func)
    return name in _FUNCTIONS or (
        name.startswith("subprocess.") and any(option.arg in _OPTIONS for option in node.keywords)
    )


def test_answers_of_slurm_are_decoded_where_it_cannot_fail() -> None:
    files = [file for package in PACKAGES for file in sorted((ROOT / "mirage" / package).rglob("*.py"))]
    found = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in files
        if any(map(_decodes, ast.walk(ast.parse(file.read_bytes()))))
    }
    assert found - ELSEWHERE.keys() == set(), "use mirage.documentreading.decode_foreign or parse_foreign_json"
    assert ELSEWHERE.keys() - found == set(), "these need no reason any more"
