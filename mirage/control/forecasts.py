"""What was predicted of links as they were submitted, until it is known how it came."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.decision import WaitForecast, forecast_of
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link

_Place = tuple["ChainId", int]

PLACES = ("early", "within", "late")
"""See ``OpenForecast.place``."""


@dataclass(frozen=True, slots=True)
class OpenForecast:
    """A forecast and its outcome."""

    predictor: str
    forecast: WaitForecast
    link: Link
    """It has started."""

    @property
    def error(self) -> float:
        """Seconds by which it started later than the median; negative: earlier."""
        return self.link.start - self.forecast.at(0.5)

    @property
    def place(self) -> str:
        """Where the start lay: ``early`` (before P10), ``within``, or ``late`` (after P90)."""
        if self.link.start < self.forecast.at(0.1):
            return "early"
        return "late" if self.link.start > self.forecast.at(0.9) else "within"


@dataclass(slots=True)
class ForecastLedger:
    """Receives the journal's entries; for the loop's thread alone.

    A forecast predicts when a link would start if it were submitted now: it counts for a link only if the link was
    submitted immediately. Forecasts made before the process began are unknown.
    """

    _weighed: dict[_Place, dict[str, WaitForecast]] = field(default_factory=dict)
    _waiting: dict[_Place, dict[str, WaitForecast]] = field(default_factory=dict)

    def hear(self, entry: Entry) -> None:
        """Take note of an entry of the journal."""
        if entry.chain is None or not entry.link:
            return
        place = (entry.chain, entry.link)
        if entry.kind is EntryKind.DECISION:
            self._weighed[place] = _said(entry)
        elif entry.kind is EntryKind.SHADOW and place in self._weighed:
            self._weighed[place] |= _said(entry)
        elif entry.kind is EntryKind.ACTION and place in self._weighed:
            self._waiting[place] = self._weighed.pop(place)

    def of(self, chain: ChainId, link: int) -> Mapping[str, WaitForecast]:
        """The forecasts of a pending link by predictor, the active predictor first."""
        return self._waiting.get((chain, link), {})

    def settle(self, records: Iterable[ChainRecord]) -> Iterator[OpenForecast]:
        """What has come true since the last call; that and what never will is forgotten."""
        by_id = {record.chain.chain_id: record for record in records}
        for chain, index in list(self._waiting):
            links = by_id[chain].links[index - 1 : index] if chain in by_id else ()
            if links and not links[0].started and not links[0].final:
                continue
            forecasts = self._waiting.pop((chain, index))
            if links and links[0].started:
                yield from (OpenForecast(name, forecast, links[0]) for name, forecast in forecasts.items())
        # Sent all the same, by an answer that was lost, or of a chain that is gone.
        for chain, index in list(self._weighed):
            if chain not in by_id or index <= len(by_id[chain].links):
                del self._weighed[chain, index]


def _said(entry: Entry) -> dict[str, WaitForecast]:
    forecast = forecast_of(entry.prediction)
    return {entry.predictor: forecast} if forecast is not None else {}
