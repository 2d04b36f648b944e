"""Whether the files by which jobs speak to Mirage can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.client.client import Client
from mirage.client.errors import ClientError, Refusal
from mirage.config.places import daemon_socket, is_absent
from mirage.daemon.doctor.finding import ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.client.documents import Chain
    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

_BY_THE_DAEMON = ("release", "token")
_SHOWN = 10


def look_at_files(config: Config) -> Iterator[Finding]:
    """The findings; of a running daemon's chains as far as it shows them to this user."""
    if config.acting.mode in _BY_THE_DAEMON:
        found = f"mode {config.acting.mode}: the daemon's account checks done files and handover files"
        follows = "a chain with such a file in a directory that this account may not search is rejected"
        yield ok("files", found, follows)
    if not config.api.enabled:
        yield _not_looked_at("api.enabled is false", "set api.enabled")
        return
    path = daemon_socket(Path(config.api.socket))
    if is_absent(path):
        return  # no daemon answers: another finding
    try:
        chains, denied = _chains(Client(str(path)))
    except ClientError as error:
        yield _not_looked_at(str(error), "read the daemon's log")
        return
    if denied:
        yield _not_looked_at(denied, "run mirage doctor as root or an administrator (api.admins)", "other users")
    blind = [chain for chain in chains if chain.files_unknown and not chain.over]
    for chain in blind[:_SHOWN]:
        follows = "its done file and handover file are ignored: it may run longer than needed"
        yield warn("files", f"{chain.id}: {chain.files_unknown}", follows, "see docs/handover.md, Files")
    if blind[_SHOWN:]:
        text = f"the same holds for {len(blind) - _SHOWN} more chains"
        yield warn("files", text, "their files are ignored", "mirage chains --all --json")


def _chains(client: Client) -> tuple[list[Chain], str]:
    """Those that the daemon shows to this user, and why these are not all; empty: they are."""
    try:
        return list(client.chains(everybody=True)), ""
    except Refusal as refusal:
        return list(client.chains()), refusal.detail


def _not_looked_at(why: str, todo: str, whose: str = "all users") -> Finding:
    follows = f"whether done files and handover files of {whose} can be checked is unknown"
    return warn("files", why, follows, todo)
