"""Who comes in: by the kernel's word on the socket; over the network by a token, Slurm's own, or a session."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirage.api.access.caller import ANONYMOUS, SOCKET, Caller
from mirage.api.access.concurrency import active_request
from mirage.api.access.peer import NAMELESS, peer_of
from mirage.api.access.policy import Policy, UnixGroups, granted
from mirage.api.access.rates import Rates, TooOften
from mirage.api.access.rightofway import RightOfWay
from mirage.api.access.scope import Scope, lesser
from mirage.api.access.sessions import COOKIE, SECURE_COOKIE, Session, Sessions, Tickets, random_key
from mirage.api.access.tokens import PREFIX, NoStorage, TokenBook
from mirage.api.conventions.threads import run_in_thread
from mirage.domain.addresses import client_network
from mirage.domain.errors import MirageError, NotPermitted
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from mirage.api.access.holders import Holders
    from mirage.api.access.peer import Peer
    from mirage.api.access.slurmtokens import SlurmTokens
    from mirage.api.access.watchedfile import WatchedFile

_LOG = logging.getLogger(__name__)

COUNTED = "mirage.counted"
"""Where a request's scope says that it counts against a rate."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_AGENTS = "/api/v1/agent/"
CHANGES_A_SECOND, CHANGES_AT_ONCE = 1.0, 300
"""Requests of one user that change something; a day of them takes some ten megabytes of the audit."""
_ROOT = "root"
_SESSION = 12 * 3_600


class NotAuthenticated(MirageError):
    """Nobody knows who asks, or what they brought along proves nothing."""


BYTES_OF_ONE = 128 << 10
"""Bytes of a body that take about as long to read as one request without a body."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a token proves."""

    session: Session
    how: str
    """How to call it in the audit."""
    until: float
    """0: for ever."""


@dataclass(frozen=True, slots=True)
class Gate:
    """All that decides who somebody is and what they may do."""

    admins: frozenset[str] = frozenset()
    """Users who may do everything, whatever the policy says; root may anyway."""
    policy: Callable[[], Policy] = Policy
    tokens: TokenBook = field(default_factory=lambda: TokenBook(NoStorage()))
    slurm: SlurmTokens | None = None
    """``None``: Slurm's tokens are not taken."""
    sessions: Sessions = field(default_factory=lambda: Sessions(random_key(), _SESSION))
    tickets: Tickets = field(default_factory=Tickets)
    groups: UnixGroups = field(default_factory=UnixGroups)
    holders: Holders | None = None
    """``None``: the daemon is one user's own, and no other user's name counts."""
    rates: Rates = field(default_factory=lambda: Rates(0, 1))
    changes: Rates = field(default_factory=lambda: Rates(0, 1))
    """Of requests that change something, each a line of the audit; not for administrators and agents."""
    way: RightOfWay = field(default_factory=lambda: RightOfWay(bool))
    failures: Rates = field(default_factory=lambda: Rates(0.2, 20))
    """Attempts from one address that proved nothing."""
    url: str = ""
    """Where browsers find the page, as configured; a proxy in front need not pass on the name they asked for."""
    files: tuple[WatchedFile[Any], ...] = ()
    """The policy's, and those of Slurm's keys."""

    @property
    def outdated(self) -> tuple[str, ...]:
        """Why older versions of its files are in force; reads none of them. Any thread."""
        return tuple(file.outdated for file in self.files if file.outdated)

    def refresh(self) -> None:
        """Read its files again, also while no user asks. Any thread."""
        for file in self.files:
            file.refresh()

    async def admit(self, request: Request) -> Caller:
        """Who asks. Raises ``NotAuthenticated``, ``NotPermitted`` (no scope at all) and ``TooOften``."""
        request.scope[COUNTED] = True
        try:
            caller = await self._found(request)
        except (NotAuthenticated, NotPermitted):
            peer = peer_of(request)
            self.rates.take(f"{ANONYMOUS} {_address(request) if peer is None else peer.share}")
            raise
        if caller.name != ANONYMOUS:
            active_request().identify(caller.name)
        key = _key(caller, request)
        self.rates.take(key)
        if request.method not in _SAFE and not caller.is_admin and not request.url.path.startswith(_AGENTS):
            self.changes.take(key)
        await self.way.give(key)
        return caller

    def count_refused(self, request: Request) -> None:
        """Count a request against its caller's rate that is rejected before it is known who asks."""
        peer = peer_of(request)
        with suppress(TooOften):
            self.rates.take(f"{peer.share} " if peer else f"{ANONYMOUS} {_address(request)}")

    async def _found(self, request: Request, *, again: bool = False) -> Caller:
        """``again``: the request was admitted before, so an invalid token counts as no attempt to guess one."""
        peer = peer_of(request)
        if peer is None:
            return await self._from_afar(request, again=again)
        if self.policy().groups or not self._is_met(peer):  # the user database may have to ask another machine
            return await run_in_thread(peer.share, self._peer, peer)
        return self._peer(peer)

    async def lasts(self, caller: Caller, request: Request) -> bool:
        """Whether the same request would be admitted as the same caller again: for answers that continue.

        Where that cannot be found out it does not last. Counts against no rate.
        """
        try:
            return await self._found(request, again=True) == caller
        except MirageError:
            return False

    def charge(self, caller: Caller, request: Request, size: int) -> None:
        """Count a body of so many bytes against its caller's rate."""
        self.rates.charge(_key(caller, request), size / BYTES_OF_ONE)

    def scope_of(self, name: str) -> Scope | None:
        """What a user may do; ``None``: nothing."""
        if name == _ROOT or name in self.admins:
            return Scope.ADMIN
        return self.policy().scope_of(name, self.groups)

    async def attempt(self, request: Request, text: str) -> Proof:
        """Whose token this is. Raises ``NotAuthenticated``, always in the same words, and ``TooOften``."""
        try:
            return await run_in_thread(_address(request), self._prove, text)
        except NotAuthenticated:
            self.failed(request)
            raise

    def failed(self, request: Request) -> None:
        """Somebody at this address has proved nothing. Raises ``TooOften`` for those who try repeatedly.

        Good tokens continue counting: nobody guesses one, and many users may share a proxy's address.
        """
        address = _address(request)
        self.failures.take(address)
        _LOG.warning("somebody at %s has proved nothing", address or "the socket")

    def _prove(self, text: str) -> Proof:
        if text.startswith(PREFIX):
            token = self.tokens.find(text)
            if token is not None:
                session = Session(token.owner, Scope(token.scope), token.token_id)
                return Proof(session, f"token {token.token_id}", float(token.expires))
        elif self.slurm and (found := self.slurm.read(text)):
            return Proof(Session(found.user, Scope.ADMIN), "jwt", found.expires)
        raise NotAuthenticated("the token proves nothing: it is wrong, expired, revoked or not for here")

    def cookie(self, session: Session, until: float = 0) -> str:
        """What a browser that proved to be this user brings along from now on. Raises ``NotPermitted``."""
        self._caller(session, "session")
        return self.sessions.open(session, until)

    def _peer(self, peer: Peer) -> Caller:
        """A UID without a name that the policy does not name looks, as one user with all others."""
        if self.holders is not None and not self._is_met(peer):
            self.holders.check(peer.name, peer.uid)
        scope = Scope.ADMIN if peer.is_root else self.scope_of(peer.name)
        if scope is None:
            raise NotPermitted(f"{peer.name} may do nothing here, by the daemon's policy")
        if peer.share == NAMELESS and peer.name not in {*self.admins, *self.policy().users}:
            return Caller(NAMELESS, lesser(scope, Scope.READ), peer.uid, SOCKET)
        return Caller(peer.name, scope, peer.uid, SOCKET)

    async def _from_afar(self, request: Request, *, again: bool) -> Caller:
        """By what the caller brought along; first that counts which a browser never sends by itself."""
        if text := _token(request):
            if again:
                proof = await run_in_thread(_address(request), self._prove, text)
            else:
                proof = await self.attempt(request, text)
            return await run_in_thread(proof.session.name, self._caller, proof.session, proof.how)
        if session := await self.opened(request):
            self._refuse_strange_pages(request)
            return await run_in_thread(session.name, self._caller, session, "session")
        if self.policy().anonymous and request.method in _SAFE:
            return Caller(ANONYMOUS, Scope.READ, how="nothing")
        raise NotAuthenticated("say who you are: a token in the header Authorization, or log in at /login")

    async def opened(self, request: Request) -> Session | None:
        """The session of the browser that asks; it may take a query of the database to know."""
        cookie = self._cookie(request)
        return await run_in_thread(_address(request), self.session, cookie) if cookie else None

    def session(self, cookie: str) -> Session | None:
        """What the cookie stands for, unless the token that opened it counts no more."""
        found = self.sessions.read(cookie)
        if found and found.token_id and not self.tokens.lasts(found.token_id):
            return None
        return found

    def is_same_origin(self, request: Request) -> bool:
        """Whether a browser says that a page of this server made the request, or no browser speaks."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None and site not in ("same-origin", "none"):
            return False
        return origin is None or self._is_own(request, origin)

    def is_secure(self, request: Request) -> bool:
        """Whether the browser speaks TLS, to this server or to a proxy, which need not say so."""
        if request.url.scheme == "https":
            return True
        origin, host = request.headers.get("origin", ""), request.headers.get("host")
        by_page = origin.startswith("https://") and self._is_own(request, origin)
        return by_page or (self.url.startswith("https://") and host == _host_of(self.url))

    def _is_own(self, request: Request, origin: str) -> bool:
        host = _host_of(origin)
        return bool(host) and host in (request.headers.get("host"), _host_of(self.url))

    def cookie_name(self, request: Request) -> str:
        """Of the session that the request opens."""
        return SECURE_COOKIE if self.is_secure(request) else COOKIE

    def _cookie(self, request: Request) -> str:
        """Of the session. Over TLS another host of the site could set the plain one."""
        found = request.cookies.get(SECURE_COOKIE)
        return found or ("" if self.is_secure(request) else request.cookies.get(COOKIE, ""))

    def _refuse_strange_pages(self, request: Request) -> None:
        """A cookie comes by itself, whatever page makes the browser ask: a change takes more.

        Another site's page can send neither this header nor a false origin.
        """
        if request.method in _SAFE:
            return
        if not self.is_same_origin(request):
            raise NotPermitted(
                f"a change by a browser's session has to come from a page of this server; {strange(request)}"
            )
        says = request.headers.get("sec-fetch-site") or request.headers.get("origin")
        if not says or "hx-request" not in request.headers:
            raise NotPermitted(
                "a change by a browser's session has to come from a page of this server (HX-Request)"
            )

    def _is_met(self, peer: Peer) -> bool:
        """Whether the name needs no look-up: it is kept as this user's, or it is root's, or none."""
        holders = self.holders
        return holders is None or peer.is_root or peer.share == NAMELESS or holders.knows(peer.name, peer.uid)

    def meet(self, name: str) -> None:
        """Look whether a user's name still is its holder's. Raises ``NotPermitted`` and ``StoreUnavailable``."""
        if self.holders is not None:
            self.holders.admit(name)

    def _caller(self, session: Session, how: str) -> Caller:
        self.meet(session.name)
        scope = granted(session.scope, self.scope_of(session.name))
        if scope is None:
            raise NotPermitted(f"{session.name} may do nothing here, by the daemon's policy")
        return Caller(session.name, scope, how=how, token_id=session.token_id, by_link=session.by_link)


def strange(request: Request) -> str:
    """Why a request does not count as one of this server's pages, for people."""
    site, origin = request.headers.get("sec-fetch-site", ""), request.headers.get("origin", "none")
    said = f"the browser names the origin {printable(origin[:100])}" + (
        f" ({printable(site[:20])})" if site else ""
    )
    host = printable(request.headers.get("host", "")[:100])
    advice = "a proxy has to pass on Host, or api.url name the address of the page"
    return f"{said}, the request came for {host}: {advice}"


def _host_of(origin: str) -> str:
    """With its port, as ``Host`` has it; empty where it is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _token(request: Request) -> str:
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return text.strip()
    return request.headers.get("x-slurm-user-token", "").strip()


def brings_proof(request: Request) -> bool:
    """Whether a request has something with it that may prove who asks."""
    return bool(_token(request)) or COOKIE in request.cookies or SECURE_COOKIE in request.cookies


def _key(caller: Caller, request: Request) -> str:
    return f"{caller.name} {_address(request) if caller.name == ANONYMOUS else ''}"


def _address(request: Request) -> str:
    return client_network(request.client.host) if request.client else ""
