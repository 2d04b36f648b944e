"""Shell completion from the daemon; no results if it does not reply quickly."""

from __future__ import annotations

_PATIENCE = 1.0
"""Timeout in seconds; the user waits for it."""


def complete_chain(incomplete: str) -> list[tuple[str, str]]:
    """Return IDs of the user's chains with this prefix, each with state and name."""
    from mirage.cli.connection import connect

    try:
        document = connect().transport.ask("GET", "/chains?limit=1000", timeout=_PATIENCE)
        found = [(str(chain["id"]), f"{chain['state']}, {chain['name']}") for chain in document["chains"]]
    except Exception:  # a shell cannot show errors of completion
        return []
    return [(chain, about) for chain, about in found if chain.startswith(incomplete)]
