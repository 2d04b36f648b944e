"""Messages through real servers on loopback: an HTTP server, an SMTP server, and ones that misbehave."""

from __future__ import annotations

import json
import socket
import threading
from dataclasses import dataclass, field, replace
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from mirage.domain.errors import ConfigError
from mirage.domain.journal import Notice, NoticeKind
from mirage.notifications.channels import OwnerMail, Postbox, SiteMail, Webhook
from mirage.notifications.delivery import MOST_AN_HOUR, DeliveryQueue, Undeliverable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage
    from pathlib import Path

STUCK = Notice(NoticeKind.STUCK, 1_700_000_000, "it has stopped itself", "train-1", "train", "alice", 3)
SECRET = "T0KEN"


@dataclass
class Hook:
    """An HTTP server that answers with ``statuses``, then 200."""

    statuses: list[int] = field(default_factory=list)
    heard: list[tuple[str, dict]] = field(default_factory=list)
    location: str = ""
    port: int = 0


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.heard.append((self.path, json.loads(body)))
            self.send_response(found.statuses.pop(0) if found.statuses else 200)
            if found.location:
                self.send_header("Location", found.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            found.heard.append((self.path, {}))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def webhook(folder: Path, port: int, **more) -> Webhook:
    file = folder / "hook.url"
    file.write_text(f"http://127.0.0.1:{port}/services/{SECRET}\n")
    return Webhook(file, [NoticeKind.STUCK], **more)


# Webhook


def test_a_program_gets_each_fact_in_a_field(hook: Hook, tmp_path: Path) -> None:
    webhook(tmp_path, hook.port).send(STUCK)
    ((path, document),) = hook.heard
    assert path == f"/services/{SECRET}"
    assert document == {
        "event": "chain-stuck",
        "time": "2023-11-14T22:13:20Z",
        "over": False,
        "text": "it has stopped itself",
        "chain": "train-1",
        "name": "train",
        "owner": "alice",
        "link": 3,
    }


def test_a_chat_gets_one_text_in_which_names_call_nobody(hook: Hook, tmp_path: Path) -> None:
    sly = replace(STUCK, name="<!channel> @all\n&", text="stopped: <http://evil|click>")
    webhook(tmp_path, hook.port, chat=True).send(sly)
    ((_, document),) = hook.heard
    assert list(document) == ["text"]
    assert "<" not in document["text"]
    assert "@all" not in document["text"]
    assert "\n" not in document["text"]
    assert document["text"].endswith("stopped: &lt;http:\u200b//evil|click&gt;")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("http://evil.example/login", "http:|//evil.|example/login"),
        ("HTTPS://1.2.3.4/x", "HTTPS:|//1.2.3.4/x"),
        ("[x](http://evil)", "[x]|(http:|//evil)"),
        ("![x][1]", "![x]|[1]"),
        ("www.evil.com/login", "www|.|evil.|com/login"),
        ("login.evil.xn--p1ai", "login.|evil.|xn--p1ai"),
        ("mailto:a@evil.com", "mailto:|a@|evil.|com"),
        ("slack:x #general ~town", "slack:|x #|general ~|town"),
        ("train-v1.2 of c1.qg3dpwh4 at 12:30: 3.5 h [a] (b)", "train-v1.2 of c1.qg3dpwh4 at 12:30: 3.5 h [a] (b)"),
    ],
)
@pytest.mark.parametrize("field", ["name", "text"])
def test_a_chat_makes_no_link_of_names(hook: Hook, tmp_path: Path, field: str, name: str, sent: str) -> None:
    webhook(tmp_path, hook.port, chat=True).send(replace(STUCK, **{field: name}))
    ((_, document),) = hook.heard
    assert sent.replace("|", "\u200b") in document["text"]


@pytest.mark.parametrize(
    ("status", "passing"), [(500, True), (503, True), (429, True), (404, False), (400, False)]
)
def test_what_may_pass_is_told_from_what_will_not(hook: Hook, tmp_path: Path, status: int, passing: bool) -> None:
    hook.statuses = [status]
    with pytest.raises(Undeliverable, match=f"replied with status {status}") as raised:
        webhook(tmp_path, hook.port).send(STUCK)
    assert raised.value.passing is passing


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(hook: Hook, tmp_path: Path, status: int) -> None:
    hook.statuses, hook.location = [status], f"http://127.0.0.1:{hook.port}/elsewhere"
    with pytest.raises(Undeliverable, match=str(status)):
        webhook(tmp_path, hook.port).send(STUCK)
    assert [path for path, _ in hook.heard] == [f"/services/{SECRET}"]


def test_a_server_that_says_nothing_or_nonsense_holds_nobody_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        with pytest.raises(Undeliverable) as raised:
            webhook(tmp_path, port, timeout=0.2).send(STUCK)
        assert raised.value.passing
        assert SECRET not in str(raised.value)
    with pytest.raises(Undeliverable, match="cannot reach the server") as raised:
        webhook(tmp_path, port, timeout=0.2).send(STUCK)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "text", ["file:///etc/passwd", "ftp://host/x", "", "http://", "http://[::1", "http://a b/c"]
)
def test_only_web_addresses_are_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "url").write_text(text)
    hook = Webhook(tmp_path / "url", [NoticeKind.STUCK])
    with pytest.raises(ConfigError, match=r"notifications.webhook.url_file: .*/url contains no http or https URL"):
        hook.check()
    with pytest.raises(Undeliverable):
        hook.send(STUCK)
    with pytest.raises(ConfigError, match="cannot be read"):
        replace(hook, url_file=tmp_path / "absent").check()


# Mail


@dataclass
class Inbox:
    """An SMTP server; ``answers`` come first, then it accepts."""

    port: int
    answers: list[str] = field(default_factory=list)
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)

    async def handle_DATA(self, server, session, envelope) -> str:  # noqa: N802 - aiosmtpd's name
        if self.answers:
            return self.answers.pop(0)
        self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    controllers = pytest.importorskip("aiosmtpd.controller")
    with socket.create_server(("127.0.0.1", 0)) as free:
        found = Inbox(free.getsockname()[1])
    controller = controllers.Controller(found, "127.0.0.1", found.port)
    controller.start()
    yield found
    controller.stop()


def postbox(port: int, **more) -> Postbox:
    return Postbox("127.0.0.1", port, "mirage@cluster.example.org", **more)


def test_the_site_gets_mail_that_says_what_and_why(inbox: Inbox) -> None:
    SiteMail(postbox(inbox.port), ("ops@example.org", "hpc@example.org"), [NoticeKind.STUCK]).send(STUCK)
    ((to, mail),) = inbox.mails
    assert to == ["ops@example.org", "hpc@example.org"]
    assert mail["Subject"] == '[mirage] chain "train": chain-stuck'
    assert (mail["Auto-Submitted"], mail["X-Mirage-Event"]) == ("auto-generated", "chain-stuck")
    text = mail.get_content().replace("\r\n", "\n")
    assert text.startswith("it has stopped itself\n")
    assert "train (train-1) of alice" in text
    assert "2023-11-14T22:13:20Z" in text


def test_owners_get_mail_about_their_own_chains_only(inbox: Inbox) -> None:
    channel = OwnerMail(postbox(inbox.port), "{user}@example.org", [NoticeKind.STUCK])
    assert channel.wants(STUCK)
    assert not channel.wants(replace(STUCK, kind=NoticeKind.GAP))
    assert not channel.wants(Notice(NoticeKind.STUCK, 0, "about no chain"))
    assert not channel.wants(replace(STUCK, owner="eve@elsewhere.org,x")), "a name that would be an address"
    channel.send(STUCK)
    assert [to for to, _ in inbox.mails] == [["alice@example.org"]]


def test_a_name_never_becomes_a_header(inbox: Inbox) -> None:
    sly = replace(STUCK, name="x\r\nBcc: eve@example.org\r\n\r\nhello \udcff", text="line\r\nBcc: eve \udcff")
    SiteMail(postbox(inbox.port), ("ops@example.org",), [NoticeKind.STUCK]).send(sly)
    ((to, mail),) = inbox.mails
    assert to == ["ops@example.org"]
    assert mail["Bcc"] is None
    assert "Bcc: eve@example.org" in mail["Subject"]


@pytest.mark.parametrize(("answer", "passing"), [("451 later", True), ("554 never", False)])
def test_mail_that_is_refused_for_now_is_told_from_mail_refused(inbox: Inbox, answer: str, passing: bool) -> None:
    inbox.answers = [answer]
    with pytest.raises(Undeliverable) as raised:
        SiteMail(postbox(inbox.port), ("ops@example.org",), [NoticeKind.STUCK]).send(STUCK)
    assert raised.value.passing is passing


def test_a_password_is_never_sent_in_the_clear_by_mistake(inbox: Inbox, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    secured = postbox(inbox.port, security="starttls", user="mirage", password_file=str(tmp_path / "password"))
    with pytest.raises(Undeliverable) as raised:
        SiteMail(secured, ("ops@example.org",), [NoticeKind.STUCK]).send(STUCK)
    assert "secret" not in str(raised.value)
    assert inbox.mails == []


# On the way


@dataclass
class Scripted:
    """A channel that fails as scripted, then delivers."""

    faults: list[Exception] = field(default_factory=list)
    sent: list[Notice] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    name: str = "scripted"

    def wants(self, notice: Notice) -> bool:
        return notice.kind is NoticeKind.STUCK

    def send(self, notice: Notice) -> None:
        self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        self.sent.append(notice)


class Results:
    """The results that couriers reported."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, channel: str, result: str) -> None:
        with self._changed:
            self.heard.append(result)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heard) >= count, 30)
            return sorted(self.heard)


LATER, NEVER = Undeliverable("busy", passing=True), Undeliverable("gone", passing=False)


@pytest.mark.parametrize(
    ("faults", "result", "left"),
    [
        ([], "sent", 0),
        ([LATER, LATER], "sent", 0),
        ([LATER] * 5, "failed", 2),
        ([NEVER, LATER], "failed", 1),
        ([RuntimeError("a fault")], "failed", 0),
    ],
)
def test_what_may_pass_is_tried_again_so_often(faults: list[Exception], result: str, left: int) -> None:
    channel, results = Scripted(list(faults)), Results()
    channel.gate.set()
    courier = DeliveryQueue(channel, results, pauses=(0.0, 0.0))
    courier.put(STUCK)
    assert results.wait_for(1) == [result]
    assert len(channel.faults) == left
    courier.put(replace(STUCK, kind=NoticeKind.GAP))
    channel.faults.clear()
    courier.put(STUCK)
    results.wait_for(2)
    assert all(notice.kind is NoticeKind.STUCK for notice in channel.sent), "what it does not want is not sent"
    courier.close()


def test_a_channel_that_hangs_holds_nobody_up_and_what_overflows_is_counted() -> None:
    channel, results = Scripted(), Results()
    courier = DeliveryQueue(channel, results, room=2)
    for _ in range(10):
        courier.put(STUCK)
    dropped = len(results.heard)
    assert results.heard == ["dropped"] * dropped
    assert 7 <= dropped <= 8, "two wait, one may be on its way"
    channel.gate.set()
    assert results.wait_for(10).count("sent") == 10 - dropped
    courier.close()


def test_courier_full_of_one_user_still_takes_others() -> None:
    channel, results = Scripted(), Results()
    courier = DeliveryQueue(channel, results, room=10)
    for _ in range(100):
        courier.put(replace(STUCK, owner="mallory"))
    for owner in ("alice", "bob"):
        courier.put(replace(STUCK, owner=owner))
    assert results.heard.count("dropped") in (91, 92), "one may be on its way"
    channel.gate.set()
    results.wait_for(102)
    assert [notice.owner for notice in channel.sent].count("mallory") <= 9
    assert {notice.owner for notice in channel.sent[:4]} == {"mallory", "alice", "bob"}, "they take turns"
    courier.close()


def test_courier_messages_of_one_user_an_hour_are_bounded() -> None:
    channel, results, now = Scripted(), Results(), [0.0]
    channel.gate.set()
    courier = DeliveryQueue(channel, results, room=1_000, now=lambda: now[0])
    for second in range(2 * MOST_AN_HOUR):
        now[0] = float(second)
        courier.put(replace(STUCK, owner="mallory"))
    for owner in ("alice", ""):
        courier.put(replace(STUCK, owner=owner))
    now[0] = 3_601.0
    courier.put(replace(STUCK, owner="mallory"))
    results.wait_for(2 * MOST_AN_HOUR + 3)
    owners = [notice.owner for notice in channel.sent]
    assert results.heard.count("dropped") == MOST_AN_HOUR
    assert (owners.count("mallory"), owners.count("alice"), owners.count("")) == (MOST_AN_HOUR + 1, 1, 1)
    courier.close()


def test_courier_retries_one_user_while_others_are_served() -> None:
    channel, results = Scripted([LATER]), Results()
    courier = DeliveryQueue(channel, results, pauses=(3_600.0,))
    courier.put(replace(STUCK, owner="full_mailbox"))
    channel.gate.set()
    for owner in ("full_mailbox", "alice"):
        courier.put(replace(STUCK, owner=owner))
    assert results.wait_for(1) == ["sent"]
    assert [notice.owner for notice in channel.sent] == ["alice"]
    courier.close()
