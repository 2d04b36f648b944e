"""What a shell completes from the daemon: quickly, and nothing where it does not answer."""

from __future__ import annotations

_PATIENCE = 1.0
"""Seconds; who presses the key waits for them."""


def complete_chain(incomplete: str) -> list[tuple[str, str]]:
    """Ids of one's chains that begin so, each with what it is."""
    from mirage.cli.connection import connect

    try:
        document = connect().transport.ask("GET", "/chains?limit=1000", timeout=_PATIENCE)
        found = [(str(chain["id"]), f"{chain['state']}, {chain['name']}") for chain in document["chains"]]
    except Exception:  # a shell has no place for any error
        return []
    return [(chain, about) for chain, about in found if chain.startswith(incomplete)]
