"""The documents that create and change a chain with their checks; job request and done condition as JSON."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mirage.api.conventions.documents import Described
from mirage.api.conventions.problems import BadDocument
from mirage.documentreading import faults_of, parse_json, reader_of
from mirage.domain.bounds import CHAIN, path_problem
from mirage.domain.chain import Chain, Steering
from mirage.domain.errors import BadSpelling, NotPermitted, PluginNotFound
from mirage.domain.job import WARNED_EARLY
from mirage.domain.script import script_digests
from mirage.domain.tags import owned_id
from mirage.predictors.members import check_name
from mirage.provisioner.objectives import problem_of
from mirage.slurm.batchscript import check_bounds
from mirage.slurm.duration import parse_human, spell
from mirage.slurm.jobrequest import ABOUT_SBATCH, REFUSED, check_directives
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.api.access.caller import Caller
    from mirage.domain.chain import ChainRecord, DoneCondition
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
    """Raise ``BadDocument`` for options unknown to ``sbatch``, or that cannot work in a chain.

    Each is one word with its value: an agent takes no other for an option.
    """
    for word in options:
        if not word.startswith("-") or not word.strip("-"):
            raise BadDocument(f"request.batch.options: {word!r} is not an option of sbatch with its value")
    try:
        given, rest = SBATCH.read([Word(option, "request.batch.options") for option in options])
    except BadSpelling as error:
        raise BadDocument(str(error)) from None
    if rest:
        raise BadDocument(f"request.batch.options: {rest[0].text!r} is not an option of sbatch")
    for option in given:
        if option.name in REFUSED or option.name in ABOUT_SBATCH:
            raise BadDocument(f"request.batch.options: {option.spelling} cannot work in a chain")


class RequestDocument(Described):
    """Job request of each link; script and arguments are shown as digests only."""

    job_name: str
    """Name of the jobs."""
    partition: str
    """Partition; empty: the cluster's default."""
    account: str
    """Account; empty: the owner's default."""
    qos: str
    """QOS; empty: the default."""
    nodes: int
    """Number of nodes."""
    limit: int
    """Time limit of each link, in seconds."""
    gres_per_node: dict[str, int]
    """Generic resources by name, such as ``gpu:a100``."""
    options: list[str]
    """Further sbatch options, as given."""
    directory: str
    """Working directory."""
    script: str
    """SHA-256 of the script; empty: no script."""
    arguments: str
    """SHA-256 over the script's arguments, each preceded by its length in bytes and a colon; empty: unknown."""


class DoneDocument(Described):
    """Conditions that end a chain as done; the first to hold counts."""

    exit_code: int | None
    """Exit code of a link that ends the chain; ``null``: none."""
    file: str
    """File whose existence ends the chain; empty: none."""
    links: int
    """Number of links after which the chain is done; 0: no bound."""
    total_time: int
    """Total run time of all links, in seconds, after which the chain is done; 0: no bound."""
    words: str
    """The conditions in words."""


def done_document(done: DoneCondition) -> DoneDocument:
    """Return the done condition as fields and in words."""
    words = [
        f"{done.links} {'link has' if done.links == 1 else 'links have'} run" if done.links else "",
        f"links have run for {spell(done.total_time)} in all" if done.total_time else "",
        "" if done.exit_code is None else f"a link ends with exit code {done.exit_code}",
        f"{done.file} exists" if done.file else "",
    ]
    said = ", or ".join(filter(None, words)) or "only when cancelled"
    return DoneDocument(
        exit_code=done.exit_code, file=done.file, links=done.links, total_time=done.total_time, words=said
    )


def request_document(record: ChainRecord) -> RequestDocument:
    """Return the request without script and arguments, which are shown as digests."""
    request = record.chain.request
    batch = request.batch
    digests = script_digests(batch) if batch else None
    return RequestDocument(
        job_name=request.name,
        partition=request.partition,
        account=request.account,
        qos=request.qos,
        nodes=request.nodes,
        limit=request.limit,
        gres_per_node=dict(request.gres_per_node),
        options=list(batch.options) if batch else [],
        directory=batch.directory if batch else "",
        script=digests.text if digests else "",
        arguments=digests.arguments if digests else "",
    )


_SETTINGS: Mapping[str, Any] = {
    "name": True,
    "done": True,
    "failures": True,
    "handover": {"max_overlap": True, "signal": {"lead": True}},
    "steering": True,
    "lead": True,
    "predictor": True,
    "aim": True,
    "request": {"limit": True},
}
"""Fields that may be changed; of some only parts."""


def read_changes(body: bytes, chain: Chain) -> Chain:
    """Return ``chain`` with the fields of ``body`` (JSON) changed.

    Raises ``BadDocument`` that names the first field that is invalid or cannot be changed.
    """
    try:
        document = parse_json(body)
    except ValueError as error:
        raise BadDocument(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        raise BadDocument("expected an object with the fields to change")
    _check_fields(document, _SETTINGS, "")
    done = document.get("done")
    if isinstance(done, dict) and "file" in done and bool(done["file"]) != bool(chain.done.file):
        document = document | {"done": {"exit_code": None if done["file"] else 0} | done}  # as in a new chain
    batch = chain.request.batch
    known = asdict(replace(chain, request=replace(chain.request, batch=None)))
    after = validated(merged(known, document))
    after = replace(after, request=replace(after.request, batch=batch))
    check_settings(after)
    return after


def _check_fields(document: Mapping[str, Any], known: Mapping[str, Any], place: str) -> None:
    for name, value in document.items():
        if name not in known:
            names = ", ".join(f"{place}{field}" for field in known)
            raise BadDocument(f"{place}{name}: cannot be changed, only {names}; for others submit the chain again")
        if known[name] is not True:
            if not isinstance(value, dict):
                raise BadDocument(f"{place}{name}: expected an object")
            _check_fields(value, known[name], f"{place}{name}.")
