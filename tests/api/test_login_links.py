"""Login links: one user's never end another's."""

from __future__ import annotations

from mirage.api.access.caller import Scope
from mirage.api.access.sessions import Session, SessionCookies, Tickets


def test_one_user_ends_no_login_links_of_another() -> None:
    tickets = Tickets(lambda: 0.0)
    of_bob = tickets.issue(Session("bob", Scope.READ))
    of_alice = [tickets.issue(Session("alice", Scope.READ)) for _ in range(1_010)]
    assert tickets.redeem(of_bob) is not None
    assert sum(tickets.redeem(text) is not None for text in of_alice) == 5
    assert len(tickets._open) == 0


def test_closed_sessions_of_one_user_are_few_and_stay_closed() -> None:
    now = [1_000.0]
    sessions = SessionCookies(b"k" * 32, 3_600, lambda: now[0])
    of_bob, closed_of_bob = (sessions.open(Session("bob", Scope.READ)) for _ in range(2))
    closed = sessions.read(closed_of_bob)
    assert closed is not None
    sessions.close(closed)
    cookies = [sessions.open(Session("alice", Scope.READ)) for _ in range(500)]
    for cookie in cookies[:400]:
        session = sessions.read(cookie)
        if session is not None:
            sessions.close(session)
    assert len(sessions._closed) <= 65
    assert not any(sessions.read(cookie) for cookie in cookies[:400])
    assert sessions.read(of_bob) is not None
    assert sessions.read(closed_of_bob) is None
    now[0] += 1
    assert sessions.read(sessions.open(Session("alice", Scope.READ))) is not None, "she may log in again"
