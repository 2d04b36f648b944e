"""Slurm's spellings of what a cluster configuration holds, read into the configuration's own terms.

Every reader takes one text and raises ``ConfigError`` or another ``MirageError`` that says what is wrong with it.
"""

from __future__ import annotations

import re

from mirage.domain.errors import ConfigError
from mirage.domain.job import UNLIMITED, Seconds
from mirage.simulator.cluster import TresLimit
from mirage.slurm import duration as durations
from mirage.slurm import hostlist, tres

MAX_AMOUNT = (1 << 62) - 1
"""Largest amount that the simulator's 64-bit sums can still add up."""

NOT_CONSUMED = "no_consume"

_SOCKETS = re.compile(r"\([^()]*\)")
_NUMBER = re.compile(r"([+-]?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18}))([KMGTP]?)", re.IGNORECASE)
_IDS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_FOLLOWED_TRES = ("cpu", "mem", "node")
_PLAIN_TRES = ("cpu", "node", "mem", "vmem", "billing", "energy", "pages")
_NAMED_TRES = ("gres", "license", "bb", "fs", "ic")


def hosts(text: str) -> tuple[str, ...]:
    """The names in a host list such as ``c[001-004],login1``, in the order given."""
    return tuple(hostlist.expand(text))


def slurm_duration(text: str) -> Seconds:
    """A time string of Slurm's files (bare digits are minutes), in seconds, at most ``UNLIMITED``."""
    return min(durations.parse(text), UNLIMITED)


def duration(text: str) -> Seconds:
    """A time string of Slurm's, or numbers with their units (``48h``, ``1d12h``), in seconds."""
    return min(durations.parse_human_limit(text), UNLIMITED)


def memory_mb(text: str) -> int:
    """Memory such as ``256G`` (no unit: megabytes), in megabytes."""
    return _bounded(text, tres.memory_mb(text))


def gres(text: str) -> tuple[tuple[str, int], ...]:
    """A node's Gres such as ``gpu:a100:4(S:0-1),npu:8`` as (``name`` or ``name:type``, count) pairs.

    ``no_consume`` resources are left out: they never run short.
    """
    items = (item for item in _SOCKETS.sub("", text).split(",") if NOT_CONSUMED not in item.split(":"))
    return tuple((name, _bounded(text, count)) for name, count in tres.parse_gres(",".join(items)))


def followed(name: str) -> bool:
    """Whether the simulator counts this TRES: CPUs, memory, nodes and generic resources."""
    return name in _FOLLOWED_TRES or name.startswith("gres/")


def tres_limit(text: str) -> TresLimit:
    """Ceilings such as ``cpu=64,mem=1T,gres/gpu:a100=8``; memory in megabytes; ``-1`` sets no ceiling."""
    pairs = [(name, value) for name, value in map(_tres_pair, text.split(",")) if value != "-1"]
    limits = tres.parse_tres(",".join(f"{name}={value}" for name, value in pairs))
    return TresLimit(tuple((name, _bounded(text, amount)) for name, amount in limits))


def _bounded(text: str, amount: int) -> int:
    if amount > MAX_AMOUNT:
        raise ConfigError(text, "is too large")
    return amount


def tres_weights(text: str) -> tuple[tuple[str, float], ...]:
    """Weights such as ``CPU=1.0,Mem=0.25G,GRES/gpu=2.0``, per CPU, megabyte or GRES.

    A suffix is the amount that one weight is for (man slurm.conf, TRESBillingWeights): ``0.25G`` is a quarter
    for each gigabyte.
    """
    pairs = (_tres_pair(item) for item in text.split(",") if item.strip())
    return tuple((name, _weight(name, value)) for name, value in pairs)


def _tres_pair(item: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in item.partition("="))
    kind, slash, which = name.partition("/")
    kind = kind.lower()
    good = kind in _NAMED_TRES and which if slash else kind in _PLAIN_TRES
    if not equals or not good:
        known = ", ".join(_PLAIN_TRES[:3])
        raise ConfigError(item.strip(), f"expected TRES=number, where TRES is {known}, gres/NAME or the like")
    return f"{kind}{slash}{which}", value


def _weight(name: str, value: str) -> float:
    match = _NUMBER.fullmatch(value)
    if match is None:
        raise ConfigError(f"{name}={value}", "expected a number, with K, M, G, T or P after it where needed")
    power = _POWERS[match[2].upper()] - (_POWERS["M"] if name == "mem" and match[2] else 0)
    return float(match[1]) / 1024.0**power


def count_of_ids(text: str) -> int:
    """Number of CPU ids in a list such as ``0-3,8``."""
    return sum(_ids(part.strip()) for part in text.split(",") if part.strip())


def _ids(part: str) -> int:
    match = _IDS.fullmatch(part)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ConfigError(part, "expected CPU ids such as 0-3,8")
    return int(match[2] or match[1]) - int(match[1]) + 1
