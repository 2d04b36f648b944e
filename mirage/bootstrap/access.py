"""Authentication and access policy, built from the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.api.access.gate import CHANGES_A_SECOND, CHANGES_AT_ONCE, Gate
from mirage.api.access.policy import Policy
from mirage.api.access.rates import Rates
from mirage.api.access.rightofway import RightOfWay
from mirage.api.access.sessions import Sessions, session_key
from mirage.api.access.slurmtokens import Claims, SlurmTokens
from mirage.api.access.tokens import TokenBook
from mirage.api.access.watchedfile import WatchedFile
from mirage.api.listening import Listening
from mirage.bootstrap.world import own_user

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.api.access.holders import Holders
    from mirage.config.model import ApiSection, Config
    from mirage.store.tokens import TokenStore

SESSION_KEY = "session.key"
"""File of the state directory."""


def build_gate(
    config: Config, tokens: TokenStore, in_cycle: Callable[[], bool] = bool, holders: Holders | None = None
) -> Gate:
    """Build what authenticates callers and decides their rights. Raises ``ConfigError``.

    ``in_cycle``: whether the loop is in a cycle, which busy callers wait for.
    """
    section = config.api
    policy = WatchedFile(Path(section.policy), "api.policy", Policy.read) if section.policy else None
    built_in, slurm = Policy(), slurm_tokens(section)
    key = session_key(Path(config.service.state, SESSION_KEY))
    # A daemon that submits only as its account belongs to that user, who may do everything with it.
    own = {own_user()} if config.acting.mode == "own" else set()
    return Gate(
        admins=frozenset(section.admins) | own,
        policy=lambda: policy.value if policy else built_in,
        tokens=TokenBook(tokens),
        holders=holders,
        slurm=slurm,
        sessions=Sessions(key, section.session),
        rates=Rates(section.rate, section.burst),
        changes=Rates(CHANGES_A_SECOND, CHANGES_AT_ONCE) if section.rate else Rates(0, 1),
        way=RightOfWay(in_cycle),
        url=section.url,
        files=(*((policy,) if policy else ()), *(slurm.files if slurm else ())),
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
    if (address := listening(section)) is not None:
        address.check()
    slurm_tokens(section)
    if section.policy:
        WatchedFile(Path(section.policy), "api.policy", Policy.read)
