"""What clients can send to the API before authentication, and what authenticated ones send."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import jwt
from api_world import definition
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from fuzzing import Beside, Target
from jwt.algorithms import RSAAlgorithm

from mirage.api.access.caller import Caller, Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.sessions import Session, SessionCookies
from mirage.api.access.tokens import Claims, SlurmTokens
from mirage.api.access.watchedfile import ReloadedFile
from mirage.api.conventions.problems import BadDocument
from mirage.api.listening import Listening
from mirage.api.routes.chaindefinition import read_chain, read_changes
from mirage.api.routes.pages import read_cursor, read_number, spell_cursor
from mirage.domain.errors import MirageError

ADA = Caller("ada", Scope.OPERATE)
SECRET = bytes(range(32))
NOW = 1_900_000_000
CLAIMS = {"exp": NOW, "iat": 1_700_000_000, "sun": "ada", "aud": "mirage-session", "sub": "ada", "jti": "x"}
SESSIONS = SessionCookies(SECRET, 3_600, lambda: NOW - 60)


def key_file(content: bytes) -> Path:
    """Removed with the process."""
    FOLDERS.append(tempfile.TemporaryDirectory())
    path = Path(FOLDERS[-1].name, "key")
    path.write_bytes(content)
    return path


FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
PRIVATE = generate_private_key(65_537, 2_048)
JWKS = {"keys": [{**json.loads(RSAAlgorithm.to_jwk(PRIVATE.public_key())), "kid": "one", "use": "sig"}]}
TOKENS = SlurmTokens(key_file(SECRET), key_file(json.dumps(JWKS).encode()), Claims())
OF_SLURM = (
    jwt.encode(CLAIMS, SECRET, "HS256"),
    jwt.encode(CLAIMS, PRIVATE, "RS256", headers={"kid": "one"}),
    jwt.encode(CLAIMS, None, "none"),
)


def _piece(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def unsigned(head: str) -> None:
    """A client without the key gets no further than this, whatever headers it sends."""
    token = f"{_piece(head)}.{_piece(json.dumps(CLAIMS))}.AAAA"
    assert TOKENS.read(token) is None
    assert SESSIONS.read(token) is None


def signed(document: Any) -> None:
    """Signed with the site's key: a site may put anything into its tokens."""
    token = jwt.api_jws.encode(json.dumps(document).encode(), SECRET, "HS256")
    found = TOKENS.read(token)
    assert found is None or (found.user and found.expires)
    SESSIONS.read(token)


def cookie(text: str) -> None:
    found = SESSIONS.read(text)
    assert found is None or found.name == "ada"


def chain(body: bytes) -> None:
    assert read_chain(body, ADA, {}).owner == "ada"


def described(document: Any) -> None:
    chain(json.dumps(document).encode())


def changed(body: bytes) -> None:
    after = read_changes(body, CHAIN)
    assert (after.chain_id, after.owner, after.request.user) == (CHAIN.chain_id, CHAIN.owner, CHAIN.request.user)
    assert after.request.batch == CHAIN.request.batch


def changes(document: Any) -> None:
    changed(json.dumps(document).encode())


def policy(path: Path) -> None:
    ReloadedFile(path, "api.policy", AccessPolicy.read).value.scope_of("ada", lambda name: frozenset({"users"}))


def keys(path: Path) -> None:
    SlurmTokens(None, path, Claims())


CHAIN = read_chain(json.dumps(definition()).encode(), ADA, {})
CHANGES: dict[str, Any] = {
    "name": "again",
    "done": {"links": 9, "total_time": 7_200, "file": "/home/done", "exit_code": 3},
    "failures": {"exit": {"recovery": "retry", "retries": 5}},
    "handover": {"max_overlap": 30, "signal": {"lead": 90}},
    "steering": "pin",
    "lead": 120,
    "predictor": "quantile:0.9",
    "aim": {"kind": "overlap", "value": 3_600},
    "request": {"limit": 1_800},
}
POLICY = b'everybody = "none"\nanonymous = "read"\n[users]\nroot = "admin"\n[groups]\nusers = "operate"\n'
HEADS = [json.dumps({"alg": alg, "typ": "JWT", "kid": "one"}) for alg in ("HS256", "RS256", "none")]

TARGETS = (
    Target("token of Slurm", TOKENS.read, OF_SLURM, ()),
    Target("token, unsigned", unsigned, HEADS, ()),
    Target("token, signed", signed, (CLAIMS,), ()),
    Target("cookie", cookie, (SESSIONS.open(Session("ada", Scope.READ)), *OF_SLURM), ()),
    Target("cursor", read_cursor, (spell_cursor("chain-1"),), (BadDocument,)),
    Target("cursor of numbers", read_number, (spell_cursor(12345),), (BadDocument,)),
    Target("body of a chain", chain, (json.dumps(definition()).encode(),), (BadDocument, MirageError)),
    Target("chain", described, (definition(),), (BadDocument, MirageError)),
    Target("body of changes", changed, (json.dumps(CHANGES).encode(),), (BadDocument, MirageError)),
    Target("changes", changes, (CHANGES,), (BadDocument, MirageError)),
    Target("policy", Beside(policy, "policy.toml"), (POLICY,), names="policy.toml"),
    Target("public keys", Beside(keys, "jwks.json"), (json.dumps(JWKS).encode(),), names="jwks.json"),
    Target("address to listen at", Listening.of, ("127.0.0.1:8421", "[::1]:8421", "localhost:0")),
)
