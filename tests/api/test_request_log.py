"""Each request has a log line with the ID that its answer carries."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from network_world import Network


def test_the_log_names_the_request_as_its_answer_does(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    token = network.token()
    with caplog.at_level(logging.DEBUG, "mirage.requests"):
        looked = network.with_token("GET", "/api/v1/chains?all=false&secret=1", token)
        changed = network.with_token("POST", "/api/v1/chains/none/pause", token)
        # A client may have its answer before the line is written.
        for _ in range(600):
            lines = [record for record in caplog.records if record.name == "mirage.requests"]
            if len(lines) == 2:
                break
            time.sleep(0.05)
    assert [line.fields["request"] for line in lines] == [
        answer.headers["x-request-id"] for answer in (looked, changed)
    ]
    assert [line.levelname for line in lines] == ["DEBUG", "INFO"]
    assert [(line.fields["caller"], line.fields["status"]) for line in lines] == [("ada", 200), ("ada", 404)]
    assert "secret" not in caplog.text
    assert token not in caplog.text
