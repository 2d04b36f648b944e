"""A chain as its owner describes it: the document that creates one."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from mirage.api.conventions.problems import BadDocument
from mirage.documentfaults import faults_of
from mirage.documenttext import parse_json
from mirage.domain.chain import Chain
from mirage.domain.errors import BadSpelling, NotPermitted
from mirage.provisioner.aims import problem_of
from mirage.slurm.jobrequest import ABOUT_SBATCH, REFUSED
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.api.access.caller import Caller

Document = dict[str, Any]

_CHAIN = TypeAdapter(Chain)
_BUILT_IN = {"handover": {"signal": {"name": "TERM", "lead": 60}}}
_SPACE, _DELETE = 0x20, 0x7F
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def read_chain(body: bytes, caller: Caller, defaults: Mapping[str, Any]) -> Chain:
    """The chain that ``body`` (JSON) describes, ``defaults`` where it says nothing.

    The owner is the one who asks; root may name another. Raises ``BadDocument`` naming the first field that is
    wrong, unknown ones included, and ``NotPermitted`` for an owner whom ``caller`` is not.
    """
    try:
        document = parse_json(body)
    except ValueError as error:
        raise BadDocument(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadDocument("expected an object that describes a chain")
    below = _merged(_BUILT_IN, defaults)
    chain = _validated(_merged(below, {"owner": caller.name} | document))
    _check(chain, caller)
    return replace(chain, request=replace(chain.request, user=chain.owner, tag=""))


def _validated(document: Document) -> Chain:
    request = document.get("request")
    if isinstance(request, dict):
        document = document | {"request": {"user": ""} | request}
    try:
        chain = _CHAIN.validate_python(document)
    except ValidationError as error:
        raise BadDocument(str(faults_of(error)[0])) from None
    except RecursionError:
        raise BadDocument("nested too deeply") from None
    if unknown := _unknown(document, asdict(chain), ""):
        raise BadDocument(f"{unknown}: there is no such field")
    return chain


def _unknown(document: Mapping[str, Any], known: Mapping[str, Any], place: str) -> str:
    """The first field of ``document`` that is not in ``known``; empty: there is none."""
    for name, value in document.items():
        if name not in known:
            return f"{place}{name}"
        if isinstance(value, dict) and isinstance(known[name], dict):
            found = _unknown(value, known[name], f"{place}{name}.")
            if found:
                return found
    return ""


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    both = dict(below)
    for name, value in above.items():
        under = both.get(name)
        both[name] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both


def _check(chain: Chain, caller: Caller) -> None:
    _check_texts(chain)
    if not caller.is_known:
        raise NotPermitted(f"{caller.name} has no name on this machine, so no job can be submitted for it")
    if chain.owner != caller.name and not caller.is_root:
        raise NotPermitted(f"{caller.name} cannot make a chain for {chain.owner}")
    if not _ID.fullmatch(chain.chain_id):
        raise BadDocument(
            f"chain_id: {chain.chain_id[:80]!r}: expected up to 64 letters, digits, '-', '_' and '.'"
        )
    if chain.request.batch is None or not chain.request.batch.text:
        raise BadDocument("request.batch.text: a chain needs a batch script")
    if not chain.request.batch.directory.startswith("/"):
        raise BadDocument("request.batch.directory: expected an absolute path")
    if chain.done.file and not chain.done.file.startswith("/"):
        raise BadDocument("done.file: expected an absolute path")
    if chain.tasks_state and not chain.tasks_state.startswith("/"):
        raise BadDocument("tasks_state: expected an absolute path")
    if problem := problem_of(chain.aim):
        raise BadDocument(f"aim.value: {problem}")
    _check_options(chain.request.batch.options)
    for name, number in (("request.limit", chain.request.limit), ("request.nodes", chain.request.nodes)):
        if number <= 0:
            raise BadDocument(f"{name}: expected more than 0")
    for name, number in (
        ("done.links", chain.done.links),
        ("done.total_time", chain.done.total_time),
        ("handover.max_overlap", chain.handover.max_overlap),
        ("handover.signal.lead", chain.handover.signal.lead),
    ):
        if number < 0:
            raise BadDocument(f"{name}: expected 0 or more")


def _check_texts(chain: Chain) -> None:
    """Names are shown to others and written to logs; script and environment alone may hold any bytes.

    Raises ``BadDocument``.
    """
    shown = {"name": chain.name, "request.name": chain.request.name, "tasks_state": chain.tasks_state}
    for field, name in shown.items():
        if any(ord(letter) < _SPACE or ord(letter) == _DELETE for letter in name):
            raise BadDocument(f"{field}: {name[:80]!r} holds characters that steer a terminal")
    batch = chain.request.batch and replace(chain.request.batch, text="", environment=())
    for place, text in _texts(asdict(replace(chain, request=replace(chain.request, batch=batch))), ""):
        if not _is_unicode(text):
            raise BadDocument(f"{place}: {text[:80]!r} is not UTF-8")


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Every text within, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(name, place)
            yield from _texts(inner, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, place)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_options(options: tuple[str, ...]) -> None:
    """Raises ``BadDocument`` for options that ``sbatch`` does not know, or that cannot work in a chain."""
    try:
        given, rest = SBATCH.read([Word(option, "request.batch.options") for option in options])
    except BadSpelling as error:
        raise BadDocument(str(error)) from None
    if rest:
        raise BadDocument(f"request.batch.options: {rest[0].text!r} is no option")
    for option in given:
        if option.name in REFUSED or option.name in ABOUT_SBATCH:
            raise BadDocument(f"request.batch.options: {option.spelling} cannot work in a chain")
