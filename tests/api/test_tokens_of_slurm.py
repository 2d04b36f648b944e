"""Slurm's tokens: those that authenticate a user, and all that must not."""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import RSAAlgorithm
from network_world import CHAINS, KEY, slurm_token

from mirage.api.access.tokens import Claims, SlurmTokens
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from network_world import Network

FAR = 4_000_000_000


@pytest.fixture(scope="module")
def private() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2_048)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path / "key"


def jwks(path: Path, key: rsa.RSAPrivateKey, kid: str = "k1", *, secret: bool = False) -> Path:
    public = RSAAlgorithm.to_jwk(key if secret else key.public_key(), as_dict=True)
    path.write_text(json.dumps({"keys": [public | {"kid": kid, "use": "sig"}]}))
    return path


def part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def reads(tokens: SlurmTokens, text: str) -> str | None:
    found = tokens.read(text)
    return found and found.user


def test_a_token_as_slurm_makes_it_is_read(key_file: Path) -> None:
    tokens = SlurmTokens(key_file, None, Claims())
    now = int(time.time())
    text = jwt.encode({"exp": now + 1_800, "iat": now, "sun": "ada"}, KEY, "HS256", headers={"typ": "JWT"})
    assert reads(tokens, text) == "ada"
    ahead = jwt.encode({"exp": now + 9_999, "iat": now + 5_000, "sun": "ada"}, KEY, "HS256")
    assert reads(tokens, ahead) == "ada", "the clock of a Slurm under test may run ahead"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"sun": "ada"}, "no end"),
        ({"exp": FAR}, "no user"),
        ({"exp": 1_000, "sun": "ada"}, "expired"),
        ({"exp": "soon", "sun": "ada"}, "an end that is no number"),
        ({"exp": 10**400, "sun": "ada"}, "an end beyond all numbers"),
        ({"exp": FAR, "nbf": 10**400, "sun": "ada"}, "not yet, nor ever"),
        ({"exp": FAR, "sun": 0}, "a user that is no name"),
        ({"exp": FAR, "sun": ["ada"]}, "a user that is no name"),
        ({"exp": FAR, "sun": ""}, "no name"),
        ({"exp": FAR, "sun": "ada\nroot"}, "no name"),
        ({"exp": FAR, "sun": "uid:0"}, "no name"),
        ({"exp": FAR, "sun": "(anonymous)"}, "no name"),
        ({"exp": FAR, "sun": "-x"}, "no name"),
        ({"exp": FAR, "nbf": FAR - 1, "sun": "ada"}, "not yet"),
        ({"exp": FAR, "name": "ada"}, "another claim"),
    ],
)
def test_claims_that_prove_nothing(key_file: Path, claims: dict[str, Any], why: str) -> None:
    assert reads(SlurmTokens(key_file, None, Claims()), _signed(claims)) is None, why


def test_only_the_keys_own_algorithm_counts(key_file: Path, tmp_path: Path, private: rsa.RSAPrivateKey) -> None:
    tokens = SlurmTokens(key_file, jwks(tmp_path / "jwks", private), Claims())
    good = {"exp": FAR, "sun": "root"}
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = _signed(good)
    head, body, signature = signed.split(".")
    hmac_by_public_key = _hmac({"alg": "HS256", "typ": "JWT"}, good, public)
    for text in (
        jwt.encode(good, None, "none"),
        f"{part({'alg': 'none'})}.{body}.",
        f"{part({'alg': 'None'})}.{body}.{signature}",
        f"{part({'alg': 'RS256', 'kid': 'k1'})}.{body}.{signature}",
        f"{part({})}.{body}.{signature}",
        f"{part({'alg': ['HS256']})}.{body}.{signature}",
        jwt.encode(good, KEY + KEY, "HS512"),
        jwt.encode(good, b"x" * 32, "HS256"),
        hmac_by_public_key,
        jwt.encode(good, private, "RS512", headers={"kid": "k1"}),
        jwt.encode(good, private, "RS256", headers={"kid": "k2"}),
        jwt.encode(good, rsa.generate_private_key(65_537, 2_048), "RS256", headers={"kid": "k1"}),
        f"{head}.{part(good | {'sun': 'ada'})}.{signature}",
        signed[:-3],
        signed + "." + signature,
        "",
        "..",
        "a.b.c",
        "\ud800",
        "ä.ö.ü",
        "x" * 100_000,
    ):
        assert reads(tokens, text) is None, text[:80]
    assert reads(tokens, signed) == "root"
    assert reads(tokens, jwt.encode(good, private, "RS256", headers={"kid": "k1"})) == "root"


def test_audience_issuer_and_claim_are_the_configurations(key_file: Path) -> None:
    tokens = SlurmTokens(key_file, None, Claims("preferred_username", "mirage", "https://idp"))
    good = {"exp": FAR, "preferred_username": "ada", "aud": "mirage", "iss": "https://idp"}
    assert reads(tokens, _signed(good)) == "ada"
    assert reads(tokens, _signed(good | {"aud": ["x", "mirage"]})) == "ada"
    for wrong in (
        {"aud": "other"},
        {"iss": "https://evil"},
        {"aud": None},
        {"preferred_username": None, "sun": "ada"},
    ):
        assert reads(tokens, _signed({k: v for k, v in (good | wrong).items() if v is not None})) is None, wrong
    plain = SlurmTokens(key_file, None, Claims())
    assert reads(plain, _signed({"exp": FAR, "sun": "ada", "aud": "whoever"})) == "ada"


@given(text=st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_garbage_proves_nothing(text: str) -> None:
    assert _TOKENS.read(text) is None


WORDS = st.sampled_from(["HS256", "RS256", "none", "", "k1"])
HEADS = st.none() | WORDS | st.integers() | st.lists(st.text(max_size=3))
CLAIMS = st.none() | st.integers() | st.text(max_size=5)


@given(
    head=st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "b64", "jwk", "jku", "x5c", "zip"]), HEADS),
    claims=st.dictionaries(st.sampled_from(["exp", "sun", "nbf", "aud", "iss", "sub"]), CLAIMS),
    signature=st.binary(max_size=40),
)
def test_forged_tokens_prove_nothing(head: dict[str, Any], claims: dict[str, Any], signature: bytes) -> None:
    end = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert _TOKENS.read(f"{part(head)}.{part(claims)}.{end}") is None


@given(place=st.integers(0, 10_000), letter=st.sampled_from("ABCabc012-_"))
def test_a_letter_changed_changes_everything(place: int, letter: str) -> None:
    text = slurm_token()
    at = place % len(text)
    changed = text[:at] + letter + text[at + 1 :]
    found = _TOKENS.read(changed)
    # The last letter of base64 may hold bits that mean nothing.
    assert found is None or changed == text or at == len(text) - 1


def test_keys_are_read_again_and_a_bad_one_does_not_count(key_file: Path, tmp_path: Path) -> None:
    tokens = SlurmTokens(key_file, None, Claims())
    (watched,) = tokens.files
    other = b"o" * 40
    text = jwt.encode({"exp": FAR, "sun": "ada"}, other, "HS256")
    assert reads(tokens, text) is None
    for content, user in ((b"short", None), (other, "ada")):
        key_file.write_bytes(content)
        watched.refresh()
        assert reads(tokens, text) == user
    with pytest.raises(ConfigError, match="can be guessed"):
        SlurmTokens(_file(tmp_path / "short", b"short"), None, Claims())
    with pytest.raises(ConfigError, match="cannot be read"):
        SlurmTokens(tmp_path / "none", None, Claims())


def test_public_keys_that_are_none(tmp_path: Path, private: rsa.RSAPrivateKey) -> None:
    for content in (
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "YQ"}]}',
        b'{"keys": [1]}',
    ):
        with pytest.raises(ConfigError, match=r"api\.jwt\.jwks"):
            SlurmTokens(None, _file(tmp_path / "jwks", content), Claims())
    with pytest.raises(ConfigError, match="private key"):
        SlurmTokens(None, jwks(tmp_path / "jwks", private, secret=True), Claims())


def test_all_refusals_are_in_the_same_words(network: Network) -> None:
    texts = [slurm_token(exp=1_000), _signed({"exp": FAR}), "a.b.c", "mirage_abc", jwt.encode({}, None, "none")]
    answers = [network.with_token("GET", CHAINS, text) for text in texts]
    assert {(answer.status, answer.body["detail"]) for answer in answers} == {
        (401, "invalid token: it is wrong, expired, revoked or not for this daemon")
    }


def _signed(claims: dict[str, Any]) -> str:
    """Signed well, whatever it says: the library itself rejects to encode some of it."""
    return _hmac({"alg": "HS256", "typ": "JWT"}, claims, KEY)


def _hmac(head: dict[str, Any], claims: dict[str, Any], key: bytes) -> str:
    import hashlib
    import hmac

    text = f"{part(head)}.{part(claims)}"
    digest = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def _file(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _tokens() -> SlurmTokens:
    import tempfile
    from pathlib import Path

    with tempfile.NamedTemporaryFile() as file:
        return SlurmTokens(_file(Path(file.name), KEY), None, Claims())


_TOKENS = _tokens()
