"""Trackable and generic resources as Slurm writes them: TRES, GRES and memory."""

from __future__ import annotations

import re

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, gres_class

Amounts = tuple[tuple[str, int], ...]
"""(name, amount) pairs, names as in the source, in lower case up to the slash."""

_NOTHING = ("", "n/a", "(null)", "none", "unknown")
_AMOUNT = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,9})?)([KMGTPE]?)B?", re.IGNORECASE)
_BRACKETS = re.compile(r"\([^()]*\)")
_TOO_MUCH = 1 << 62
"""Columns of amounts have 64 bits."""
_NAME = re.compile(r"[A-Za-z_][\w.+-]*(?:[:/][\w.+-]+)*")
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_MEMORY = ("mem", "vmem")
_ACCOUNTED_ONLY = ("gpumem", "gpuutil")


def memory_mb(text: str) -> int:
    """Memory such as ``10G``, ``512K``, ``1.50T`` or ``4000`` (megabytes) in megabytes, rounded up.

    Raises ``BadSpelling``.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise BadSpelling(text, "expected memory such as 10G, 4000M or 512K")
    return -int(-_scaled(match, _POWER[match[2].upper() or "M"] - _POWER["M"]) // 1)


def parse_tres(text: str) -> Amounts:
    """``cpu=4,mem=10G,node=1,billing=4,gres/gpu:a100=4`` as pairs; ``mem`` and ``vmem`` in megabytes.

    Empty text and Slurm's words for nothing are no pairs. Raises ``BadSpelling``.
    """
    if text.strip().lower() in _NOTHING:
        return ()
    return tuple(_pair(item, text) for item in text.strip().split(","))


def _pair(item: str, text: str) -> tuple[str, int]:
    name, equals, amount = (part.strip() for part in item.partition("="))
    kind, slash, which = name.partition("/")
    if not equals or not _NAME.fullmatch(name):
        raise BadSpelling(text, f"expected TRES=amount such as cpu=4 or gres/gpu:a100=4, found {item[:30]!r}")
    name = kind.lower() + slash + which
    return name, memory_mb(amount) if name in _MEMORY else _count(amount, text)


def parse_gres(text: str) -> Amounts:
    """``gpu:a100:4``, ``gres:gpu:2``, ``gres/gpu=2``, ``npu:3(S:0-1)``, ``gpu`` (one) as (``gpu:a100``, 4) pairs.

    Empty text and Slurm's words for nothing are no pairs. Raises ``BadSpelling``.
    """
    bare = _BRACKETS.sub("", text).strip()
    if bare.lower() in _NOTHING:
        return ()
    return tuple(_gres_pair(item.strip(), text) for item in bare.split(","))


def _gres_pair(item: str, text: str) -> tuple[str, int]:
    parts = re.split(r"[:/=]", re.sub(r"^gres[:/]", "", item))
    count = _count(parts.pop(), text) if len(parts) > 1 and _AMOUNT.fullmatch(parts[-1]) else 1
    name = ":".join(parts)
    if len(parts) > 2 or not _NAME.fullmatch(name):
        raise BadSpelling(text, "expected a generic resource such as gpu:a100:4 or npu:2")
    return name, count


def gres_of(tres: Amounts) -> Amounts:
    """The generic resources among TRES, ``gres/`` removed, each counted once.

    Slurm gives ``gres/gpu=4,gres/gpu:a100=4`` for four GPUs: the total of a name includes that of its types,
    so only what the types leave of it stays under the bare name.
    """
    named = [(name[5:], amount) for name, amount in tres if name.startswith("gres/")]
    totals = {name: amount for name, amount in named if name not in _ACCOUNTED_ONLY}
    for name, amount in named:
        whole = name.split(":")[0]
        if whole != name and whole in totals:
            totals[whole] -= amount
    return tuple((name, amount) for name, amount in totals.items() if amount > 0)


def sizes_of(text: str) -> tuple[int, int]:
    """CPUs and megabytes among a job's TRES; ``ABSENT`` where one is missing or cannot be read."""
    head = text[:place] if (place := text.find("gres/")) >= 0 else text
    try:
        told = dict(parse_tres(head.rstrip(",")))
    except BadSpelling:
        return ABSENT, ABSENT
    return told.get("cpu", ABSENT), told.get("mem", ABSENT)


def gres_class_of(text: str, nodes: int) -> tuple[str, int]:
    """The class (``gres_class``) of a job's TRES over all its nodes; no kinds and ``ABSENT`` where not known."""
    place = text.find("gres/")
    if place < 0:
        return gres_class(()) if "=" in text else ("", ABSENT)
    try:
        return gres_class(gres_of(parse_tres(text[place:])), nodes)
    except BadSpelling:
        return "", ABSENT


def _count(text: str, whole: str) -> int:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise BadSpelling(whole, f"expected an amount, found {text[:30]!r}")
    return int(_scaled(match, _POWER[match[2].upper()]))


def _scaled(match: re.Match[str], power: int) -> int | float:
    """The number times 1024 to the ``power``; exact for whole numbers of whole units. Raises ``BadSpelling``."""
    whole = "." not in match[1] and power >= 0
    amount = int(match[1]) << 10 * power if whole else float(match[1]) * 1024.0**power
    if amount >= _TOO_MUCH:
        raise BadSpelling(match[0], "is more than any cluster has")
    return amount
