"""Who comes in, as the configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.api.access.gate import Gate
from mirage.api.access.policy import Policy
from mirage.api.access.rates import Rates
from mirage.api.access.sessions import Sessions, session_key
from mirage.api.access.slurmtokens import Claims, SlurmTokens
from mirage.api.access.tokens import TokenBook
from mirage.api.access.watchedfile import WatchedFile
from mirage.api.listening import Listening

if TYPE_CHECKING:
    from mirage.config.model import ApiSection, Config
    from mirage.store.tokens import TokenStore

_KEY_FILE = "session.key"


def build_gate(config: Config, tokens: TokenStore) -> Gate:
    """All that decides who somebody is and what they may do. Raises ``ConfigError``."""
    section = config.api
    policy = WatchedFile(Path(section.policy), "api.policy", Policy.read) if section.policy else None
    built_in = Policy()
    key = session_key(Path(config.service.state, _KEY_FILE))
    return Gate(
        admins=frozenset(section.admins),
        policy=lambda: policy.value if policy else built_in,
        tokens=TokenBook(tokens),
        slurm=slurm_tokens(section),
        sessions=Sessions(key, section.session),
        rates=Rates(section.rate, section.burst),
    )


def slurm_tokens(section: ApiSection) -> SlurmTokens | None:
    """Reads Slurm's tokens; ``None`` where there is nothing to check them by. Raises ``ConfigError``."""
    tokens = section.jwt
    if not tokens.key and not tokens.jwks:
        return None
    return SlurmTokens(
        Path(tokens.key) if tokens.key else None,
        Path(tokens.jwks) if tokens.jwks else None,
        Claims(tokens.user_claim, tokens.audience, tokens.issuer),
    )


def listening(section: ApiSection) -> Listening | None:
    """The network address; ``None``: the socket only. Raises ``ConfigError``."""
    if not section.listen:
        return None
    return Listening.of(section.listen, section.certificate, section.certificate_key, section.trusted_proxies)


def check_access(section: ApiSection) -> None:
    """Raises ``ConfigError`` for what would keep a daemon from starting; makes nothing."""
    listening(section)
    slurm_tokens(section)
    if section.policy:
        WatchedFile(Path(section.policy), "api.policy", Policy.read)
