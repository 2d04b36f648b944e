"""The state folder: where the gateway of the chain is found now, and what gateways have learnt."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.documenttext import parse_json
from mirage.wholefile import draft_of

if TYPE_CHECKING:
    from pathlib import Path

_ADDRESS, _LEARNT = "address.json", "learnt.json"


@dataclass(frozen=True, slots=True)
class Address:
    """One gateway."""

    url: str
    token: str
    """Its operator's key: the file is for its owner alone."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """On a file system that all links, and the front, see."""

    path: Path

    def make(self) -> None:
        """For its owner alone."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read_address(self) -> Address | None:
        """Who answers now; ``None`` where nobody has said so."""
        document = self._read(_ADDRESS)
        if document is None or not all(isinstance(document.get(key), str) for key in ("url", "token")):
            return None
        return Address(document["url"], document["token"])

    def write_address(self, address: Address) -> None:
        """From now on it is this one."""
        self._write(_ADDRESS, {"url": address.url, "token": address.token})

    def read_learnt(self) -> dict[str, dict[str, float]]:
        """Seconds of a request by model and kind; what is damaged is as good as nothing."""
        document = self._read(_LEARNT) or {}
        return {
            model: {kind: float(seconds) for kind, seconds in of.items() if _is_time(seconds)}
            for model, of in document.items()
            if isinstance(of, dict)
        }

    def write_learnt(self, learnt: dict[str, dict[str, float]]) -> None:
        """For the next gateway."""
        self._write(_LEARNT, learnt)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            document = parse_json((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        """For its owner alone from the first byte on: there is a key in it."""
        with draft_of(self.path / name) as draft:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(document), encoding="utf-8")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
