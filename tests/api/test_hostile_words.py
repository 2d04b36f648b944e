"""From a document to ``sbatch``: whatever a user writes arrives as one argument, and no shell reads it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirage.api.access.caller import Caller, Scope
from mirage.api.conventions.problems import BadDocument
from mirage.api.routes.chaindefinition import read_chain
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.domain.bounds import CHAIN

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.chain import Chain

ADA = Caller("ada", Scope.OPERATE)
SBATCH = """#!{python}
import json, os, sys
open({record!r}, "w").write(json.dumps([sys.argv[1:], sys.stdin.read(), dict(os.environ)]))
print("4711")
"""
WORDS = [
    "; touch CANARY #",
    "$(touch CANARY)",
    "`touch CANARY`",
    "x' ; touch CANARY ; '",
    'x" ; touch CANARY ; "',
    "x && touch CANARY",
    "| touch CANARY",
    "> CANARY",
    "--wrap=touch CANARY",
    "-D/",
    "${IFS}touch${IFS}CANARY",
    "a b  c",
    "*",
    "~root",
    "<script>alert(1)</script>",
    "%s%n",
    "é ü 漢",
]


@pytest.fixture
def actuator(tmp_path: Path) -> CliActuator:
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(SBATCH.format(python=sys.executable, record=str(tmp_path / "argv")))
    program.chmod(0o755)
    return CliActuator(CommandRunner({"PATH": f"{program.parent}:/usr/bin:/bin"}), "ada")


def described(folder: Path, **request: Any) -> Chain:
    document = definition(name=request.get("name", "n"))
    document["request"] |= request
    document["request"]["batch"]["directory"] = str(folder)
    return read_chain(json.dumps(document).encode(), ADA, {})


def submitted(actuator: CliActuator, chain: Chain, folder: Path) -> tuple[list[str], str]:
    actuator.submit(replace(chain.link_request(1), user="ada"))
    argv, script, _ = json.loads((folder / "argv").read_text())
    return argv, script


@pytest.mark.parametrize("field", ["name", "partition", "account", "qos", "reservation", "node_list"])
@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_one_argument(actuator: CliActuator, tmp_path: Path, field: str, word: str) -> None:
    word = word.replace("CANARY", str(tmp_path / "canary"))
    argv, script = submitted(actuator, described(tmp_path, **{field: word}), tmp_path)
    option = {"name": "job-name", "node_list": "nodelist"}.get(field, field)
    assert argv.count(f"--{option}={word}") == 1
    assert all(argument.startswith("-") for argument in argv), "nothing that sbatch would take for a script"
    assert script == definition()["request"]["batch"]["text"]
    assert not (tmp_path / "canary").exists()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=30))
def test_any_name_arrives_as_it_was_written_or_is_refused(
    actuator: CliActuator, tmp_path: Path, name: str
) -> None:
    try:
        chain = described(tmp_path, name=name)
    except BadDocument:
        assert CHAIN.fields["name"].problem(name)
        return
    assert f"--job-name={name}" in submitted(actuator, chain, tmp_path)[0]


def test_a_folder_is_entered_and_not_obeyed(actuator: CliActuator, tmp_path: Path) -> None:
    folder = tmp_path / "$(touch canary); x"
    folder.mkdir()
    argv, _ = submitted(actuator, described(folder), tmp_path)
    assert f"--chdir={folder}" in argv
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["$(touch canary); x", "argv", "bin"])
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "option", ["--wrap=id", "/bin/sh", "--uid=0", "--array=1-9", "--gid=0", "--help", "--test-only"]
)
def test_options_that_would_make_another_job_are_refused(tmp_path: Path, option: str) -> None:
    document = definition()
    document["request"]["batch"]["options"] = [option]
    with pytest.raises(BadDocument, match=r"request\.batch\.options"):
        read_chain(json.dumps(document).encode(), ADA, {})
