"""Authentication: by the kernel on the Unix socket; over the network by a token, a Slurm JWT or a session."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mirage.api.access.caller import ANONYMOUS, SOCKET, Caller, Scope, lesser
from mirage.api.access.concurrency import active_request
from mirage.api.access.policy import AccessPolicy, UnixGroups, granted
from mirage.api.access.protocol import NAMELESS, peer_of
from mirage.api.access.rates import RateLimiter, RightOfWay, TooOften
from mirage.api.access.sessions import COOKIE, SECURE_COOKIE, Session, SessionCookies, Tickets, random_key
from mirage.api.access.tokens import PREFIX, NoStorage, TokenBook
from mirage.api.conventions.threads import run_in_thread
from mirage.domain.errors import MirageError, NotPermitted
from mirage.domain.texts import client_network, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from mirage.api.access.holders import Holders
    from mirage.api.access.protocol import Peer
    from mirage.api.access.tokens import SlurmTokens
    from mirage.api.access.watchedfile import ReloadedFile

_LOG = logging.getLogger(__name__)

COUNTED = "mirage.counted"
"""Key in a request's scope: the request counts against a rate."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_AGENTS = "/api/v1/agent/"
CHANGES_A_SECOND, CHANGES_AT_ONCE = 1.0, 300
"""Rate and burst of a user's changes; a day of them adds about 10 MB to the audit log."""
_ROOT = "root"
_SESSION = 12 * 3_600


class NotAuthenticated(MirageError):
    """The request has no credentials, or invalid ones."""


BYTES_OF_ONE = 128 << 10
"""Bytes of a body that cost about as much time as one request without a body."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A valid token: its session and expiry."""

    session: Session
    how: str
    """Authentication as the audit log names it."""
    until: float
    """Expiry, epoch seconds; 0: never."""


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Authenticates callers and gives them their scope."""

    admins: frozenset[str] = frozenset()
    """Administrators, whatever the policy says; root always is one."""
    policy: Callable[[], AccessPolicy] = AccessPolicy
    tokens: TokenBook = field(default_factory=lambda: TokenBook(NoStorage()))
    slurm: SlurmTokens | None = None
    """``None``: Slurm's tokens are not accepted."""
    sessions: SessionCookies = field(default_factory=lambda: SessionCookies(random_key(), _SESSION))
    tickets: Tickets = field(default_factory=Tickets)
    groups: UnixGroups = field(default_factory=UnixGroups)
    holders: Holders | None = None
    """``None``: the daemon serves one user only."""
    rates: RateLimiter = field(default_factory=lambda: RateLimiter(0, 1))
    changes: RateLimiter = field(default_factory=lambda: RateLimiter(0, 1))
    """Rate of changes, each an audit entry; not for administrators and agents."""
    way: RightOfWay = field(default_factory=lambda: RightOfWay(bool))
    failures: RateLimiter = field(default_factory=lambda: RateLimiter(0.2, 20))
    """Rate of failed authentications per address."""
    url: str = ""
    """URL of the web UI, as configured: a proxy may not pass on the host name of the request."""
    files: tuple[ReloadedFile[Any], ...] = ()
    """The policy file and the files of Slurm's keys."""

    @property
    def outdated(self) -> tuple[str, ...]:
        """Why older versions of its files are in force; reads no file. Any thread."""
        return tuple(file.outdated for file in self.files if file.outdated)

    def refresh(self) -> None:
        """Read its files again, even without requests. Any thread."""
        for file in self.files:
            file.refresh()

    async def admit(self, request: Request) -> Caller:
        """Return the caller. Raises ``NotAuthenticated``, ``NotPermitted`` (no scope) and ``TooOften``."""
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
        """Count a request that is rejected before authentication against the rate of its origin."""
        peer = peer_of(request)
        with suppress(TooOften):
            self.rates.take(f"{peer.share} " if peer else f"{ANONYMOUS} {_address(request)}")

    async def _found(self, request: Request, *, again: bool = False) -> Caller:
        """``again``: the request was admitted before; an invalid token is then no attempt to guess one."""
        peer = peer_of(request)
        if peer is None:
            return await self._from_afar(request, again=again)
        if self.policy().groups or not self._is_met(peer):  # the user database may query another machine
            return await run_in_thread(peer.share, self._peer, peer)
        return self._peer(peer)

    async def lasts(self, caller: Caller, request: Request) -> bool:
        """Return whether the request would still be admitted as the same caller; for streams.

        False where that cannot be checked. Counts against no rate.
        """
        try:
            return await self._found(request, again=True) == caller
        except MirageError:
            return False

    def charge(self, caller: Caller, request: Request, size: int) -> None:
        """Count a body of ``size`` bytes against its caller's rate."""
        self.rates.charge(_key(caller, request), size / BYTES_OF_ONE)

    def scope_of(self, name: str) -> Scope | None:
        """Return a user's scope; ``None``: no access."""
        if name == _ROOT or name in self.admins:
            return Scope.ADMIN
        return self.policy().scope_of(name, self.groups)

    async def attempt(self, request: Request, text: str) -> Proof:
        """Check a token. Raises ``NotAuthenticated``, always with the same text, and ``TooOften``."""
        try:
            return await run_in_thread(_address(request), self._prove, text)
        except NotAuthenticated:
            self.failed(request)
            raise

    def failed(self, request: Request) -> None:
        """Log and count a failed authentication. Raises ``TooOften`` for repeated attempts from one address.

        Valid tokens are still accepted: a token cannot be guessed, and many users may share a proxy's address.
        """
        address = _address(request)
        self.failures.take(address)
        _LOG.warning("event=auth_failed address=%s", address or "socket")

    def _prove(self, text: str) -> Proof:
        if text.startswith(PREFIX):
            token = self.tokens.find(text)
            if token is not None:
                session = Session(token.owner, Scope(token.scope), token.token_id)
                return Proof(session, f"token {token.token_id}", float(token.expires))
        elif self.slurm and (found := self.slurm.read(text)):
            return Proof(Session(found.user, Scope.ADMIN), "jwt", found.expires)
        raise NotAuthenticated("invalid token: it is wrong, expired, revoked or not for this daemon")

    def cookie(self, session: Session, until: float = 0) -> str:
        """Return the session cookie of an authenticated browser. Raises ``NotPermitted``."""
        self._caller(session, "session")
        return self.sessions.open(session, until)

    def _peer(self, peer: Peer) -> Caller:
        """Callers whose UID has neither a name nor a policy entry share one read-only user."""
        if self.holders is not None and not self._is_met(peer):
            self.holders.check(peer.name, peer.uid)
        scope = Scope.ADMIN if peer.is_root else self.scope_of(peer.name)
        if scope is None:
            raise NotPermitted(f"the access policy of this daemon gives {peer.name} no access")
        if peer.share == NAMELESS and peer.name not in {*self.admins, *self.policy().users}:
            return Caller(NAMELESS, lesser(scope, Scope.READ), peer.uid, SOCKET)
        return Caller(peer.name, scope, peer.uid, SOCKET)

    async def _from_afar(self, request: Request, *, again: bool) -> Caller:
        """Authenticate a network caller: first by a token, which a browser never sends by itself."""
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
        raise NotAuthenticated("no credentials: send a token in the header Authorization, or log in at /login")

    async def opened(self, request: Request) -> Session | None:
        """Return the session of the browser. May query the database."""
        cookie = self._cookie(request)
        return await run_in_thread(_address(request), self.session, cookie) if cookie else None

    def session(self, cookie: str) -> Session | None:
        """Return the session of a cookie; ``None`` once the token that opened it has ended."""
        found = self.sessions.read(cookie)
        if found and found.token_id and not self.tokens.lasts(found.token_id):
            return None
        return found

    def is_same_origin(self, request: Request) -> bool:
        """Whether the request is from a page of this server, or not from a browser."""
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None and site not in ("same-origin", "none"):
            return False
        return origin is None or self._is_own(request, origin)

    def is_secure(self, request: Request) -> bool:
        """Whether the browser uses TLS, to this server or to a proxy, which need not report it."""
        if request.url.scheme == "https":
            return True
        origin, host = request.headers.get("origin", ""), request.headers.get("host")
        by_page = origin.startswith("https://") and self._is_own(request, origin)
        return by_page or (self.url.startswith("https://") and host == _host_of(self.url))

    def _is_own(self, request: Request, origin: str) -> bool:
        host = _host_of(origin)
        return bool(host) and host in (request.headers.get("host"), _host_of(self.url))

    def cookie_name(self, request: Request) -> str:
        """Return the name of the session cookie for this request."""
        return SECURE_COOKIE if self.is_secure(request) else COOKIE

    def _cookie(self, request: Request) -> str:
        """Over TLS only the secure name counts: another host of the site could set the plain one."""
        found = request.cookies.get(SECURE_COOKIE)
        return found or ("" if self.is_secure(request) else request.cookies.get(COOKIE, ""))

    def _refuse_strange_pages(self, request: Request) -> None:
        """Deny changes from pages of other sites (CSRF): a browser sends the cookie for any page.

        Another site's page can send neither this header nor a false origin.
        """
        if request.method in _SAFE:
            return
        if not self.is_same_origin(request):
            raise NotPermitted(
                f"a browser session may change things only from a page of this server; {strange(request)}"
            )
        says = request.headers.get("sec-fetch-site") or request.headers.get("origin")
        if not says or "hx-request" not in request.headers:
            raise NotPermitted(
                "a browser session may change things only from a page of this server (header HX-Request)"
            )

    def _is_met(self, peer: Peer) -> bool:
        """Whether the name needs no look-up: it is stored for this UID, it is root's, or empty."""
        holders = self.holders
        return holders is None or peer.is_root or peer.share == NAMELESS or holders.knows(peer.name, peer.uid)

    def meet(self, name: str) -> None:
        """Check that a name still has its UID. Raises ``NotPermitted`` and ``StoreUnavailable``."""
        if self.holders is not None:
            self.holders.admit(name)

    def _caller(self, session: Session, how: str) -> Caller:
        self.meet(session.name)
        scope = granted(session.scope, self.scope_of(session.name))
        if scope is None:
            raise NotPermitted(f"the access policy of this daemon gives {session.name} no access")
        return Caller(session.name, scope, how=how, token_id=session.token_id, by_link=session.by_link)


def strange(request: Request) -> str:
    """Return why a request does not count as one from a page of this server."""
    site, origin = request.headers.get("sec-fetch-site", ""), request.headers.get("origin", "none")
    said = f"the browser sent the origin {printable(origin[:100])}" + (
        f" ({printable(site[:20])})" if site else ""
    )
    host = printable(request.headers.get("host", "")[:100])
    advice = "configure the proxy to pass on Host, or set api.url to the URL of the web UI"
    return f"{said}, but the request is for the host {host}; {advice}"


def _host_of(origin: str) -> str:
    """Return host and port, as in ``Host``; empty if invalid."""
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
    """Whether a request has credentials."""
    return bool(_token(request)) or COOKIE in request.cookies or SECURE_COOKIE in request.cookies


def _key(caller: Caller, request: Request) -> str:
    return f"{caller.name} {_address(request) if caller.name == ANONYMOUS else ''}"


def _address(request: Request) -> str:
    return client_network(request.client.host) if request.client else ""
