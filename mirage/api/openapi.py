"""Writes the API description: ``python -m mirage.api.openapi FILE``."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from pathlib import Path

from mirage.api.app import create_app
from mirage.api.port import ApiService
from mirage.control.status import Status
from mirage.domain.snapshot import Snapshot


def description() -> str:
    """Return the OpenAPI description as JSON in a fixed order, so that diffs stay small."""
    nobody = ApiService(
        status=lambda: Status(0, "", Snapshot.unseen(0)),
        ask=lambda command: Future(),
        entries=lambda chain, limit: (),
    )
    return json.dumps(create_app(nobody).openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(description(), encoding="utf-8")
