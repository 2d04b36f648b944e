"""Messages as people read them."""

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
Mirage keeps chains of Slurm jobs going; this message was sent because its configuration asks for it.
"""
_CHAIN = """\
Chain:  {name} ({chain}) of {owner}

`mirage chain log {chain}` says why.
"""


def heading(notice: Notice) -> str:
    """One line that says what it is about."""
    about = f'chain "{notice.name}"' if notice.chain else "Mirage"
    return _one_line(f"{about}: {notice.kind}{', over' if notice.over else ''}")[:_LONGEST_HEADING]


def body(notice: Notice) -> str:
    """All of it, in plain text."""
    chain = _CHAIN.format(name=_one_line(notice.name), chain=notice.chain, owner=notice.owner)
    return _BODY.format(
        text=storable(notice.text),
        event=notice.kind,
        time=spell_instant(notice.time),
        chain=chain if notice.chain else "",
    )


def _one_line(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in storable(text)).split())
