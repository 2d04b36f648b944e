"""IDs of chains, each with a mark of its owner."""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256

from mirage.domain.chain import ChainId

_MARKED = re.compile(r"\.[a-z2-7]{8}\Z")
_TAG = re.compile(r"mirage:([A-Za-z0-9._-]+):([0-9]{1,9})")


def owned_id(asked: str, owner: str) -> ChainId:
    """The ID of ``owner``'s chain ``asked``, such as ``train.4hq2zk7a``: it ends with a mark of the owner.

    The IDs of two owners are never equal, so a new chain neither takes another's nor reveals that it exists.
    """
    mark = _mark(owner)
    return ChainId(asked if asked.endswith(mark) else f"{asked}{mark}")


def bears_other_mark(chain_id: str, user: str) -> bool:
    """Whether an ID ends as those of another user's chains do, such as ``train.4hq2zk7a``."""
    return bool(_MARKED.search(chain_id)) and not chain_id.endswith(_mark(user))


def marked_for_another(tag: str, user: str) -> bool:
    """Whether a tag, such as ``mirage:train.4hq2zk7a:5``, bears the mark of another user than this one."""
    chain_id = tag.partition(":")[2].rpartition(":")[0]
    return bears_other_mark(chain_id, user)


def split_tag(tag: str) -> tuple[ChainId, int] | None:
    """Return chain and index of a link's tag, ``mirage:train.4hq2zk7a:5``; ``None`` for any other comment."""
    match = _TAG.fullmatch(tag)
    return (ChainId(match[1]), int(match[2])) if match else None


def find_tags(text: str) -> frozenset[str]:
    """Return what looks like a link's tag in a text that holds more."""
    return frozenset(match[0] for match in _TAG.finditer(text))


def _mark(owner: str) -> str:
    digest = sha256(owner.encode("utf-8", "surrogateescape")).digest()
    return f".{b32encode(digest[:5]).decode().lower()}"
