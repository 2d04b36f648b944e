"""The policy: users before groups before all users."""

from __future__ import annotations

import grp
import os
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_disks import mounted

from mirage.api.access.caller import ANONYMOUS, Caller, Scope, lesser
from mirage.api.access.policy import AccessPolicy, UnixGroups, granted
from mirage.api.access.sessions import Session, SessionCookies, Tickets, session_key
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

POLICY = b"""
users.ada = "admin"
users.eve = "none"
groups.students = "none"
groups.staff = "operate"
groups.chiefs = "admin"
everybody = "read"
"""
GRANTS = b"""
everybody = "none"
anonymous = "read"
queue_names = "all"
[groups]
staff = "read"
chiefs = "operate"
[users]
ada = "admin"
eve = "operate"
"""
GROUPS = {
    "ada": {"students"},
    "eve": {"chiefs"},
    "bob": {"staff", "students"},
    "kim": {"students"},
    "lea": {"staff", "chiefs"},
    "joe": {"others"},
}


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("ada", Scope.ADMIN),
        ("eve", None),
        ("bob", Scope.OPERATE),
        ("kim", None),
        ("lea", Scope.ADMIN),
        ("joe", Scope.READ),
        ("who", Scope.READ),
    ],
)
def test_the_nearest_word_counts(name: str, scope: Scope | None) -> None:
    policy = AccessPolicy.read(POLICY)
    assert policy.scope_of(name, lambda user: frozenset(GROUPS.get(user, ()))) == scope


def test_without_a_policy_the_built_in_one_counts() -> None:
    assert AccessPolicy.read(b'everybody = "operate"') == AccessPolicy()
    assert AccessPolicy().scope_of("ada", lambda name: frozenset()) is Scope.OPERATE
    assert not AccessPolicy().anonymous


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"# everybody", b"\0" * 99, b'anonymous = "none"', b'[users]\neverybody = "none"']
)
def test_policy_without_everybody_is_rejected(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"everybody|TOML"):
        AccessPolicy.read(text)


@pytest.mark.parametrize("whole", [POLICY, GRANTS, POLICY.replace(b"\n", b"\r\n")])
def test_policy_cut_anywhere_gives_no_user_more(whole: bytes) -> None:
    full = AccessPolicy.read(whole)
    for size in range(len(whole)):
        try:
            cut = AccessPolicy.read(whole[:size])
        except ValueError:
            continue
        assert gives_no_more(cut, full), whole[:size].decode()


GRADES = st.sampled_from(["none", "read", "operate", "admin"])
LINES = st.lists(st.tuples(st.sampled_from(["users.ada", "users.bob", "groups.staff", "groups.chiefs"]), GRADES))


@given(lines=LINES, everybody=GRADES, place=st.integers(0, 4), queue=st.booleans())
def test_policy_in_any_order_cut_behind_a_line_gives_no_user_more(
    lines: list[tuple[str, str]], everybody: str, place: int, queue: bool
) -> None:
    written = [f'{key} = "{grade}"  # everybody = "none"\n' for key, grade in dict(lines).items()]
    written.insert(place, f'"everybody" = "{everybody}"\n')
    written += ['queue_names = "all"\n'] * queue
    if written[-1].startswith('"everybody"'):
        full = AccessPolicy.read("".join(written).encode())
    else:
        try:
            full = AccessPolicy.read("".join(written).encode())
        except ValueError:
            return
    for number in range(len(written)):
        try:
            cut = AccessPolicy.read("".join(written[:number]).encode())
        except ValueError:
            continue
        assert gives_no_more(cut, full)


def gives_no_more(cut: AccessPolicy, full: AccessPolicy) -> bool:
    """Whatever groups a user is in."""
    ranks = [None, *Scope]
    names, groups = [*full.users, "joe"], [*full.groups]
    sets = [frozenset(mine) for size in range(len(groups) + 1) for mine in combinations(groups, size)]
    each = [partial(lambda mine, _: mine, mine) for mine in sets]
    return (
        cut.anonymous <= full.anonymous
        and cut.queue_names <= full.queue_names
        and cut.queue_jobs <= full.queue_jobs
        and all(
            ranks.index(cut.scope_of(name, groups_of)) <= ranks.index(full.scope_of(name, groups_of))
            for name in names
            for groups_of in each
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        b'everybody = "operate"\n[users]\neve = "none"',
        b'everybody = "operate"\n[groups]\nstudents = "read"',
        b'everybody = "none"\n[groups]\nstaff = "admin"\n[users]\neve = "read"',
    ],
)
def test_policy_whose_cut_could_not_be_told_is_rejected(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1: everybody: .*put it last"):
        AccessPolicy.read(text)


@pytest.mark.parametrize(
    "text", [b"\xff", b"users = 1", b'[users]\nada = ["admin"]', b"everybody = true", b"queue_names = true"]
)
def test_what_is_no_policy_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line|UTF-8"):
        AccessPolicy.read(text)


@pytest.mark.parametrize(
    ("text", "caller", "others"),
    [
        (b"\n", Caller("ada", Scope.OPERATE), False),
        (b"\n", Caller("ada", Scope.ADMIN), True),
        (b'queue_names = "own"', Caller("ada", Scope.READ), False),
        (b'queue_names = "all"', Caller("ada", Scope.READ), True),
        (b'queue_names = "all"', Caller(ANONYMOUS, Scope.READ), False),
        (b'queue_names = "all"', Caller("uid:4711", Scope.READ), False),
    ],
)
def test_whose_jobs_are_told_by_name(text: bytes, caller: Caller, others: bool) -> None:
    shown = AccessPolicy.read(text + b'\neverybody = "operate"').names_shown_to(caller)
    assert shown("bob") is others
    assert shown(caller.name)


@pytest.mark.parametrize(
    ("text", "scope", "hidden", "shown"),
    [
        (b"\n", Scope.OPERATE, False, True),
        (b"\n", Scope.OPERATE, True, False),
        (b"\n", Scope.ADMIN, True, True),
        (b'queue_jobs = "slurm"', Scope.READ, True, False),
        (b'queue_jobs = "all"', Scope.READ, True, True),
    ],
)
def test_policy_jobs_that_slurm_hides_are_shown_where_it_says_so(
    text: bytes, scope: Scope, hidden: bool, shown: bool
) -> None:
    policy = AccessPolicy.read(text + b'\neverybody = "operate"')
    assert policy.shows_jobs_to(Caller("ada", scope), hidden=hidden) is shown


def test_scopes_are_ordered_and_the_lesser_of_two_counts() -> None:
    order = [Scope.READ, Scope.OPERATE, Scope.ADMIN]
    for one in order:
        for other in order:
            assert one.includes(other) is (order.index(one) >= order.index(other))
            assert lesser(one, other) is order[min(order.index(one), order.index(other))]
    assert granted(Scope.ADMIN, None) is None
    assert granted(Scope.READ, Scope.ADMIN) is Scope.READ


def test_groups_are_the_machines() -> None:
    groups = UnixGroups()
    assert grp.getgrgid(0).gr_name in groups("root")
    assert groups("no-such-user-at-all") is None


@pytest.mark.parametrize("error", [KeyError("not found"), OSError("sssd"), None])
def test_policy_user_database_that_fails_gives_no_more(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    def fail(name: str) -> object:
        assert error is not None
        raise error

    if error is not None:
        monkeypatch.setattr("mirage.api.access.policy.group_ids", fail)
    policy = AccessPolicy(Scope.OPERATE, groups={"root": None, "staff": Scope.ADMIN})
    assert policy.scope_of("root", UnixGroups()) is None, (
        "denied while the groups are unknown, as while they are known"
    )
    assert AccessPolicy(Scope.READ, groups={"root": Scope.ADMIN}).scope_of("root", UnixGroups()) is (
        Scope.ADMIN if error is None else Scope.READ
    )


def test_policy_groups_are_queried_again_soon_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mirage.api.access.policy.time.monotonic", lambda: now[0])
    answers: list[frozenset[str] | None] = [None, frozenset({"staff"}), frozenset()]
    monkeypatch.setattr("mirage.api.access.policy._groups", lambda name: answers.pop(0))
    groups, found = UnixGroups(), []
    for now[0] in (0.0, 4.0, 6.0, 100.0, 130.0):
        found.append(groups("ada"))
    assert found == [None, None, frozenset({"staff"}), frozenset({"staff"}), frozenset()]


# Sessions and tickets


def test_a_session_ends_in_time_and_by_its_key() -> None:
    now = [1_000.0]
    sessions = SessionCookies(b"k" * 32, 100, lambda: now[0])
    cookie = sessions.open(Session("ada", Scope.READ, "tok"))
    found = sessions.read(cookie)
    assert found is not None
    assert (found.name, found.scope, found.token_id) == ("ada", Scope.READ, "tok")
    assert SessionCookies(b"o" * 32, 100, lambda: now[0]).read(cookie) is None
    short = sessions.open(Session("ada", Scope.READ), until=1_010)
    now[0] = 1_011.0
    assert sessions.read(short) is None
    assert sessions.read(cookie) is not None
    now[0] = 1_100.0
    assert sessions.read(cookie) is None


def test_tickets_count_once_and_for_ten_minutes() -> None:
    now = [0.0]
    tickets = Tickets(lambda: now[0])
    one, two = (tickets.issue(Session(name, Scope.READ)) for name in ("ada", "bob"))
    assert tickets.redeem(one) == Session("ada", Scope.READ)
    assert tickets.redeem(one) is None
    now[0] = 600.0
    assert tickets.redeem(two) is None
    assert tickets.redeem("") is None


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_on_a_full_disk_the_key_of_sessions_lasts_as_long_as_the_process(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "64k"):
        filler = tmp_path / "small" / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * (1 << 20))
        file = tmp_path / "small" / "session.key"
        assert len(session_key(file)) == 32
        assert [path.name for path in file.parent.iterdir()] == ["filler"]
        filler.unlink()
        key = session_key(file)
        assert session_key(file) == key


def test_the_key_of_sessions_is_made_once_and_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "session.key"
    key = session_key(file)
    assert len(key) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    assert session_key(file) == key
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read it"):
        session_key(file)
    file.chmod(0o600)
    file.write_bytes(b"short")
    with pytest.raises(ConfigError, match="cut short"):
        session_key(file)
    with pytest.raises(ConfigError, match="cannot be read or created"):
        session_key(tmp_path / "no" / "session.key")
