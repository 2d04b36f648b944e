"""Access to metrics, and to the test of notification channels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from serving import serving

from mirage.api.access.caller import Scope
from mirage.api.listening import Listening
from mirage.api.port import Telemetry
from mirage.api.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World
    from network_world import Network

TEXT = b"# TYPE mirage_up gauge\nmirage_up 1.0\n"


def exposed(accept: str) -> tuple[bytes, str]:
    return (
        (TEXT, "application/openmetrics-text; version=1.0.0") if "openmetrics" in accept else (TEXT, "text/plain")
    )


def tried(asker: str) -> dict[str, str]:
    return {"webhook": "sent", "mail": f"no answer for {asker}"}


def test_administrators_try_the_channels(world: World) -> None:
    with serving(world, telemetry=Telemetry(test=tried)) as here:
        assert here.call("POST", "/api/v1/notifications/test", user="daemon")[0] == 403
        status, document = here.call("POST", "/api/v1/notifications/test", user="bin")
    assert status == 200
    assert document["channels"] == [
        {"channel": "webhook", "result": "sent"},
        {"channel": "mail", "result": "no answer for bin"},
    ]


@pytest.fixture
def open_to(network: Network, tmp_path) -> Iterator:
    """The network's server again, with scrapers as given."""
    servers: list[ApiServer] = []

    def start(scrapers: str) -> Network:
        service = replace(network.server.service, telemetry=Telemetry(exposed, scrapers))
        server = ApiServer(service, tmp_path / f"{scrapers}.sock", Listening.of("127.0.0.1:0"))
        server.start()
        servers.append(server)
        return replace(network, server=server)

    yield start
    for server in servers:
        server.stop()


def test_a_program_of_this_machine_scrapes_and_nobody_through_a_proxy_on_it(open_to) -> None:
    here = open_to("loopback")
    answer = here.call("GET", "/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert (answer.status, answer.body) == (200, TEXT.decode())
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    for header in ("X-Forwarded-For", "Forwarded", "Via"):
        assert here.call("GET", "/metrics", **{header.replace("-", "_"): "10.0.0.1"}).status == 401
    assert here.call("GET", "/api/v1/chains").status == 401, "that opens nothing else"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8642", "localhost.", "127.0.0.1:80", "[::1]:8642", "127.9.9.9"]
)
def test_loopback_scrape_names_loopback_as_host(open_to, host: str) -> None:
    assert open_to("loopback").call("GET", "/metrics", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "[::1",
        "0.0.0.0",
    ],
)
def test_loopback_scrape_of_another_host_name_is_rejected(open_to, host: str) -> None:
    """A page elsewhere whose name suddenly leads to this machine: the browser says that name."""
    assert open_to("loopback").call("GET", "/metrics", Host=host).status == 401


def test_where_nobody_may_a_token_does(open_to) -> None:
    here = open_to("nobody")
    assert here.call("GET", "/metrics").status == 401
    token = here.token(scope=Scope.READ)
    assert here.with_token("GET", "/metrics", token).status == 200
    assert open_to("anybody").call("GET", "/metrics", X_Forwarded_For="10.0.0.1").status == 200


def test_every_user_of_the_socket_may_scrape(world: World) -> None:
    import http.client
    import socket

    with serving(world, telemetry=Telemetry(exposed)) as here:
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(here.socket))
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, TEXT)
        connection.close()
