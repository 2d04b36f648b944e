"""Subject and body of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.instants import spell_instant
from mirage.domain.texts import storable

if TYPE_CHECKING:
    from mirage.domain.notice import Notice

_LONGEST_HEADING = 120

_BODY = """\
{text}

Event:  {event}
Time:   {time}
{chain}
Mirage runs chains of Slurm jobs. Its configuration requests this message.
"""
_CHAIN = """\
Chain:  {name} ({chain}) of {owner}

For the reason see `mirage chain log {chain}`.
"""


def heading(notice: Notice) -> str:
    """Return the subject line."""
    about = f'chain "{notice.name}"' if notice.chain else "Mirage"
    return _one_line(f"{about}: {notice.kind}{', over' if notice.over else ''}")[:_LONGEST_HEADING]


def body(notice: Notice) -> str:
    """Return the message in plain text."""
    chain = _CHAIN.format(name=_one_line(notice.name), chain=notice.chain, owner=notice.owner)
    return _BODY.format(
        text=storable(notice.text),
        event=notice.kind,
        time=spell_instant(notice.time),
        chain=chain if notice.chain else "",
    )


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in storable(text)).split())
