"""Slurm's host lists: ``a100-[001-004,007],login1``, also with several brackets (``r[1-2]n[01-16]``)."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict

from mirage.domain.errors import BadSpelling

MAX_HOSTS = 1 << 20
"""A list that names more hosts than this is a mistake; it would only exhaust the memory."""

_SPLIT = re.compile(r"((?:[^\[\],\s]|\[[^\[\]\s]*+\])++)(?:,|$)")
_PARTS = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)
_PLAIN = re.compile(r"[^\[\],\s]+")


def expand(text: str) -> list[str]:
    """The names in ``text`` in the order given; numbers keep the width of the range's first one.

    Empty text is no hosts. Raises ``BadSpelling`` for unbalanced brackets, ranges that run backwards and
    lists of more than ``MAX_HOSTS`` names.
    """
    names: list[str] = []
    for item in _items(text.strip()):
        choices, size = list[list[str]](), 1
        for match in _PARTS.finditer(item):
            choices.append(_choices(match, text))
            size *= len(choices[-1])
            _check_size(len(names) + size, text)
        names.extend("".join(parts) for parts in itertools.product(*choices))
    return names


def _items(text: str) -> list[str]:
    items: list[str] = []
    position = 0
    while position < len(text):
        match = _SPLIT.match(text, position)
        if match is None:
            raise BadSpelling(
                text, f"expected a host list such as node[01-04,07], stopped at {text[position:][:20]!r}"
            )
        items.append(match[1])
        position = match.end()
    return items


def _choices(match: re.Match[str], text: str) -> list[str]:
    if match[1] is None:
        return [match[2]]
    names: list[str] = []
    for part in match[1].split(","):
        names += _numbers(part, text)
        _check_size(len(names), text)
    return names


def _numbers(part: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise BadSpelling(text, f"[{part[:20]}] is not a number or a range such as 001-004")
    low, high = int(match[1]), int(match[2] or match[1])
    if not 0 <= high - low < MAX_HOSTS:
        raise BadSpelling(text, f"the range {part} runs backwards or names too many hosts")
    return [f"{number:0{len(match[1])}}" for number in range(low, high + 1)]


def _check_size(size: int, text: str) -> None:
    if size > MAX_HOSTS:
        raise BadSpelling(text, f"names more than {MAX_HOSTS:,} hosts")


def fold(names: list[str]) -> str:
    """The shortest usual host list of ``names``: each once, numbers sorted, groups by first appearance.

    The last number of a name is folded. Raises ``BadSpelling`` for a name with blanks, commas or brackets.
    """
    groups: defaultdict[tuple[str, str, int], set[int]] = defaultdict(set)
    padded = _padded_widths(names)
    for name in names:
        head, digits, tail = _parts(name)
        width = len(digits) if (head, tail, len(digits)) in padded else 0
        groups[head, tail, width if digits else -1].add(int(digits or 0))
    return ",".join(_spell(*key, sorted(numbers)) for key, numbers in groups.items())


def _padded_widths(names: list[str]) -> set[tuple[str, str, int]]:
    """Head, tail and width of the numbers written with leading zeros: ``08`` makes ``10`` one of them."""
    parts = (_parts(name) for name in names)
    return {(head, tail, len(digits)) for head, digits, tail in parts if len(digits) > 1 and digits[0] == "0"}


def _parts(name: str) -> tuple[str, str, str]:
    if not _PLAIN.fullmatch(name):
        raise BadSpelling(name, "is not a host name")
    match = _LAST_NUMBER.fullmatch(name)
    return (match[1], match[2], match[3]) if match else (name, "", "")


def _spell(head: str, tail: str, width: int, numbers: list[int]) -> str:
    if width < 0:
        return head
    ranges = ",".join(_ranges(numbers, width))
    bare = "," not in ranges and "-" not in ranges
    return f"{head}{ranges}{tail}" if bare else f"{head}[{ranges}]{tail}"


def _ranges(numbers: list[int], width: int) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ends = ((f"{run[0]:0{width}}", f"{run[-1]:0{width}}") for run in runs)
    return [low if low == high else f"{low}-{high}" for low, high in ends]
