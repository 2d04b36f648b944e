"""The network address: authentication and scopes."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from api_world import definition
from network_world import CHAINS, TOKENS, slurm_token

from mirage.api.access.caller import Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.tokens import TokenBook
from mirage.api.listening import Listening
from mirage.api.server import ApiServer
from mirage.client.client import Client
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from network_world import Network


def test_nobody_in_particular_sees_nothing(network: Network) -> None:
    answer = network.call("GET", CHAINS)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="mirage"')
    assert answer.headers["content-type"] == "application/problem+json"
    assert network.call("POST", CHAINS, definition()).status == 401
    assert network.call("GET", "/healthz").status == 200


def test_a_token_is_its_owner_as_far_as_its_scope_goes(network: Network) -> None:
    operate, read = network.token(), network.token(scope=Scope.READ)
    made = network.with_token("POST", CHAINS, operate, definition())
    assert (made.status, made.body["chain"]["owner"]) == (201, "ada")
    seen = network.with_token("GET", CHAINS, read)
    assert [chain["owner"] for chain in seen.body["chains"]] == ["ada"]
    refused = network.with_token("POST", f"{CHAINS}/train-k3q9/pause", read)
    assert (refused.status, refused.body["detail"]) == (
        403,
        "ada has the scope read; this request requires operate",
    )
    assert network.with_token("GET", CHAINS, network.token("bob")).body["chains"] == []


def test_what_is_kept_of_a_token_is_no_token(network: Network) -> None:
    text = network.token()
    (kept,) = network.gate.tokens.of("ada")
    assert text not in repr(kept)
    assert text.encode() not in kept.digest
    for wrong in (text[:-1] + ("A" if text[-1] != "A" else "B"), text[:15], kept.token_id, "mirage_", "x" * 9_000):
        answer = network.with_token("GET", CHAINS, wrong)
        assert answer.status == 401, wrong
        assert answer.body["detail"] == "invalid token: it is wrong, expired, revoked or not for this daemon"


def test_tokens_are_made_listed_and_revoked_over_the_interface(network: Network) -> None:
    mine = slurm_token("ada")
    wish = {"label": "notebook", "scope": "operate", "lifetime": 60}
    made = network.in_browser("POST", TOKENS, "ada", wish)
    assert made.status == 201
    assert made.headers["cache-control"] == "no-store"
    text, token_id = made.body["token"], made.body["id"]
    assert network.with_token("GET", CHAINS, text).status == 200
    assert network.with_token("POST", TOKENS, text, {}).status == 403, "a token makes no other"
    assert network.in_browser("POST", TOKENS, "ada", {"owner": "bob"}).status == 403
    assert network.with_token("POST", TOKENS, mine, {"colour": "red"}).status == 422
    listed = network.with_token("GET", TOKENS, mine).body["tokens"]
    assert [(each["id"], each["label"], "token" in each) for each in listed] == [(token_id, "notebook", False)]
    other = slurm_token("bob")
    assert network.with_token("GET", TOKENS, other).body["tokens"] == []
    assert network.with_token("GET", f"{TOKENS}?all=true", other).status == 403
    assert network.with_token("DELETE", f"{TOKENS}/{token_id}", other).status == 404
    assert network.with_token("DELETE", f"{TOKENS}/{token_id}", mine).status == 200
    assert network.with_token("GET", CHAINS, text).status == 401


def test_token_that_reads_sees_and_revokes_only_itself(network: Network) -> None:
    reading, other, acting = network.token(scope=Scope.READ), network.token(scope=Scope.READ), network.token()
    ids = {text: network.gate.tokens.find(text).token_id for text in (reading, other, acting)}  # type: ignore[union-attr]
    [own] = network.with_token("GET", "/api/v1/tokens", reading).body["tokens"]
    assert own["id"] == ids[reading]
    for text in (other, acting):
        assert network.with_token("DELETE", f"/api/v1/tokens/{ids[text]}", reading).status == 404
        assert network.with_token("GET", "/api/v1/me", text).status == 200
    assert network.with_token("DELETE", f"/api/v1/tokens/{ids[other]}", acting).status == 200
    assert network.with_token("DELETE", f"/api/v1/tokens/{ids[reading]}", reading).status == 200
    assert network.with_token("GET", "/api/v1/me", reading).status == 401


def test_an_administrator_makes_tokens_for_others_and_sees_all(network: Network) -> None:
    chief = slurm_token("chief")
    made = network.in_browser("POST", TOKENS, "chief", {"owner": "bob", "scope": "read"}).body
    assert network.with_token("POST", CHAINS, network.token("bob"), definition()).status == 201
    (seen,) = network.with_token("GET", CHAINS, made["token"]).body["chains"]
    assert seen["owner"] == "bob"
    assert network.with_token("GET", f"{CHAINS}?all=true", chief).body["chains"][0]["owner"] == "bob"


def test_a_tokens_time_is_over_when_it_said(network: Network) -> None:
    now = [1_000.0]
    book = TokenBook(network.gate.tokens._storage, lambda: now[0])
    text, _ = book.create("ada", "", Scope.READ, 60)
    now[0] += 59
    assert book.find(text) is not None
    now[0] += 1
    assert book.find(text) is None
    assert TokenBook(network.gate.tokens._storage, lambda: 1_001.0).find(text) is not None, "it is in the database"


def test_slurms_token_is_the_user_whom_it_names(network: Network) -> None:
    for headers in ({"Authorization": f"Bearer {slurm_token()}"}, {"X_SLURM_USER_TOKEN": slurm_token()}):
        answer = network.call("POST", CHAINS, definition(f"c{len(headers)}{next(iter(headers))[0]}"), **headers)
        assert answer.body["chain"]["owner"] == "ada", answer.body
    assert network.with_token("GET", "/api/v1/agent/order?wait=0", slurm_token()).status == 403


def test_the_policy_of_the_moment_counts(network: Network) -> None:
    text = network.token("ada", Scope.ADMIN)
    assert network.with_token("GET", f"{CHAINS}?all=true", text).status == 403, (
        "a token gives no more than one has"
    )
    network.policies.append(AccessPolicy(users={"ada": Scope.ADMIN}))
    assert network.with_token("GET", f"{CHAINS}?all=true", text).status == 200
    network.policies.append(AccessPolicy(everybody=None))
    assert network.with_token("GET", CHAINS, text).status == 403
    assert network.call("GET", CHAINS).status == 401
    network.policies.append(AccessPolicy(anonymous=True))
    assert network.call("GET", CHAINS).body["chains"] == []
    assert network.call("POST", CHAINS, definition()).status == 401
    assert network.call("POST", TOKENS, {}).status == 401


# Browsers


def test_a_form_with_a_token_opens_a_session(network: Network) -> None:
    answer = network.call("POST", "/login", urlencode({"token": network.token(), "next": "/chains/x"}))
    assert (answer.status, answer.headers["location"]) == (303, "/chains/x")
    flags = answer.headers["set-cookie"].lower()
    assert "httponly" in flags
    assert "samesite=strict" in flags
    cookie = answer.headers["set-cookie"].split(";")[0]
    assert network.call("GET", CHAINS, Cookie=cookie).status == 200
    assert network.call("GET", CHAINS, Cookie=cookie[:-2]).status == 401
    left = network.call("POST", "/logout", Cookie=cookie)
    assert (left.status, left.headers["location"]) == (303, "/login")
    assert network.call("GET", CHAINS, Cookie=cookie).status == 401, "a copy of the cookie counts no more either"


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "x", "/a\r\nb"])
def test_login_leads_nowhere_else(network: Network, target: str) -> None:
    answer = network.call("POST", "/login", urlencode({"token": network.token(), "next": target}))
    assert answer.headers["location"] == "/"


def test_a_wrong_token_in_the_form_leads_back_to_it(network: Network) -> None:
    answer = network.call("POST", "/login", urlencode({"token": "mirage_x", "next": "/q"}), Accept="text/html,*/*")
    assert (answer.status, answer.headers["location"]) == (303, "/login?failed=1&next=%2Fq")
    assert "set-cookie" not in answer.headers
    assert network.call("POST", "/login", "token=").status == 401


def test_a_session_ends_with_its_token(network: Network) -> None:
    text = network.token()
    cookie = network.cookie(text)
    assert network.call("GET", CHAINS, Cookie=cookie).status == 200
    network.gate.tokens.revoke(network.gate.tokens.of("ada")[0].token_id)
    assert network.call("GET", CHAINS, Cookie=cookie).status == 401


@pytest.mark.parametrize("address", [TOKENS, f"{TOKENS}/link"])
def test_no_token_makes_anything_that_outlives_it(network: Network, address: str) -> None:
    own = {"HX_Request": "true", "Origin": network.server.url, "Sec_Fetch_Site": "same-origin"}
    assert network.call("POST", address, {}, Cookie=network.cookie(network.token()), **own).status == 403
    assert network.call("POST", address, {}, Cookie=network.cookie(slurm_token()), **own).status == 403
    assert network.with_token("POST", address, slurm_token(), {}).status == 403
    assert network.in_browser("POST", address, "ada", {}).status in (200, 201)


def test_a_page_of_another_site_changes_nothing(network: Network) -> None:
    cookie = network.cookie(network.token())
    own, body = network.server.url, definition()
    good = {"Cookie": cookie, "HX_Request": "true"}
    refused: list[dict[str, str]] = [
        {"Cookie": cookie},
        {"Cookie": cookie, "Origin": own},
        good,
        good | {"Origin": "https://evil.example"},
        good | {"Origin": "null"},
        good | {"Sec_Fetch_Site": "cross-site", "Origin": own},
        good | {"Sec_Fetch_Site": "same-site"},
    ]
    for headers in refused:
        assert network.call("POST", CHAINS, body, **headers).status == 403, headers
    assert network.loop.records == []
    assert network.call("POST", CHAINS, body, **good, Origin=own, Sec_Fetch_Site="same-origin").status == 201
    form = urlencode({"token": network.token()})
    assert network.call("POST", "/login", form, Origin="https://evil.example").status == 403


PAGE = "https://mirage.example.org"


@pytest.mark.parametrize("network", [PAGE], indirect=True)
@pytest.mark.parametrize("passed_on", [{}, {"Host": "mirage.example.org"}], ids=["nothing", "host"])
def test_behind_a_proxy_that_passes_on_little_people_log_in_and_act(
    network: Network, passed_on: dict[str, str]
) -> None:
    """Like nginx by default; the daemon has the URL of browsers in ``api.url``."""
    form = urlencode({"token": network.token()})
    browser = {"Origin": PAGE, "Sec_Fetch_Site": "same-origin", **passed_on}
    answer = network.call("POST", "/login", form, **browser)
    assert answer.status == 303
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-mirage_session=")
    assert {"Secure", "HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    assert network.call("GET", CHAINS, Cookie=cookie, **passed_on).status == 200
    acting = {"Cookie": cookie, "HX_Request": "true"}
    assert network.call("POST", CHAINS, definition(), **acting, **browser).status == 201
    strange = {**browser, "Origin": "https://evil.example"}
    answer = network.call("POST", CHAINS, definition("other-1"), **acting, **strange)
    assert answer.status == 403
    assert "https://evil.example" in answer.body["detail"]
    answer = network.call("POST", "/logout", Cookie=cookie, **browser)
    assert "__Host-mirage_session=" in answer.headers["set-cookie"]
    assert network.call("GET", CHAINS, Cookie=cookie, **passed_on).status == 401


@pytest.mark.parametrize("network", [PAGE], indirect=True)
def test_over_tls_the_plain_cookie_counts_for_nothing(network: Network) -> None:
    """Another host of the site could set it."""
    cookie = network.cookie(network.token())
    assert cookie.startswith("mirage_session=")
    assert network.call("GET", CHAINS, Cookie=cookie).status == 200
    assert network.call("GET", CHAINS, Cookie=cookie, Host="mirage.example.org").status == 401


def test_network_login_link_of_another_site_opens_no_session(network: Network) -> None:
    path = network.server.login_link("mallory", Scope.OPERATE).removeprefix(network.server.url)
    for site in ("cross-site", "same-site"):
        answer = network.call("GET", path, Sec_Fetch_Site=site)
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
    assert network.call("GET", path, Sec_Fetch_Site="none").status == 303, "typed, it counts still"


@pytest.mark.parametrize("network", [("127.0.0.1",)], indirect=True, ids=["proxy"])
def test_network_session_over_tls_counts_for_this_host_alone(network: Network) -> None:
    tls = {"X_Forwarded_Proto": "https"}
    cookie = network.cookie(network.token())
    assert cookie.startswith("mirage_session=")
    assert network.call("GET", CHAINS, Cookie=cookie, **tls).status == 401, (
        "any user on this host could have set it"
    )
    answer = network.call("POST", "/login", urlencode({"token": network.token()}), **tls)
    name, *flags = answer.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-mirage_session=")
    assert {"Secure", "Path=/"} <= set(flags)
    assert not any(flag.lower().startswith("domain") for flag in flags)
    assert network.call("GET", CHAINS, Cookie=name, **tls).status == 200
    left = network.call("POST", "/logout", Cookie=name, **tls)
    assert left.headers["set-cookie"].startswith("__Host-mirage_session=")


def test_a_link_lets_a_browser_in_once(network: Network) -> None:
    link = network.server.login_link("ada", Scope.OPERATE)
    path = link.removeprefix(network.server.url)
    answer = network.call("GET", path)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].split(";")[0]
    made = network.call("POST", CHAINS, definition(), Cookie=cookie, HX_Request="1", Origin=network.server.url)
    assert made.body["chain"]["owner"] == "ada"
    assert network.call("GET", path).status == 401
    assert network.call("GET", "/enter").status == 401
    told = network.call("GET", path, Accept="text/html")
    assert (told.status, told.headers["location"]) == (303, "/login?used=1"), "a person gets a page"
    asked = network.in_browser("POST", f"{TOKENS}/link", "ada")
    assert asked.body["url"].startswith(f"{network.server.url}/enter?ticket=")
    assert network.call("GET", asked.body["url"].removeprefix(network.server.url)).status == 303


def test_who_proves_nothing_again_and_again_has_to_wait(network: Network) -> None:
    answers = [network.with_token("GET", CHAINS, "mirage_wrong") for _ in range(22)]
    assert {answer.status for answer in answers} == {401, 429}
    assert answers[-1].status == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert network.with_token("GET", CHAINS, network.token()).status == 200, "others behind that proxy continue"


# The address itself


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("8421", "expected an address"),
        ("127.0.0.1:99999", "expected an address"),
        ("example.org:80", "expected an address"),
        ("999.0.0.1:80", "not an IP address"),
        ("0.0.0.0:8421", "can reach 0.0.0.0"),
        ("[::]:8421", "can reach ::"),
    ],
)
def test_addresses_that_are_refused(address: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Listening.of(address)


def test_an_open_address_takes_a_certificate_or_a_proxy(tmp_path: Path) -> None:
    assert Listening.of("0.0.0.0:8421", proxies=("10.0.0.0/8",)).url == "http://0.0.0.0:8421"
    with pytest.raises(ConfigError, match="there is no file"):
        Listening.of("0.0.0.0:8421", str(tmp_path / "no.pem"))
    with pytest.raises(ConfigError, match="IP addresses or networks"):
        Listening.of("0.0.0.0:8421", proxies=("proxy.example",))
    assert Listening.of("localhost:1").url == "http://127.0.0.1:1"
    assert Listening.of("[::1]:1").url == "http://[::1]:1"


def test_administrator_makes_no_token_that_acts_for_another(network: Network) -> None:
    for scope, status in (("operate", 403), ("admin", 403), ("read", 201)):
        answer = network.in_browser("POST", TOKENS, "chief", {"owner": "ada", "scope": scope})
        assert answer.status == status, scope
    text, token_id = answer.body["token"], answer.body["id"]
    assert network.with_token("GET", CHAINS, text).status == 200
    assert network.with_token("POST", CHAINS, text, definition()).status == 403
    assert [(line.user, line.action) for line in network.audited(4) if line.result == "done"] == [
        ("chief", f"create token {token_id} of scope read for ada")
    ]


def test_taken_port_leaves_the_socket_and_is_tried_again(
    network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        taken = Listening.of(f"127.0.0.1:{thief.getsockname()[1]}")
        server = ApiServer(replace(network.server.service, url=lambda: ""), tmp_path / "second.sock", taken)
        server.start()
        try:
            for _ in range(3):
                assert not server.reach_out()
            assert caplog.text.count("event=network_address_missing") == 1
            assert server.url == "", "no login link leads to the process that listens there"
            assert Client(str(tmp_path / "second.sock")).version()
            thief.close()
            assert server.reach_out()
            assert not server.reach_out()
            assert Client(server.url).version()
        finally:
            server.stop()
    assert not (tmp_path / "second.sock").exists()


def test_address_that_no_daemon_can_have_is_said(network: Network, tmp_path: Path) -> None:
    never = replace(Listening.of("127.0.0.1:1"), host="::1", port=1)
    never = replace(never, certificate=str(tmp_path / "no.pem"))
    server = ApiServer(replace(network.server.service), tmp_path / "second.sock", never)
    with pytest.raises(ConfigError):
        server.start()
    assert not (tmp_path / "second.sock").exists()
    free = ApiServer(replace(network.server.service), tmp_path / "second.sock", Listening.of("127.0.0.1:0"))
    free.start()
    assert free.running
    free.stop()
