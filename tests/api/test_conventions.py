"""Rules for all endpoints: problems, pages, tags, repeated requests, bounds, headers, the audit, readiness."""

from __future__ import annotations

import logging
import os
import pwd
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from api_world import call, definition
from network_world import CHAINS, TOKENS, slurm_token

from mirage.api.access.rates import RateLimiter, TooOften
from mirage.api.conventions.bodies import LARGEST
from mirage.api.server import ApiServer
from mirage.bootstrap.readiness import ReadinessCheck
from mirage.control.clocks import Pace, Pacing
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT
from mirage.domain.snapshot import Snapshot
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from pathlib import Path

    from network_world import Answer, Network

    from mirage.domain.chain import ChainId
    from mirage.domain.command import Command

ADA, BOB, CHIEF = slurm_token("ada"), slurm_token("bob"), slurm_token("chief")
AUDIT = "/api/v1/audit"


def post(network: Network, path: str, body: Any = None, token: str = ADA, **headers: str) -> Answer:
    return network.call("POST", path, body, Authorization=f"Bearer {token}", **headers)


def get(network: Network, path: str, token: str = ADA, **headers: str) -> Answer:
    return network.call("GET", path, None, Authorization=f"Bearer {token}", **headers)


# Problems


def test_a_fault_tells_a_number_and_nothing_else(
    network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(chain: ChainId, limit: int) -> tuple[()]:
        raise ZeroDivisionError("the secret of the house")

    post(network, CHAINS, definition())
    token, body = network.token("ada"), f"{CHAINS}/train-k3q9/explain"
    faulty = ApiServer(
        replace(network.server.service, entries=fail), tmp_path / "f.sock", network.server._listening
    )
    faulty.start()
    network.server, whole = faulty, network.server
    with caplog.at_level(logging.ERROR):
        answer = network.with_token("GET", body, token)
    network.server = whole
    faulty.stop()
    assert answer.status == answer.body["status"] == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in str(answer)
    number = answer.headers["x-request-id"]
    assert number in answer.body["detail"]
    assert any(number in record.message and record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("PATCH", CHAINS, {}, None, 405),
        ("GET", "/api/v1/nothing", {}, None, 404),
        ("POST", CHAINS, {"Content_Type": "text/plain"}, "{}", 415),
        ("POST", CHAINS, {"Content_Type": "application/x-www-form-urlencoded"}, "a=b", 415),
        ("POST", CHAINS, {}, "[1", 422),
        ("POST", TOKENS, {}, {"scope": "god"}, 422),
        ("GET", f"{CHAINS}?limit=0", {}, None, 422),
        ("GET", f"{CHAINS}?limit=x", {}, None, 422),
        ("GET", f"{CHAINS}?cursor=%21", {}, None, 422),
        ("GET", f"{CHAINS}?status=happy", {}, None, 422),
    ],
)
def test_all_problems_have_one_form(
    network: Network, method: str, path: str, headers: dict[str, str], body: Any, status: int
) -> None:
    answer = network.call(method, path, body, **headers, Authorization=f"Bearer {ADA}")
    assert (answer.status, answer.body["status"], answer.body["type"]) == (status, status, "about:blank"), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body["detail"]
    assert ("allow" in answer.headers) == (status == 405)


def test_every_answer_keeps_browsers_careful(network: Network) -> None:
    for answer in (network.call("GET", "/healthz"), network.call("GET", "/none"), network.call("GET", CHAINS)):
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_portals_may_show_the_page_where_the_configuration_says_so(network: Network, tmp_path: Path) -> None:
    portal = ("https://ondemand.example.org",)
    server = ApiServer(replace(network.server.service, frame_ancestors=portal), tmp_path / "p.sock")
    server._listening, network.server = network.server._listening, server
    server.start()
    answer = network.call("GET", "/healthz")
    server.stop()
    assert "frame-ancestors 'self' https://ondemand.example.org" in answer.headers["content-security-policy"]
    assert "x-frame-options" not in answer.headers


# Pages and tags


def test_pages_show_every_chain_once_in_order(network: Network) -> None:
    ids = [owned_id(f"c{place}", "ada") for place in range(7)]
    for chain_id in ids:
        assert post(network, CHAINS, definition(chain_id)).status == 201
    seen, path = [], f"{CHAINS}?limit=3"
    while path:
        answer = get(network, path)
        seen.append([chain["id"] for chain in answer.body["chains"]])
        link = answer.headers.get("link", "")
        assert bool(link) == bool(answer.body["next"])
        path = link.removeprefix("<").removesuffix('>; rel="next"')
    assert [len(page) for page in seen] == [3, 3, 1]
    assert [chain for page in seen for chain in page] == ids
    gone = get(network, f"{CHAINS}?cursor={quote('Z29uZQ')}")
    assert (gone.status, "without a cursor" in gone.body["detail"]) == (422, True)


def test_a_page_has_a_hundred_chains_where_nobody_says(network: Network) -> None:
    post(network, CHAINS, definition())
    (record,) = network.loop.records
    ids = [f"c{place}" for place in range(130)]
    network.loop.records = [replace(record, chain=replace(record.chain, chain_id=each)) for each in ids]
    while len(network.loop.status.chains) < len(ids):
        time.sleep(0.01)
    first = get(network, CHAINS)
    second = get(network, first.headers["link"].removeprefix("<").partition(">")[0])
    assert [chain["id"] for page in (first, second) for chain in page.body["chains"]] == ids
    assert (len(first.body["chains"]), second.body["next"]) == (100, None)


def test_lists_are_filtered(network: Network) -> None:
    post(network, CHAINS, definition("a"))
    post(network, CHAINS, definition("b"))
    post(network, CHAINS, definition("c"), BOB)
    post(network, f"{CHAINS}/a/pause")
    post(network, f"{CHAINS}/b/cancel")

    def ids(query: str, token: str = ADA) -> list[str]:
        return [chain["id"].partition(".")[0] for chain in get(network, f"{CHAINS}?{query}", token).body["chains"]]

    assert ids("") == ["a", "b"]
    assert ids("status=paused") == ["a"]
    assert ids("status=paused&status=stopped") == ["a", "b"]
    assert ids("live=true") == ["a"]
    assert ids("user=bob") == []
    assert ids("all=true&user=bob", CHIEF) == ["c"]
    assert ids("partition=none") == []


def test_who_has_the_present_version_is_sent_nothing(network: Network) -> None:
    post(network, CHAINS, definition())
    network.loop.ended.set()
    for path in (CHAINS, f"{CHAINS}/train-k3q9"):
        first = get(network, path)
        again = get(network, path, If_None_Match=f'"x", W/{first.headers["etag"]}')
        assert (again.status, again.body, again.headers["etag"]) == (304, "", first.headers["etag"])
    network.loop.cycle()
    assert get(network, CHAINS, If_None_Match=first.headers["etag"]).status == 200
    other = get(network, CHAINS, BOB)
    assert other.headers["etag"] != get(network, CHAINS).headers["etag"], "what is kept is kept for each caller"
    assert other.body["chains"] == []


# The same request again


def test_a_request_that_is_sent_again_is_not_carried_out_again(network: Network) -> None:
    first = post(network, CHAINS, definition(), Idempotency_Key="k-1")
    again = post(network, CHAINS, definition(), Idempotency_Key="k-1")
    assert (first.status, again.status, again.body) == (201, 201, first.body)
    assert again.headers["idempotent-replayed"] == "true"
    assert len(network.loop.records) == 1
    other = post(network, CHAINS, definition("other"), Idempotency_Key="k-1")
    assert (other.status, "another request" in other.body["detail"]) == (422, True)
    assert post(network, CHAINS, definition("bobs"), BOB, Idempotency_Key="k-1").status == 201, "keys are callers'"
    assert post(network, CHAINS, definition(), Idempotency_Key="k-2").status == 409
    assert post(network, CHAINS, definition("x"), Idempotency_Key="k" * 201).status == 400
    assert network.call("POST", CHAINS, definition("y"), Idempotency_Key="k-3").status == 401
    assert len(network.store.audit.read()) == 2


def test_a_secret_is_not_kept_for_who_asks_again(network: Network) -> None:
    one = network.in_browser("POST", TOKENS, "ada", {}, Idempotency_Key="t")
    two = network.in_browser("POST", TOKENS, "ada", {}, Idempotency_Key="t")
    assert one.body["token"] != two.body["token"]
    assert network.store.answers.find("ada", "t", 0) is None


def test_the_same_request_while_the_first_is_answered_is_told_so(network: Network, tmp_path: Path) -> None:
    asked, promise = threading.Event(), Future[str]()

    def ask(command: Command) -> Future[str]:
        asked.set()
        return promise

    server = ApiServer(replace(network.server.service, ask=ask), tmp_path / "s.sock", network.server._listening)
    server.start()
    network.server, whole = server, network.server
    answers: list[Answer] = []
    first = threading.Thread(
        target=lambda: answers.append(post(network, CHAINS, definition(), Idempotency_Key="k"))
    )
    first.start()
    assert asked.wait(60)
    second = post(network, CHAINS, definition(), Idempotency_Key="k")
    promise.set_result("done")
    first.join()
    network.server = whole
    server.stop()
    assert (second.status, "still in progress" in second.body["detail"]) == (409, True)
    assert answers[0].status == 201


# Bounds


def test_what_is_too_large_is_not_read(network: Network) -> None:
    answer = post(network, TOKENS, '{"label": "' + "x" * LARGEST + '"}')
    assert (answer.status, "longer than" in answer.body["detail"]) == (413, True)
    keyed = post(network, CHAINS, "[" + " " * LARGEST + "]", Idempotency_Key="big")
    assert keyed.status == 413


def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    now = [0.0]
    rates = RateLimiter(2.0, 3, lambda: now[0])
    for _ in range(3):
        rates.take("ada")
    with pytest.raises(TooOften) as refused:
        rates.take("ada")
    assert refused.value.wait == 1
    rates.take("bob")
    now[0] += refused.value.wait
    rates.take("ada")
    rates.take("ada")
    with pytest.raises(TooOften):
        rates.take("ada")
    for place in range(30_000):
        rates.take(f"u{place}")
    assert len(rates._levels) <= 10_001


def test_rates_of_who_asks_most_outlast_a_flood_of_others() -> None:
    rates = RateLimiter(0.001, 3, lambda: 0.0)
    for _ in range(3):
        rates.take("mallory")
    for place in range(30_000):
        rates.take(f"2001:db8::{place:x}")
    with pytest.raises(TooOften):
        rates.take("mallory")


def test_the_bound_holds_at_every_address(network: Network, tmp_path: Path) -> None:
    gate = replace(network.gate, rates=RateLimiter(0.001, 2))
    server = ApiServer(replace(network.server.service, gate=gate), tmp_path / "r.sock")
    server.start()
    answers = [call(str(tmp_path / "r.sock"), "GET", path, None)[0] for path in (CHAINS, AUDIT, TOKENS)]
    assert answers == [200, 200, 429]
    assert call(str(tmp_path / "r.sock"), "GET", "/healthz", None)[0] == 200
    server.stop()


# The audit


def test_every_change_is_in_the_audit_and_reading_is_not(network: Network) -> None:
    post(network, CHAINS, definition())
    get(network, CHAINS)
    post(network, f"{CHAINS}/train/pause")
    post(network, CHAINS, "{")
    made = network.in_browser("POST", TOKENS, "ada", {}).body
    network.with_token("POST", f"{CHAINS}/train/resume", made["token"])
    network.audited(4)
    answer = get(network, AUDIT, CHIEF)
    lines = [
        (line["user"], line["how"], line["action"], line["chain"], line["result"])
        for line in answer.body["entries"]
    ]
    assert lines == [
        ("ada", f"token {made['id']}", f"POST {CHAINS}/train/resume", None, "rejected (403)"),
        ("ada", "session", f"create token {made['id']} of scope read for ada", None, "done"),
        ("ada", "jwt", "pause", owned_id("train-k3q9", "ada"), "done"),
        ("ada", "jwt", "create chain for ada", owned_id("train-k3q9", "ada"), "done"),
    ]
    assert {line["time"] for line in answer.body["entries"]} == {"2023-11-14T22:13:20Z"}
    assert get(network, AUDIT).status == 403


def test_the_audit_comes_in_pages(network: Network) -> None:
    for place in range(5):
        post(network, CHAINS, definition(f"c{place}"))
    first = get(network, f"{AUDIT}?limit=2", CHIEF)
    second = get(network, f"{AUDIT}?limit=2&cursor={first.body['next']}", CHIEF)
    third = get(network, f"{AUDIT}?limit=2&cursor={second.body['next']}", CHIEF)
    chains = [line["chain"] for page in (first, second, third) for line in page.body["entries"]]
    assert chains == [owned_id(f"c{number}", "ada") for number in (4, 3, 2, 1, 0)]
    assert third.body["next"] is None
    assert [line["chain"] for line in get(network, f"{AUDIT}?chain={chains[1]}", CHIEF).body["entries"]] == [
        chains[1]
    ]
    assert get(network, f"{AUDIT}?cursor=eA", CHIEF).status == 422


def test_anothers_chain_is_as_if_there_were_none_but_for_the_audit(network: Network) -> None:
    bobs = owned_id("bobs-x1", "bob")
    post(network, CHAINS, definition("bobs-x1"), BOB)
    for method, tail in [("GET", ""), ("GET", "/explain"), ("POST", "/pause"), ("POST", "/cancel")]:
        real = network.with_token(method, f"{CHAINS}/{bobs}{tail}", ADA)
        none = network.with_token(method, f"{CHAINS}/{bobs.replace('x1', 'x2')}{tail}", ADA)
        assert (real.status, none.status) == (404, 404)
        assert real.body["detail"].replace("x1", "x2") == none.body["detail"]
        assert real.headers.keys() == none.headers.keys()
    none = bobs.replace("x1", "x2")
    lines = [line for line in network.audited(9) if line.user == "ada"]
    told = [(line.chain, line.result) for line in lines]
    assert told == [(bobs, "another's chain"), (none, "no such chain")] * 4
    assert lines[6].action == f"POST {CHAINS}/{bobs}/cancel"


def test_on_the_socket_the_audit_knows_the_uid(network: Network) -> None:
    call(str(network.server._path), "POST", CHAINS, definition())
    (line,) = network.store.audit.read()
    assert (line.entry.uid, line.entry.how) == (os.getuid(), "socket")
    assert line.entry.user == pwd.getpwuid(os.getuid()).pw_name


# Readiness


def test_readiness_names_what_is_wrong(network: Network, tmp_path: Path) -> None:
    status, now = replace(network.loop.status, cycles=0), network.loop.status.time
    pace = Pace(Pacing(interval=60), None)  # type: ignore[arg-type]
    ready = ReadinessCheck(lambda: status, lambda: now, pace, network.store, str)
    early = "the first poll of the cluster has not ended"
    assert ready() == {"leadership": "", "cycle": "", "snapshot": early, "store": ""}
    status, ready._known = (
        replace(status, snapshot=replace(Snapshot.unseen(now), stale_since=ABSENT), cycles=1),
        (-10.0, {}),
    )
    assert ready() == {"leadership": "", "cycle": "", "snapshot": "", "store": ""}
    now, ready._known = now + 181, (-10.0, {})
    assert ready()["snapshot"] == "the last snapshot of the cluster is 181 s old"
    server = ApiServer(replace(network.server.service, readiness=ready), tmp_path / "r.sock")
    server.start()
    status_code, document = call(str(tmp_path / "r.sock"), "GET", "/readyz", None)
    server.stop()
    assert (status_code, document["ready"]) == (503, False)
    assert document["checks"] == {"leadership": True, "cycle": True, "snapshot": False, "store": True}
    assert document["troubles"] == {"snapshot": "the last snapshot of the cluster is 181 s old"}


def test_daemon_whose_cycles_fail_is_not_ready(network: Network) -> None:
    """Such as on a database that was put back: it takes the trial of readiness, and nothing else."""
    pace = Pace(Pacing(), None)  # type: ignore[arg-type]
    status = network.loop.status
    ready = ReadinessCheck(lambda: status.failing("put back"), lambda: status.time, pace, network.store, str)
    assert ready()["cycle"] == "put back"


def test_a_store_that_cannot_be_written_is_said(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(work: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(network.store.database, "write", refuse)
    pace = Pace(Pacing(), None)  # type: ignore[arg-type]
    ready = ReadinessCheck(lambda: network.loop.status, lambda: 0, pace, network.store, str)
    assert ready()["store"] == "the disk is full"


def test_strangers_learn_only_whether_it_lives(network: Network) -> None:
    assert network.call("GET", "/healthz").body["sentence"] is None
    assert get(network, "/healthz").body["sentence"] is not None
    assert network.call("GET", "/readyz").body["troubles"] is None
