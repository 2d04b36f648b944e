"""The document that creates a chain, and its checks."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mirage.api.conventions.problems import BadDocument
from mirage.documentfaults import faults_of, reader_of
from mirage.documenttext import parse_json
from mirage.domain.bounds import CHAIN, path_problem
from mirage.domain.chain import Chain, Steering
from mirage.domain.chainid import owned_id
from mirage.domain.errors import BadSpelling, NotPermitted, PluginNotFound
from mirage.domain.job import WARNED_EARLY
from mirage.predictors.naming import check_name
from mirage.provisioner.aims import problem_of
from mirage.slurm.batchscript import check_bounds
from mirage.slurm.duration import parse_human
from mirage.slurm.jobrequest import ABOUT_SBATCH, REFUSED, check_directives
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.api.access.caller import Caller
    from mirage.domain.job import Seconds

Document = dict[str, Any]

_CHAIN = reader_of(Chain, booleans_are_numbers=False)
_BUILT_IN = {"handover": {"signal": {"name": "TERM", "lead": 60}}}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def read_chain(body: bytes, caller: Caller, defaults: Mapping[str, Any]) -> Chain:
    """Return the chain that ``body`` (JSON) describes, with ``defaults`` for missing fields.

    The owner is the caller; root may name another user. The ID gets the owner's mark. Raises ``BadDocument`` that
    names the first invalid or unknown field, and ``NotPermitted`` for an owner other than ``caller``.
    """
    try:
        document = parse_json(body)
    except ValueError as error:
        raise BadDocument(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadDocument("expected an object that describes a chain")
    below = merged(_told_by_file(document), merged(_BUILT_IN, defaults))
    chain = validated(merged(below, {"owner": caller.name} | document))
    _check(chain, caller)
    chain_id = owned_id(chain.chain_id, chain.owner)
    return replace(chain, chain_id=chain_id, request=replace(chain.request, user=chain.owner, tag=""))


def validated(document: Document) -> Chain:
    """Return the chain of a document. Raises ``BadDocument`` that names the first field out of range or invalid.

    Unknown fields are invalid.
    """
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
    if problem := CHAIN.problem(chain):
        raise BadDocument(problem)
    return chain


def _unknown(document: Mapping[str, Any], known: Mapping[str, Any], place: str) -> str:
    """Return the first field of ``document`` that is not in ``known``; empty: none."""
    for name, value in document.items():
        if name not in known:
            return f"{place}{name}"
        if isinstance(value, dict) and isinstance(known[name], dict):
            found = _unknown(value, known[name], f"{place}{name}.")
            if found:
                return found
    return ""


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    """Merge two documents at every depth; fields of ``above`` take precedence."""
    both = dict(below)
    for name, value in above.items():
        under = both.get(name)
        both[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both


def _told_by_file(document: Document) -> Document:
    """A done file without an exit code replaces the default exit code."""
    done = document.get("done")
    return {"done": {"exit_code": None}} if isinstance(done, dict) and done.get("file") else {}


def _check(chain: Chain, caller: Caller) -> None:
    if not caller.is_known:
        raise NotPermitted(f"{caller.name} has no user name on this machine, so Mirage cannot submit jobs for it")
    if chain.owner != caller.name and not caller.is_root:
        raise NotPermitted(f"{caller.name} may not create a chain for {chain.owner}")
    if not _ID.fullmatch(chain.chain_id):
        raise BadDocument(
            f"chain_id: {chain.chain_id[:80]!r}: expected up to 64 letters, digits, '-', '_' and '.'"
        )
    if chain.request.batch is None or not chain.request.batch.text:
        raise BadDocument("request.batch.text: a chain needs a batch script")
    try:
        check_bounds(chain.request.batch.text, "request.batch.text")
        check_directives(chain.request.batch.text, "script")
    except BadSpelling as error:
        raise BadDocument(f"request.batch.text: {error}") from None
    if problem := path_problem(chain.request.batch.directory):
        raise BadDocument(f"request.batch.directory: {problem}")
    check_settings(chain)
    for variable, _ in chain.request.batch.environment:
        if not variable or "=" in variable:
            raise BadDocument(f"request.batch.environment: {variable[:80]!r} is not a valid variable name")
    _check_options(chain.request.batch.options)


def check_settings(chain: Chain) -> None:
    """Check the settings besides the script. Raises ``BadDocument``."""
    for name, path in (("done.file", chain.done.file or "/"), ("tasks_state", chain.tasks_state or "/")):
        if problem := path_problem(path):
            raise BadDocument(f"{name}: {problem}")
    _check_predictor(chain.predictor)
    _check_warning(chain)
    _check_lead(chain)
    if problem := problem_of(chain.aim):
        raise BadDocument(f"aim.value: {problem}")


def _check_warning(chain: Chain) -> None:
    """Raise ``BadDocument`` if Slurm would warn each link of its time limit at its start."""
    warn, limit = chain.request.warn, chain.request.limit
    if warn is not None and warn.lead + WARNED_EARLY >= limit:
        raise BadDocument(
            f"request.warn.lead: {warn.lead} s is too long for a time limit of {limit} s: Slurm sends the signal "
            f"up to {WARNED_EARLY} s earlier, so it would warn each link at its start"
        )


def _check_lead(chain: Chain) -> None:
    """Raise ``BadDocument`` if each link would start with its predecessor, and so all at the same time."""
    if chain.one_writer:  # the link depends on the end of its predecessor
        return
    limit = chain.request.limit
    if chain.steering not in (Steering.AUTO, Steering.OFF) and chain.lead >= limit:
        raise BadDocument(f"lead: {chain.lead} s: expected less than the time limit of {limit} s")
    kind, _, parameter = chain.predictor.partition(":")
    if kind == "fixed" and _duration(parameter) >= limit:
        raise BadDocument(f"predictor: {chain.predictor}: expected less than the time limit of {limit} s")


def _duration(parameter: str) -> Seconds:
    try:
        return parse_human(parameter)
    except BadSpelling as error:
        raise BadDocument(f"predictor: {error}") from None


def _check_predictor(name: str) -> None:
    try:
        if name:
            check_name(name)
    except PluginNotFound as error:
        raise BadDocument(str(error)) from None


def _check_options(options: tuple[str, ...]) -> None:
    """Raise ``BadDocument`` for options unknown to ``sbatch``, or that cannot work in a chain."""
    try:
        given, rest = SBATCH.read([Word(option, "request.batch.options") for option in options])
    except BadSpelling as error:
        raise BadDocument(str(error)) from None
    if rest:
        raise BadDocument(f"request.batch.options: {rest[0].text!r} is not an option of sbatch")
    for option in given:
        if option.name in REFUSED or option.name in ABOUT_SBATCH:
            raise BadDocument(f"request.batch.options: {option.spelling} cannot work in a chain")
