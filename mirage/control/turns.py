"""Which chain is decided next in a cycle, and how much of the cycle's time one owner may take."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from mirage.provisioner.shares import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirage.domain.chain import ChainId, ChainRecord


class Turns:
    """Shares the decision time of a cycle among the owners: what one leaves, another may take.

    A chain beyond its owner's share is left to a later cycle; among an owner's chains the one decided longest ago
    comes first. At least one chain of each owner is decided in each cycle. Without a bound no time is measured:
    replays depend on none.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``seconds``: real time for the decisions of all owners in one cycle; ``None``: no bound."""
        self.seconds = seconds
        self._clock = clock if seconds is not None else float
        self._began = 0.0
        self._spent: dict[str, float] = {}
        self._cycle = 0
        self._last: dict[ChainId, int] = {}
        """In which cycle each chain was decided last."""
        self.decided: dict[str, float] = {}
        """By owner: real seconds from the start of the cycle until the last of the owner's chains was decided."""

    def begin_cycle(self) -> None:
        """The time of ``decided`` runs from now on."""
        self._began = self._clock()
        self._cycle += 1

    def attend(self, records: Iterable[ChainRecord]) -> Iterator[tuple[ChainRecord, bool]]:
        """Each record, and whether it is to be decided in this cycle; done when the next one is asked for."""
        order = self._in_order(in_turn(records, self._spent))
        chains = Counter(record.chain.owner for record in order)
        owners, unfinished, used = len(chains), len(chains), 0.0
        self._spent, self.decided = dict.fromkeys(chains, 0.0), {}
        self._last = {each.chain.chain_id: self._last.get(each.chain.chain_id, 0) for each in order}
        for record in order:
            owner, began = record.chain.owner, self._clock()
            granted = self._granted(owner, used, owners, unfinished)
            yield record, granted
            ended = self._clock()
            used += ended - began
            self._spent[owner] += ended - began
            chains[owner] -= 1
            unfinished -= not chains[owner]
            if granted and self.seconds is not None:
                self._last[record.chain.chain_id] = self._cycle
                self.decided[owner] = ended - self._began

    def _granted(self, owner: str, used: float, owners: int, unfinished: int) -> bool:
        """Whether the owner is within its share, or no unfinished owner would lose its share."""
        if self.seconds is None:
            return True
        share = self.seconds / owners
        return self._spent[owner] < share or used < self.seconds - share * (unfinished - 1)

    def _in_order(self, order: Sequence[ChainRecord]) -> list[ChainRecord]:
        """Each owner keeps its places, and fills them with the chains first that were decided longest ago."""
        own: defaultdict[str, list[ChainRecord]] = defaultdict(list)
        for record in order:
            own[record.chain.owner].append(record)
        following = {
            owner: iter(sorted(records, key=lambda record: self._last.get(record.chain.chain_id, 0)))
            for owner, records in own.items()
        }
        return [next(following[record.chain.owner]) for record in order]
