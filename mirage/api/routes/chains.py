"""``/api/v1/chains``: create, adopt, view and control chains. Users access only their own.

Adoption: a job that its owner has submitted becomes link 1 of a new chain.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request, Response

from mirage.api.access.auditing import note
from mirage.api.access.concurrency import active_request
from mirage.api.access.dependencies import Operator, Reader, read_body
from mirage.api.access.visibility import own_chain
from mirage.api.conventions.bodies import LARGEST
from mirage.api.conventions.caching import KeptBodies
from mirage.api.conventions.documents import UNCHANGED, ChainName, Word, tagged
from mirage.api.conventions.problems import BadDocument
from mirage.api.conventions.threads import query, run_in_thread
from mirage.api.routes.chaindefinition import read_chain, read_changes
from mirage.api.routes.chaindocuments import (
    AnswerDocument,
    ChainDocument,
    ChainList,
    ExplanationDocument,
    chain_document,
    chain_list,
    entry_document,
)
from mirage.api.routes.command_calls import CommandCaller
from mirage.api.routes.pages import Cursor, Limit, Wanted, next_link, page_of
from mirage.control.guard import Asker
from mirage.domain.command import AddChain, AdoptedJob, CancelChain, PauseChain, ResumeChain, UpdateChain
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownChain, UnknownJob
from mirage.domain.job import ABSENT, HIGHEST_JOB_ID, job_id_of
from mirage.domain.link import is_nameless
from mirage.domain.texts import one_line
from mirage.provisioner.gates import first_files

if TYPE_CHECKING:
    from mirage.api.access.caller import Caller
    from mirage.api.conventions.caching import ReadyAnswers
    from mirage.api.port import ApiService
    from mirage.backends.links_only import JobIdentity
    from mirage.domain.chain import Chain

AdoptedId = Annotated[
    int | None,
    Query(
        ge=1,
        le=HIGHEST_JOB_ID,
        description="ID of a pending or running job of the owner that becomes link 1. Its comment must be the tag "
        "of that link, `mirage:CHAIN_ID:1`. Without it link 1 is submitted.",
    ),
]
_LONGEST_REASON = 200
AdoptedBecause = Annotated[
    str,
    Query(
        max_length=_LONGEST_REASON,
        description="Why that job is adopted without a command of its owner.",
    ),
]


def check_adopts(job_id: int | None, service: ApiService) -> None:
    """Raise ``BadDocument`` if this daemon adopts no jobs."""
    if job_id and service.releases_links:
        raise BadDocument(
            "adopt: this daemon only releases held links that users submit in advance (acting.mode release); "
            "it cannot adopt a job"
        )
    if job_id and service.identify is None:
        raise BadDocument("adopt: the cluster of this daemon is simulated and has no other jobs")


def adopted_job(job_id: int, why: str, chain: Chain, service: ApiService) -> AdoptedJob | None:
    """Return the job that becomes link 1 of ``chain``, as Slurm reports it. Takes seconds.

    Only the owner can set the comment. The link's tag there shows that the owner means this job, and identifies
    the link later. Raises ``BadDocument`` for a job that cannot be that link, and ``ClusterUnavailable``.
    """
    if service.identify is None:
        return None
    try:
        found = service.identify(job_id_of(job_id), chain.owner)
    except UnknownJob:
        found = None
    if found is not None and is_nameless(found.user):
        raise ClusterUnavailable(f"adopt: Slurm does not report the user of job {job_id}; try again")
    if found is None or found.user != chain.owner:  # the same text for both: jobs of others may be hidden
        raise BadDocument(f"adopt: Slurm reports no job {job_id} of {chain.owner}")
    if problem := _problem(found, chain.tag(1)):
        raise BadDocument(f"adopt: job {job_id} {problem}")
    return AdoptedJob(job_id_of(job_id), found.submit, one_line(why, _LONGEST_REASON))


def _problem(job: JobIdentity, tag: str) -> str:
    """Return why the job cannot be the link; empty if it can."""
    if not job.alone:
        return "belongs to a job array or a heterogeneous job; a link is one job"
    if job.state is None or job.state.finished:
        return "has ended" if job.state is not None else "is in a state that Mirage does not know"
    if job.submit == ABSENT:
        return "has no submit time"
    if job.tag != tag:
        return f"has another comment than the tag of link 1; set it first: scontrol update JobId=... Comment={tag}"
    return ""


HeldLinks = Annotated[
    int,
    Query(
        ge=0,
        le=1_000_000,
        description="Number of held links submitted in advance, for a daemon that only releases them.",
    ),
]
_COMMANDS: dict[str, type[PauseChain] | type[ResumeChain] | type[CancelChain]] = {
    "pause": PauseChain,
    "resume": ResumeChain,
    "cancel": CancelChain,
}

_LARGEST_CHANGES = 65_536

_ABOUT = {
    True: ("done.file", "--done-exit-code, --links or --total-time"),
    False: ("handover", "--handover on-start or --max-overlap"),
}
"""For the done file and the handover file: the field, and the options that need no file."""


def chain_routes(service: ApiService, ready: ReadyAnswers) -> APIRouter:
    """Return the routes about chains."""
    routes = APIRouter(prefix="/chains", tags=["chains"])
    _add_lists(routes, service, ready)
    _add_commands(routes, service)
    _add_changes(routes, service)
    _add_details(routes, service)
    return routes


def _add_lists(routes: APIRouter, service: ApiService, ready: ReadyAnswers) -> None:
    kept = KeptBodies()

    @routes.get("", response_model=ChainList, responses=UNCHANGED)
    async def list_chains(
        caller: Reader,
        request: Request,
        wanted: Wanted,
        limit: Limit = 100,
        cursor: Cursor = None,
    ) -> Response:
        """List the caller's chains in order of creation; ``all``: those of all users, for administrators."""
        if wanted.every and not caller.is_admin:
            raise NotPermitted(
                f"{caller.name} is not an administrator of this daemon and may list only own chains"
            )
        status = service.status()
        owner = None if wanted.every else caller.name

        def make() -> tuple[bytes, str | None]:
            page = page_of(wanted.of(status.chains, owner), limit, cursor)
            return chain_list(page, status, owner).model_dump_json().encode(), page.further

        found = await kept.get(status, caller.name, (owner, wanted, limit, cursor), make)
        headers = {"Link": next_link(request, found.further)} if found.further else {}
        return ready.keep(request, caller, status, tagged(request, found.body, found.tag, headers))


def _add_commands(routes: APIRouter, service: ApiService) -> None:
    petitioner = CommandCaller(service)
    parsing = asyncio.Lock()

    async def described(request: Request, caller: Caller) -> Chain:
        """One at a time: parsing a document takes many times its size in memory."""
        body = await read_body(request, LARGEST)
        async with service.gate.way.alone(caller.name), parsing:
            return await run_in_thread(caller.name, read_chain, body, caller, service.chain_defaults)

    @routes.post("", status_code=201)
    async def create_chain(
        caller: Operator,
        request: Request,
        held_links: HeldLinks = 0,
        adopt: AdoptedId = None,
        adopt_because: AdoptedBecause = "",
    ) -> AnswerDocument:
        """Create a chain; responds once it is stored. ``adopt``: an existing job becomes its link 1."""
        check_adopts(adopt, service)
        _check_held_links(held_links, released=service.releases_links)
        if not caller.is_root:  # root may name another owner
            service.check_room(caller.name)
        with active_request().leavable():
            chain = await described(request, caller)
            if chain.predictor and service.inquiries is not None:  # built here, not by the loop
                await run_in_thread(caller.name, service.inquiries.named, chain.predictor, Asker(chain.owner))
            first = f" from job {adopt}" if adopt else ""
            note(request.scope, f"create chain for {chain.owner}{first}", chain.chain_id)
            await run_in_thread(caller.name, _check_request, chain, service)
            await run_in_thread(caller.name, _check_files, chain, service)
            found = partial(adopted_job, why=adopt_because, chain=chain, service=service)
            job = await run_in_thread(caller.name, found, adopt) if adopt else None
        ending = _still_ending(chain, service)
        answer = await petitioner.ask(AddChain(chain, caller.name, job), chain.chain_id)
        if ending:
            answer = answer.model_copy(update={"warning": ending})
        return _warned(answer, chain.owner, "Mirage submits no link until it runs", service)

    @routes.post("/{chain_id}/{command}")
    async def command_chain(
        caller: Operator, request: Request, chain_id: ChainName, command: Word
    ) -> AnswerDocument:
        """Pause, resume or cancel a chain; responds once the command is executed and stored."""
        if command not in _COMMANDS:
            raise UnknownChain(f"unknown command {command[:40]!r} (choose from {', '.join(_COMMANDS)})")
        record = own_chain(chain_id, caller, service)
        note(request.scope, command, record.chain.chain_id)
        answer = await petitioner.ask(
            _COMMANDS[command](record.chain.chain_id, caller.name), record.chain.chain_id
        )
        if _COMMANDS[command] is not CancelChain or not record.live:
            return answer
        return _warned(answer, record.chain.owner, "Mirage does not cancel its jobs until it runs", service)


def _warned(answer: AnswerDocument, owner: str, until: str, service: ApiService) -> AnswerDocument:
    """Add a warning if no agent of the owner is connected."""
    if service.desk is None or service.desk.attached(owner):
        return answer
    missing = f"{owner} has no `mirage agent` on this machine: {until}"
    return answer.model_copy(update={"warning": "; ".join(filter(None, (answer.warning, missing)))})


def _still_ending(chain: Chain, service: ApiService) -> str:
    """A warning if a job of an earlier chain of this name still runs: both may write the same files."""
    for record in service.status().chains:
        if record.over and (record.chain.owner, record.chain.name) == (chain.owner, chain.name):
            for link in record.live:
                if link.running:
                    ended = f"job {link.job_id} of chain {record.chain.chain_id}, which is over, still runs"
                    return f"{ended}: two jobs may write the same files (wait with mirage chain wait before)"
    return ""


def _add_changes(routes: APIRouter, service: ApiService) -> None:
    petitioner = CommandCaller(service)

    @routes.patch("/{chain_id}")
    async def update_chain(caller: Operator, request: Request, chain_id: ChainName) -> AnswerDocument:
        """Change settings for future links; responds once they are stored.

        Fields, as in the document that creates a chain: `name`, `done`, `failures`, `steering`, `lead`,
        `predictor`, `aim`, `request.limit`, `handover.max_overlap` and `handover.signal.lead`. Missing fields stay
        unchanged.
        """
        before = own_chain(chain_id, caller, service).chain
        with active_request().leavable():
            body = await read_body(request, _LARGEST_CHANGES)
            after = await run_in_thread(caller.name, read_changes, body, before)
            if after.request.limit != before.request.limit and service.releases_links:
                raise BadDocument("request.limit: cannot be changed, because the links were submitted in advance")
            if after.predictor != before.predictor and after.predictor and service.inquiries is not None:
                await run_in_thread(caller.name, service.inquiries.named, after.predictor, Asker(after.owner))
            note(request.scope, f"update chain of {after.owner}", after.chain_id)
            if after.done.file != before.done.file:
                await run_in_thread(caller.name, _check_files, after, service)
        return await petitioner.ask(UpdateChain(before, after, caller.name), after.chain_id)


def _check_held_links(number: int, *, released: bool) -> None:
    """Raise ``BadDocument`` if held links are required but missing, or the reverse."""
    if released and not number:
        raise BadDocument(
            "held_links: this daemon only releases held links that users submit in advance (acting.mode release); "
            "add --held-links N to `mirage submit`"
        )
    if number and not released:
        raise BadDocument("held_links: this daemon submits links itself; omit --held-links")


def _check_request(chain: Chain, service: ApiService) -> None:
    """Raise ``BadDocument`` for a request that Slurm would always reject: the chain could never run."""
    try:
        service.check_request(replace(chain.request, user=chain.owner))
    except SubmissionRejected as rejection:
        raise BadDocument(f"request: Slurm would reject the links: {rejection}") from None


def _check_files(chain: Chain, service: ApiService) -> None:
    """Raise ``BadDocument`` for a done or handover file that the daemon could never see."""
    files = first_files(chain)
    for file, state in zip(files, service.check_files(files), strict=True):
        if state.denied:
            key, instead = _ABOUT[file.path == chain.done.file]
            raise BadDocument(
                f"{key}: {state.reason}, so the daemon cannot see {file.path}; "
                f"allow that account to search the directory, use another directory, or use {instead}"
            )


def _add_details(routes: APIRouter, service: ApiService) -> None:
    @routes.get("/{chain_id}", response_model=ChainDocument, responses=UNCHANGED)
    async def show_chain(caller: Reader, request: Request, chain_id: ChainName) -> Response:
        """Return one chain with its links."""
        document = chain_document(own_chain(chain_id, caller, service), service.status())
        return tagged(request, document.model_dump_json().encode())

    @routes.get("/{chain_id}/explain")
    async def explain_chain(
        caller: Reader, chain_id: ChainName, limit: Annotated[int, Query(ge=1, le=1000)] = 20
    ) -> ExplanationDocument:
        """Explain the last decisions for a chain, newest first."""
        record = own_chain(chain_id, caller, service)
        entries = await query(caller.name, service.entries, record.chain.chain_id, limit)
        return ExplanationDocument(
            id=record.chain.chain_id,
            sentence=service.status().explained.get(record.chain.chain_id, ""),
            entries=[entry_document(entry) for entry in entries],
        )
