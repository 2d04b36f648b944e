"""The threat model's tests are there, and what it promises of the code itself holds."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOWN = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
CODE = [*ROOT.glob("mirage/**/*.py"), *ROOT.glob("plugins/*/mirage_*/**/*.py")]


def threats() -> list[str]:
    text = (ROOT / "SECURITY.md").read_text()
    table = text[text.index("| who, from where |") :].split("\n\n")[0]
    return table.splitlines()[2:]


def test_there_are_threats() -> None:
    assert len(threats()) >= 15


@pytest.mark.parametrize("row", threats(), ids=lambda row: row.split("|")[2].strip())
def test_each_threat_names_tests_that_are_there(row: str) -> None:
    named = SHOWN.findall(row)
    assert named, row
    for file, function in named:
        defined = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert function in defined, f"{file} has no {function}"


def test_all_tests_named_are_there() -> None:
    for file, function in SHOWN.findall((ROOT / "SECURITY.md").read_text()):
        defined = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert function in defined, f"{file} has no {function}"


FORBIDDEN = {
    *("eval", "exec", "compile", "__import__"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "shelve.open", "yaml.load"),
    *("os.system", "os.popen", "subprocess.getoutput", "tempfile.mktemp"),
}
STARTS_PROGRAMS = {"run", "Popen", "call", "check_call", "check_output"}
SAFE_ONLY_WITH = {"torch.load": "weights_only", "np.load": "allow_pickle"}
"""Only safe with this argument."""


def calls() -> list[tuple[str, str, ast.Call]]:
    """(place, name, call) of all calls in the product."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.func), node)
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def test_nothing_of_ours_runs_what_it_reads() -> None:
    for place, name, call in calls():
        assert name not in FORBIDDEN, f"{place}: {name}"
        said = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if name.rpartition(".")[2] in STARTS_PROGRAMS:
            assert said.get("shell", "False") == "False", f"{place}: a shell reads what is written there"
        if name in SAFE_ONLY_WITH:
            wanted = "True" if name == "torch.load" else "False"
            assert said.get(SAFE_ONLY_WITH[name]) == wanted, f"{place}: {name} unpickles"


@pytest.mark.parametrize("project", PROJECTS, ids=lambda path: path.parent.name)
def test_every_dependency_says_from_which_version_on(project: Path) -> None:
    document = tomllib.loads(project.read_text())
    listed = [*document["project"].get("dependencies", ())]
    for extra in document["project"].get("optional-dependencies", {}).values():
        listed += extra
    for group in document.get("dependency-groups", {}).values():
        listed += [each for each in group if isinstance(each, str)]
    assert listed
    ours = re.compile(r"mirage-[\w-]+(\[[\w,-]+\])?")
    free = {"pyslurm"}
    """Its version is that of the site's Slurm."""
    assert [
        each for each in listed if not re.search(r"[<>=~]=", each) and not ours.match(each) and each not in free
    ] == []
