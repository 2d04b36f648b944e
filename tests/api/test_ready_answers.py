"""An answer that is ready goes out by a shorter way, and nothing that holds for the longer one is left out."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from network_world import CHAINS, slurm_token

from mirage.api.access.caller import Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.rates import RateLimiter
from mirage.api.conventions import caching
from mirage.api.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from network_world import Answer, Network

ADA, BOB, CHIEF = slurm_token("ada"), slurm_token("bob"), slurm_token("chief")


def get(network: Network, path: str = CHAINS, token: str = ADA, **headers: str) -> Answer:
    return network.call("GET", path, None, Authorization=f"Bearer {token}", **headers)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request that came to the layer was answered by it."""
    taken: list[bool] = []
    find = caching.ReadyAnswers.find

    def noting(self: caching.ReadyAnswers, *asked: Any) -> Any:
        answer = find(self, *asked)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(caching.ReadyAnswers, "find", noting)
    return taken


@pytest.fixture
def still(network: Network, found: list[bool]) -> Network:
    """Chains of ada's, in a state that lasts, with her list ready."""
    for name in ("a1", "a2", "a3"):
        body = definition(name)
        assert network.call("POST", CHAINS, body, Authorization=f"Bearer {ADA}").status == 201
    network.loop.ended.set()
    seen = None
    while seen is not network.loop.status:
        seen = network.loop.status
        time.sleep(0.1)
    assert len(get(network).body["chains"]) == 3
    found.clear()
    return network


def test_who_asks_again_gets_the_same_by_the_shorter_way(still: Network, found: list[bool]) -> None:
    again, once_more = get(still), get(still)
    assert found == [True, True]
    assert [chain["id"].partition(".")[0] for chain in again.body["chains"]] == ["a1", "a2", "a3"]
    numbers = {again.headers.pop("x-request-id"), once_more.headers.pop("x-request-id")}
    assert len(numbers) == 2, "each request has a unique ID"
    for answer in (again, once_more):
        answer.headers.pop("date", None)
    assert again == once_more
    assert "default-src 'self'" in again.headers["content-security-policy"]
    assert again.headers["cache-control"] == "no-cache, private"


def test_what_was_asked_counts(still: Network, found: list[bool]) -> None:
    page = get(still, f"{CHAINS}?limit=2")
    assert [chain["id"].partition(".")[0] for chain in page.body["chains"]] == ["a1", "a2"]
    again = get(still, f"{CHAINS}?limit=2")
    assert (again.body, again.headers["link"]) == (page.body, page.headers["link"])
    assert found == [False, True]
    assert get(still, f"{CHAINS}?limit=0").status == 422
    assert get(still, f"{CHAINS}?limit=0").status == 422


def test_who_asks_counts(still: Network, found: list[bool]) -> None:
    assert get(still, token=BOB).body["chains"] == []
    assert get(still, token=BOB).body["chains"] == []
    assert get(still, token=still.token("ada")).body["chains"] == get(still).body["chains"]
    assert get(still, f"{CHAINS}?all=true", CHIEF).status == 200
    assert get(still, f"{CHAINS}?all=true").status == 403
    assert found == [False, True, False, True, False, False]


def test_nobody_gets_it_without_proof(still: Network, found: list[bool]) -> None:
    assert still.call("GET", CHAINS).status == 401
    assert get(still, token="mirage_wrong").status == 401
    assert get(still, token=slurm_token("ada", exp=1_000)).status == 401
    assert found == []


def test_a_token_that_is_revoked_counts_no_more(still: Network, found: list[bool]) -> None:
    text, token = still.gate.tokens.create("ada", "test", Scope.READ, 0)
    assert [get(still, token=text).status for _ in range(2)] == [200, 200]
    still.gate.tokens.revoke(token.token_id)
    assert get(still, token=text).status == 401
    assert found == [False, True]


def test_the_policy_of_the_moment_counts(still: Network, found: list[bool]) -> None:
    still.policies.append(AccessPolicy(users={"ada": None}))
    refused = get(still)
    assert (refused.status, refused.headers["content-type"]) == (403, "application/problem+json")
    assert "x-request-id" in refused.headers
    assert found == []


def test_attempts_that_prove_nothing_are_counted(still: Network) -> None:
    assert [get(still, token="mirage_wrong").status for _ in range(25)][-1] == 429
    assert get(still).status == 200, "a good token continues counting"


def test_each_request_is_logged(still: Network, caplog: pytest.LogCaptureFixture, found: list[bool]) -> None:
    with caplog.at_level(logging.DEBUG, "mirage.requests"):
        asked = [get(still).headers["x-request-id"] for _ in range(3)]
        asked.append(still.call("GET", CHAINS).headers["x-request-id"])
        lines = _lines(caplog, asked)
    assert [line.fields["request"] for line in lines] == asked
    assert [(line.fields["caller"], line.fields["status"]) for line in lines] == [("ada", 200)] * 3 + [("", 401)]
    assert found == [True] * 3


def _lines(caplog: pytest.LogCaptureFixture, asked: list[str]) -> list[Any]:
    """Lines of the requests ``asked``, when all are written: a client may get its answer before its line."""
    for _ in range(600):
        written = [record for record in caplog.records if record.name == "mirage.requests"]
        lines = [line for line in written if line.fields["request"] in asked]
        if len(lines) == len(asked):
            break
        time.sleep(0.05)
    return lines


def test_a_client_that_has_it_is_told_so(still: Network, found: list[bool]) -> None:
    tag = get(still).headers["etag"]
    for said in (tag, f'"other", W/{tag}', "*"):
        answer = get(still, If_None_Match=said)
        assert (answer.status, answer.body, answer.headers["etag"]) == (304, "", tag)
        assert not answer.headers.get("content-type")
    assert get(still, If_None_Match='"other"').status == 200
    assert found == [True] * 5


def test_other_methods_go_their_own_way(still: Network, found: list[bool]) -> None:
    for method in ("PUT", "PATCH", "DELETE"):
        assert still.call(method, CHAINS, None, Authorization=f"Bearer {ADA}").status == 405
    assert found == []


def test_another_state_has_another_answer(still: Network, found: list[bool]) -> None:
    before = get(still)
    still.loop.status = replace(still.loop.status, chains=still.loop.status.chains[:1])
    after = get(still, If_None_Match=before.headers["etag"])
    assert (after.status, [chain["id"].partition(".")[0] for chain in after.body["chains"]]) == (200, ["a1"])
    assert get(still).body == after.body
    assert found == [True, False, True]


@pytest.fixture
def bounded(still: Network, tmp_path: Path) -> Iterator[Network]:
    """The same with a bucket of three requests each."""
    gate = replace(still.gate, rates=RateLimiter(0.001, 3))
    server = ApiServer(replace(still.server.service, gate=gate), tmp_path / "b.sock", still.server._listening)
    server.start()
    still.server, whole = server, still.server
    yield still
    still.server = whole
    server.stop()


def test_each_request_takes_from_its_callers_bucket(bounded: Network) -> None:
    answers = [get(bounded) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "retry in" in answers[-1].body["detail"]
    assert get(bounded, token=BOB).status == 200, "others have separate ones"


def test_what_is_kept_is_bounded(still: Network) -> None:
    app_paths = [f"{CHAINS}?limit={number}" for number in range(1, caching.MOST + 10)]
    assert {get(still, path).status for path in app_paths} == {200}
    assert get(still).body["chains"]
