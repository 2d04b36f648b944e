"""A daemon as a process: scraped over the network, its messages on their way to a real HTTP server."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from sites import Site, running_site

from mirage.cli.daemon import check_command
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def heard() -> Iterator[tuple[str, list[dict]]]:
    """A web server's address and the requests it received."""
    told: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook", told
    server.shutdown()
    thread.join()
    server.server_close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def observe(site: Site, url: str) -> str:
    """Configures it; where it is to be scraped."""
    (site.folder / "hook.url").write_text(url)
    address = f"127.0.0.1:{free_port()}"
    with site.config.open("a") as config:
        config.write(
            f'[api]\nlisten = "{address}"\n[notifications.webhook]\nurl_file = "{site.folder}/hook.url"\n'
            'events = ["link-submitted", "chain-done"]\n'
        )
    return f"http://{address}/metrics"


def test_a_daemon_is_scraped_and_tells_people(tmp_path: Path, heard: tuple[str, list[dict]]) -> None:
    url, told = heard
    with running_site(tmp_path) as site:
        scrape = observe(site, url)
        site.add_chain(links=2)

        def value(series: str) -> float:
            with urllib.request.urlopen(scrape, timeout=30) as answer:
                lines = answer.read().decode().splitlines()
            return float(next((line.split()[-1] for line in lines if line.startswith(f"{series} ")), "nan"))

        with site.daemon():
            wait_until(lambda: any(notice["event"] == "chain-done" for notice in told), "the chain's end")
            wait_until(lambda: value('mirage_chains{status="done"}') == 1, "the last cycle's state")
            assert value('mirage_submissions_total{result="accepted"}') == 2
            assert value("mirage_interruption_seconds_count") == 1
            wait_until(
                lambda: value('mirage_notifications_total{channel="webhook",result="sent"}') == 3, "the counts"
            )
            submitted = [notice for notice in told if notice["event"] == "link-submitted"]
            assert [(notice["chain"], notice["link"]) for notice in submitted] == [("svc", 1), ("svc", 2)]
            assert site.client.post("/notifications/test", {})["channels"] == [
                {"channel": "webhook", "result": "sent"}
            ]
            assert told[-1]["event"] == "test"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[notifications.webhook]\nurl_file = "/nowhere/url"',
            r"notifications.webhook.url_file: /nowhere/url cannot",
        ),
        (
            '[notifications.mail]\nserver = "mail:25"\nuser = "me"',
            r"notifications.mail.user: set both user and password",
        ),
        (
            '[notifications.mail]\nserver = "mail:25"\nuser = "me"\npassword_file = "/x"',
            r"notifications.mail.security: a password requires starttls or tls",
        ),
        ('[notifications.mail]\nserver = "mail"', r"notifications.mail.server"),
        ('[notifications.mail]\nowners = "everybody@example.org"', r"notifications.mail.owners"),
        ('[notifications.mail]\nevents = ["gap", "boredom"]', r"notifications.mail.events.1"),
        ("[notifications]\nlate = 0", r"notifications.late"),
    ],
)
def test_what_cannot_work_stops_the_start_and_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(text + "\n")
    with pytest.raises(ConfigError, match=words):
        check_command(str(file))
