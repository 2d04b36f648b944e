"""Options about the chain: on the command line of ``mirage submit`` and on ``#MIRAGE`` lines."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

from mirage.domain import bounds
from mirage.domain.chain import HandoverPolicy, Steering
from mirage.domain.errors import BadSpelling, MirageError
from mirage.domain.failurepolicy import FailureAction, FailureKind
from mirage.domain.tags import owned_id
from mirage.provisioner.objectives import parse_objective
from mirage.slurm import duration
from mirage.slurm.sbatchoptions import Options, Takes, option_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from enum import StrEnum

    from mirage.domain.chain import ChainId
    from mirage.domain.job import WarnSignal
    from mirage.slurm.sbatchoptions import Given

CHAIN = Options(
    option_table(
        Takes.VALUE,
        """total-time links done-file done-exit-code grace max-overlap handover health-command on-failure retries
        predictor aim steering lead name held-links tasks-state""",
    )
)

Document = dict[str, Any]
Path = tuple[str, ...]
"""Names of nested fields."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_SUFFIX = 5
_LONGEST_NAME = 40
_NO_SUCH_BOUND = "for no limit, omit the option"


def new_chain_id(name: str, owner: str) -> ChainId:
    """Return a readable, unique ID that fits into a tag: ``train-k3q9x.4hq2zk7a``."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:_LONGEST_NAME] or "chain"
    return owned_id(f"{readable}-{''.join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX))}", owner)


def chain_document(given: Mapping[str, Given], directory: str, warn: WarnSignal | None) -> Document:
    """Return the options of a chain as the daemon's document, without those that are not given.

    Raises ``BadSpelling`` with the place of an invalid option.
    """
    document: Document = {}
    for name, read in _READERS.items():
        if name in given:
            _put(document, *_read(given[name], read))
    if "retries" in given:
        _put_retries(document, given["retries"])
    if "done-file" in given:
        document["done"]["file"] = _absolute(given["done-file"], directory)
    if "tasks-state" in given:
        document["tasks_state"] = _absolute(given["tasks-state"], directory)
    if warn is not None:
        signal = {"name": warn.name, "batch_only": warn.batch_only}
        _put(document, ("handover", "signal"), signal | document.get("handover", {}).get("signal", {}))
    if "health-command" in given:
        policy = document.setdefault("handover", {}).setdefault("policy", HandoverPolicy.WHEN_READY.value)
        if policy != HandoverPolicy.WHEN_READY:
            raise BadSpelling(f"--handover={policy}", "--health-command requires --handover=when-ready")
    return document


def held_links(given: Mapping[str, Given]) -> int:
    """Return the number of links to submit held (default 0). Raises ``BadSpelling``."""
    return int(_read(given["held-links"], _held_links)[1]) if "held-links" in given else 0


def _held_links(text: str) -> tuple[Path, Any]:
    if (number := _number(text)) > bounds.MOST_LINKS:
        raise BadSpelling(text, f"expected at most {bounds.MOST_LINKS}")
    return (), number


def _read(given: Given, read: Callable[[str], tuple[Path, Any]]) -> tuple[Path, Any]:
    try:
        return _bounded(*read(given.value or ""))
    except BadSpelling as error:
        raise BadSpelling(given.spelling, f"{given.where}: {error.problem}") from None


def _bounded(path: Path, value: Any) -> tuple[Path, Any]:
    bound = bounds.CHAIN.fields.get(".".join(path))
    if bound is not None and value is not None and (problem := bound.problem(value)):
        raise BadSpelling(str(value), problem)
    return path, value


def _put(document: Document, path: Path, value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    if isinstance(value, dict):
        document.setdefault(path[-1], {}).update(value)
    else:
        document[path[-1]] = value


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadSpelling(text, "expected a whole number from 0 to 999999999")
    return int(text)


def _positive(text: str) -> int:
    if (number := _number(text)) < 1:
        raise BadSpelling(text, f"expected 1 or more; {_NO_SUCH_BOUND}")
    return number


def _total_time(text: str) -> int:
    if (seconds := _duration(text, _NO_SUCH_BOUND)) < 1:
        raise BadSpelling(text, f"expected a time above 0; {_NO_SUCH_BOUND}")
    return seconds


def _duration(text: str, unlimited: str) -> int:
    """``unlimited``: how to request no limit, for the error message."""
    try:
        return duration.parse_human(text)
    except BadSpelling as error:
        raise BadSpelling(text, f"{error.problem}; {unlimited}") from None


def _name(text: str) -> str:
    if not text.strip():
        raise BadSpelling(text, "expected a name; for the job name, omit the option")
    return text


def _predictor(text: str) -> str:
    """Check a name. A built-in predictor is built to check its parameter; the daemon checks the others."""
    from mirage.predictors.members import check_name
    from mirage.predictors.registry import build_predictor, is_built_in

    try:
        check_name(text)
        if is_built_in(text.partition(":")[0]):
            build_predictor(text)
    except MirageError as error:
        raise BadSpelling(text, str(error)) from None
    return text


def _grace(text: str) -> int:
    """Seconds, as the time of ``--signal`` is; or a duration with its unit."""
    return _number(text) if text.isascii() and text.isdigit() else duration.parse_human(text)


def _exit_code(text: str) -> int | None:
    if text.lower() == "none":
        return None
    code = _number(text)
    if code > 255:
        raise BadSpelling(text, "expected an exit code from 0 to 255, or none")
    return code


def _on_failure(text: str) -> tuple[Path, Any]:
    """``retry``, ``continue`` or ``stop`` for failing scripts, or ``node=stop,exit=retry`` for each kind."""
    policies: Document = {}
    for item in text.split(","):
        kind, equals, word = item.rpartition("=")
        named = kind if equals else FailureKind.EXIT.value
        if named not in [known.value for known in FailureKind]:
            raise BadSpelling(text, f"unknown kind of failure {named!r} (choose from {', '.join(FailureKind)})")
        if named in policies:
            raise BadSpelling(text, f"{named} is given twice; give each kind once")
        policies[named] = {"recovery": _choice(FailureAction, word)}
    return ("failures",), policies


def _put_retries(document: Document, given: Given) -> None:
    """Set the number of retries of each retried kind of failure. Raises ``BadSpelling`` if there is none."""
    _, number = _read(given, lambda text: (("failures", "exit", "retries"), _number(text)))
    retry = {"recovery": FailureAction.RETRY.value}
    policies = document.setdefault("failures", {})
    policies.setdefault(FailureKind.EXIT.value, retry)
    tried_again = [policy for policy in policies.values() if policy["recovery"] == FailureAction.RETRY]
    if not tried_again:
        problem = "--on-failure does not retry any kind of failure"
        raise BadSpelling(given.spelling, f"{given.where}: {problem}")
    for policy in tried_again:
        policy["retries"] = number


def _choice(kind: type[StrEnum], text: str) -> str:
    if text not in [member.value for member in kind]:
        raise BadSpelling(text, f"invalid value {text!r} (choose from {', '.join(kind)})")
    return text


def _aim(text: str) -> tuple[Path, Any]:
    aim = parse_objective(text)
    return ("aim",), {"kind": aim.kind.value, "value": aim.value}


def _absolute(given: Given, directory: str) -> str:
    """Raises ``BadSpelling`` for ``~`` and ``$``, because no shell reads ``#MIRAGE`` lines."""
    text = given.value or ""
    if text.startswith("~") or "$" in text:
        problem = "~ and $ are not expanded here; write the full path"
        raise BadSpelling(given.spelling, f"{given.where}: {problem}")
    return text if text.startswith("/") else f"{directory}/{text}"


_READERS: dict[str, Callable[[str], tuple[Path, Any]]] = {
    "total-time": lambda text: (("done", "total_time"), _total_time(text)),
    "links": lambda text: (("done", "links"), _positive(text)),
    "done-file": lambda text: (("done", "file"), text),
    "done-exit-code": lambda text: (("done", "exit_code"), _exit_code(text)),
    "grace": lambda text: (("handover", "signal", "lead"), _grace(text)),
    "max-overlap": lambda text: (("handover", "max_overlap"), _duration(text, "0 means no limit")),
    "handover": lambda text: (("handover", "policy"), _choice(HandoverPolicy, text)),
    "on-failure": _on_failure,
    "predictor": lambda text: (("predictor",), _predictor(text)),
    "aim": _aim,
    "steering": lambda text: (("steering",), _choice(Steering, text)),
    "lead": lambda text: (("lead",), duration.parse_human(text)),
    "name": lambda text: (("name",), _name(text)),
    "tasks-state": lambda text: (("tasks_state",), text),
}
