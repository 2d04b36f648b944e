"""A server on a loopback port over a store, and what a caller there can do."""

from __future__ import annotations

import http.client
import json
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import jwt
import pytest
from api_world import START, HandLoop

from mirage.api.access.authentication import Authenticator
from mirage.api.access.caller import Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.tokens import Claims, SlurmTokens, TokenBook
from mirage.api.feed import Feed
from mirage.api.listening import Listening
from mirage.api.port import ApiService
from mirage.api.server import ApiServer
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.store.access import AuditEntry
    from mirage.store.opening import Store

KEY = b"k" * 32
CHAINS, TOKENS = "/api/v1/chains", "/api/v1/tokens"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


@dataclass
class Network:
    """A server on a loopback port, and what a caller there can do."""

    server: ApiServer
    gate: Authenticator
    loop: HandLoop
    policies: list[AccessPolicy]
    store: Store

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        host = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(host.hostname or "", host.port, timeout=60)
        text = body if isinstance(body, str | None) else json.dumps(body)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, text, {"Content-Type": "application/json"} | sent)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        kind = response.headers.get("content-type", "")
        answered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, answered, json.loads(content) if "json" in kind else content.decode())

    def audited(self, number: int) -> list[AuditEntry]:
        """The audit, oldest first, once it has ``number`` lines: some come after the answer."""
        end = time.monotonic() + 60
        while len(lines := self.store.audit.read(limit=1_000)) < number and time.monotonic() < end:
            time.sleep(0.01)
        return [line.entry for line in reversed(lines)]

    def token(self, owner: str = "ada", scope: Scope = Scope.OPERATE, lifetime: int = 0) -> str:
        return self.gate.tokens.create(owner, "test", scope, lifetime)[0]

    def with_token(self, method: str, path: str, token: str, body: Any = None) -> Answer:
        return self.call(method, path, body, Authorization=f"Bearer {token}")

    def cookie(self, token: str) -> str:
        answer = self.call("POST", "/login", urlencode({"token": token}), Accept="text/html")
        assert answer.status == 303
        return answer.headers["set-cookie"].split(";")[0]

    def in_browser(self, method: str, path: str, user: str, body: Any = None, **headers: str) -> Answer:
        """A page's request for the user whose session a login link has opened."""
        scope = Scope.ADMIN if user in self.gate.admins else Scope.OPERATE
        entered = self.call("GET", self.server.login_link(user, scope).removeprefix(self.server.url))
        cookie = entered.headers["set-cookie"].split(";")[0]
        return self.call(method, path, body, Cookie=cookie, HX_Request="1", Origin=self.server.url, **headers)


def slurm_token(name: str = "ada", **claims: Any) -> str:
    return jwt.encode({"sun": name, "exp": 4_000_000_000, "iat": 1_700_000_000} | claims, KEY, "HS256")


@pytest.fixture
def network(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Network]:
    """Its parameter, where a test gives one: the proxies that are trusted, or the address of the page."""
    given = getattr(request, "param", ())
    folder = Path(tempfile.mkdtemp(prefix="mirage-net-"))
    loop, store, policies = HandLoop(), open_store(f"sqlite:///{folder}/m.db"), [AccessPolicy()]
    (tmp_path / "jwt.key").write_bytes(KEY)
    gate = Authenticator(
        frozenset({"chief"}),
        lambda: policies[-1],
        TokenBook(store.tokens),
        SlurmTokens(tmp_path / "jwt.key", None, Claims()),
        url=given if isinstance(given, str) else "",
    )
    service = ApiService(
        lambda: loop.status,
        loop.commands.put,
        loop.entries,
        gate=gate,
        audit=store.audit,
        answers=store.answers,
        feed=Feed(lambda chain: ""),
        journal=store.journal,
        now=lambda: START,
    )
    proxies = () if isinstance(given, str) else given
    server = ApiServer(service, folder / "api.sock", Listening.of("127.0.0.1:0", proxies=proxies))
    thread = threading.Thread(target=loop.run)
    thread.start()
    server.start()
    yield Network(server, gate, loop, policies, store)
    server.stop()
    loop.ended.set()
    thread.join()
    store.close()
    shutil.rmtree(folder)
