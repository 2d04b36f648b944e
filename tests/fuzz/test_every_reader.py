"""Each call that parses what it is given is in a function that a target runs, or in a module with a reason."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]

PARSING = {
    *("json.loads", "json.load", "tomllib.loads", "tomllib.load", "parse_json", "parse_toml"),
    *("model_validate", "model_validate_json", "validate_json", "validate_python", "validate_strings"),
    *("struct.unpack", "unpack_from", "iter_unpack", "np.frombuffer", "np.load", "np.loadtxt", "np.fromfile"),
    *("csv.reader", "csv.DictReader", "gzip.decompress", "gzip.open", "zlib.decompress", "lzma.open"),
    *("yaml.safe_load", "ast.literal_eval", "shlex.split", "urlsplit", "urlparse", "datetime.fromisoformat"),
    *("datetime.strptime", "b64decode", "jwt.decode", "InferenceSession", "files.read_table"),
}
"""As the call is written, or the end of it."""

ELSEWHERE = {
    "mirage.bench.predictors": "a benchmark's look at manifests, which their own reader reads again",
    "mirage.client.listener": "the kernel's credentials of a socket, and an address made here, both of known size",
    "mirage.daemon.doctor.credentials": "addresses of the administrator's configuration, checked as it was read",
    "mirage.allocation.inference.costs.costmodel": "the YAML of arrays that come with Mirage",
    "mirage.allocation.inference.costs.profiling": "measures its caller's models in a process of its own",
    "mirage.allocation.inference.serving.networks": "in a worker, which ends alone",
    "mirage.api.access.authentication": "the header Origin: tests/api/test_attacks.py sends it hostile input",
    "mirage.api.access.protocol": "the kernel's own structure",
    "mirage.api.routes.predictors": "the result of a shadow replay that this daemon computed",
    "mirage.api.routes.monitoring": "the header Host: tests/api/test_telemetry_api.py sends it hostile input",
    "mirage.api.web.internal_client": "what this interface itself answered a moment before",
    "mirage.api.web.replaypages": "the same",
    "mirage.api.web.timeaxis": "the same",
    "mirage.backends.file_check": "the kernel's own structure, which it checks as it is set",
    "mirage.bench.api": "a benchmark's own processes",
    "mirage.bench.daemon": "a benchmark's own configuration",
    "mirage.bench.references": "a benchmark's own programs, on files that its user names",
    "mirage.bench.peers": "a benchmark's own program",
    "mirage.cli.agent": "turns an answer that was just made into a document",
    "mirage.cli.tables": "times of the daemon's answers, after mirage.client has read them",
    "mirage.daemon.adopting": "its own list; what is wrong with it counts as nothing looked at",
    "mirage.daemon.doctor.account": "findings of its own child process; what is no finding is a failed check",
    "mirage.daemon.history": "its own marker; what is wrong with it counts as nothing imported",
    "mirage.daemon.proof": "the report of its own child process: tests/daemon/test_proof.py sends it what is none",
    "mirage.daemon.training": "its own marker; what is wrong with it counts as never trained",
    "mirage.replay.runs": "its own directory; what is wrong there is passed over",
    "mirage.training.evaluation.results": "its own directory of results",
    "mirage.store.migrations.versions.scripts": "what an earlier daemon stored: tests/store/test_store_scripts.py",
    "mirage.training.checkpoint": "a graph that was made a moment before",
    "mirage_encoders.trainer": "a graph that was made a moment before",
    "mirage_xgboost.training": "a booster that was trained a moment before",
}
"""Modules none of whose readers are fuzzed, and why not. A reason that is no longer needed fails as well."""


class Reader(NamedTuple):
    """A function with a call that parses."""

    module: str
    path: Path
    first: int
    last: int
    call: str


def _written(call: ast.expr) -> str:
    match call:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_written(value)}.{name}"
    return ""


def _parses(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    written = _written(node.func)
    known = written in PARSING or written.rpartition(".")[2] in PARSING or written.endswith(".unpack")
    return written if known else ""


def _readers() -> Iterator[Reader]:
    for folder in (ROOT / "mirage", *sorted((ROOT / "plugins").glob("mirage-*/mirage_*"))):
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
            yield from _in_file(module, path)


def _in_file(module: str, path: Path) -> Iterator[Reader]:
    """The innermost function around each call; what is parsed as a module is imported came with it."""
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for function in functions:
        inner = {
            node
            for other in ast.walk(function)
            if other is not function and other in functions
            for node in ast.walk(other)
        }
        for node in ast.walk(function):
            if node not in inner and (call := _parses(node)):
                first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
                yield Reader(module, path, first, function.end_lineno or first, call)


def _run_by_targets() -> set[tuple[str, int]]:
    """File and first line of all code that runs while each target reads what is right."""
    found: set[tuple[str, int]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.setprofile(note)
    try:
        for target in TARGETS:
            for given in target.corpus:
                target.read(given)
    finally:
        sys.setprofile(None)
    return found


def test_every_reader_is_fuzzed_or_has_a_reason() -> None:
    run = _run_by_targets()
    fuzzed, missing = set(), {}
    for reader in _readers():
        if any((str(reader.path), line) in run for line in range(reader.first, reader.last + 1)):
            fuzzed.add(reader.module)
        elif reader.module not in ELSEWHERE:
            missing[f"{reader.path.relative_to(ROOT)}:{reader.first}"] = reader.call
    assert not missing, f"give each a target in tests/fuzz, or its module a reason in ELSEWHERE: {missing}"
    known = {reader.module for reader in _readers()}
    assert not ELSEWHERE.keys() - (known - fuzzed), "these need no reason any more: take them out of ELSEWHERE"


def test_json_and_toml_are_read_at_one_place() -> None:
    """Elsewhere a document that is nested too deeply would go past ``except ValueError``."""
    own = {"mirage.documentreading", "mirage.client.transport", "mirage.client.client", "mirage.bench.references"}
    own |= {"mirage.cli.agent", "mirage_xgboost.training"}
    direct = {each.module for each in _readers() if each.call.startswith(("json.load", "tomllib.load"))}
    assert direct <= own, f"use mirage.documentreading: {direct - own}"
