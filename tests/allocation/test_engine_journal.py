"""The journal: claims that one alone gets, lines that survive, a ledger that is the same however it is read."""

from __future__ import annotations

import multiprocessing
import os
import stat
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.engine.entries import (
    Adopted,
    AttemptResult,
    Ended,
    Entry,
    LifeBegan,
    PoolSeen,
    Remark,
    Started,
    Starting,
    Stopping,
    read,
    spell,
)
from mirage.allocation.engine.journal import JournalReader, JournalWriter, StateFolder
from mirage.allocation.engine.run import default_state, kept_state
from mirage.allocation.engine.status import AttemptSpan, most_at_once
from mirage.allocation.engine.task_states import TaskStates
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from pathlib import Path


def folder_in(path: Path) -> StateFolder:
    folder = StateFolder(path)
    folder.make()
    return folder


def claim_all(path: Path, life: str, won: Queue[list[int]]) -> None:
    folder = StateFolder(path)
    won.put([number for number in range(200) if folder.claim("t", number, life)])


def test_an_attempt_is_claimed_once_whoever_tries(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    context = multiprocessing.get_context("spawn")
    won: Queue[list[int]] = context.Queue()
    racers = [context.Process(target=claim_all, args=(tmp_path, f"life{n}", won)) for n in range(3)]
    for racer in racers:
        racer.start()
    numbers = [number for _ in racers for number in won.get(timeout=120)]
    for racer in racers:
        racer.join()
    assert sorted(numbers) == list(range(200))
    assert {life for _, _, life in folder.claimed()} <= {"life0", "life1", "life2"}


def test_a_line_that_a_crash_cut_off_is_passed_over(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer, reader = JournalWriter(folder, "a"), JournalReader(folder)
    writer.write(Remark(1.0, "whole"))
    writer.close()
    file = folder.journals / "a.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    assert reader.news() == [("a", Remark(1.0, "whole"))]
    assert reader.news() == []
    file.write_bytes(whole + whole)
    assert reader.news() == [("a", Remark(1.0, "whole"))]


def test_a_line_of_which_a_crash_left_only_its_length_is_passed_over(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    writer, reader = JournalWriter(folder, "a"), JournalReader(folder)
    writer.write(Remark(1.0, "whole"))
    with (folder.journals / "a.jsonl").open("ab") as file:
        file.write(b"\0" * 40 + b"\n\n")
    writer.write(Remark(2.0, "after it"))
    writer.close()
    assert [entry for _, entry in reader.news()] == [Remark(1.0, "whole"), Remark(2.0, "after it")]


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    (folder.journals / "a.jsonl").write_text('{"entry": "Remark"}\n')
    with pytest.raises(ConfigError, match=r"a\.jsonl.*Remark: at: Field required"):
        JournalReader(folder).news()


@pytest.mark.parametrize("what", ["sparse", "endless line", "link", "pipe"])
def test_journal_that_nobody_of_ours_wrote_takes_no_memory_and_shows_no_file(tmp_path: Path, what: str) -> None:
    """A user who lists another user's tasks, root above all, reads that user's directory."""
    folder, secret = folder_in(tmp_path / "state"), tmp_path / "secret"
    secret.write_text("root:x:0\n")
    path = folder.journals / "zz.jsonl"
    match what:
        case "sparse":
            path.touch()
            os.truncate(path, 3 << 30)
        case "endless line":
            path.write_bytes(b"x" * (2 << 20))
        case "link":
            path.symlink_to(secret)
        case "pipe":
            os.mkfifo(path)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"zz\.jsonl") as found:
            JournalReader(folder).news()
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert "root:x" not in str(found.value)


def test_a_life_has_a_file_of_its_own(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    JournalWriter(folder, "a").close()
    with pytest.raises(FileExistsError):
        JournalWriter(folder, "a")


numbers = st.floats(0, 1e9)
names = st.sampled_from(["x", "y.1", "ü"])
entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(Starting, numbers, names, st.integers(1, 3), st.just({"n": [0, 1]}), st.just(1.0)),
    st.builds(Started, numbers, names, st.integers(1, 3), st.integers(1, 9)),
    st.builds(Stopping, numbers, names, st.integers(1, 3), st.text(), st.booleans()),
    st.builds(
        Ended, numbers, names, st.integers(1, 3), st.sampled_from(AttemptResult), st.none() | st.integers(0, 9),
        st.text(), numbers,
    ),
    st.builds(PoolSeen, numbers, st.none() | numbers, st.just({"n": [(0, "gpu")]})),
)  # fmt: skip


@given(entries)
def test_what_is_written_is_read(entry: Entry) -> None:
    assert read(spell(entry)) == entry
    assert "\n" not in spell(entry)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), entries), max_size=20), st.data())
def test_read_in_pieces_it_is_the_same(told: list[tuple[str, Entry]], data: st.DataObject) -> None:
    """How far the files had been read when matters as little as that claims are seen late."""
    at = data.draw(st.integers(0, len(told)))
    whole, pieces = TaskStates(), TaskStates()
    whole.fold(told)
    pieces.fold(told[:at])
    pieces.fold_claims(
        [(name, number, "a") for name in whole.attempts for number in pieces.attempts.get(name, {})]
    )
    pieces.fold(told[at:])
    assert whole.attempts == pieces.attempts


def test_the_one_who_follows_on_holds_the_attempt_however_it_is_read() -> None:
    first = [("a", Starting(1.0, "x", 1, {"n": [0]}, 1.0)), ("a", Started(2.0, "x", 1, 7))]
    later: list[tuple[str, Entry]] = [("b", Adopted(3.0, "x", 1, 7))]
    for order in (first + later, later + first):
        ledger = TaskStates()
        ledger.fold(order)
        assert ledger.of("x")[0].life == "b"


def test_the_greatest_share_at_once_is_found() -> None:
    every = [
        AttemptSpan("n:0", "a", 1, 0.5, 0, 10),
        AttemptSpan("n:0", "b", 1, 0.5, 5, None),
        AttemptSpan("n:0", "c", 1, 0.5, 10, 12),
    ]
    assert most_at_once(every) == {"n:0": 1.0}
    assert most_at_once([*every, AttemptSpan("n:0", "d", 1, 0.1, 11, 12)]) == {"n:0": 1.1}


def test_state_of_a_chain_is_found_by_its_task_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    for each in (first, second):
        each.write_text("")

    def ran(source: Path, chain: str) -> Path:
        path = default_state(source, {"MIRAGE_CHAIN_ID": chain})
        state = StateFolder(path)
        state.make()
        writer = JournalWriter(state, "1")
        writer.write(LifeBegan(0.0, "1", 7, 0, 1, "n1", 1, 1, "boot", "srun", str(source)))
        writer.close()
        return path

    place = ran(first, "a")
    assert kept_state(second, {}) == default_state(second, {})
    assert kept_state(first, {}) == place == kept_state(place, {})
    ran(first, "b")
    with pytest.raises(ConfigError) as several:
        kept_state(first, {})
    assert str(place) in str(several.value)
    default_state(first, {}).mkdir()
    assert kept_state(first, {}) == default_state(first, {})


@pytest.mark.parametrize("place", [".mirage", ".mirage/tasks", ".mirage/tasks/journal", ".mirage/tasks/logs"])
@pytest.mark.parametrize("how", ["of another user", "open to others", "a link of another user"])
def test_state_that_another_user_could_have_laid_out_is_not_taken(tmp_path: Path, place: str, how: str) -> None:
    """It would say which tasks are done, and lead what is written to other files."""
    folder, there = StateFolder(tmp_path / ".mirage" / "tasks"), tmp_path / place
    folder.make()
    if how == "open to others":
        there.chmod(0o777)
    elif os.geteuid():
        pytest.skip("takes root")
    elif how == "of another user":
        os.chown(there, 4711, 4711)
    else:
        there.rename(tmp_path / "elsewhere")
        there.symlink_to(tmp_path / "elsewhere")
        os.lchown(there, 4711, 4711)
    with pytest.raises(ConfigError) as refused:
        folder.make()
    assert str(there) in str(refused.value)


@pytest.mark.skipif(bool(os.geteuid()), reason="takes root, to have a group of others")
def test_state_that_a_umask_left_open_to_the_group_is_closed_to_it(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / ".mirage" / "tasks")
    folder.make()
    places = (tmp_path / ".mirage", folder.claims)
    for place in places:
        os.chown(place, -1, 4711)
        place.chmod(0o2775)
    folder.make()
    assert [stat.S_IMODE(place.stat().st_mode) for place in places] == [0o2755] * 2


def test_state_behind_a_link_of_its_user_is_taken(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / ".mirage").symlink_to(tmp_path / "scratch")
    StateFolder(tmp_path / ".mirage" / "tasks").make()
    assert (tmp_path / "scratch" / "tasks" / "journal").is_dir()


def test_state_where_everybody_may_replace_it_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="everybody"):
        StateFolder(tmp_path / "open" / ".mirage" / "tasks").make()
    (tmp_path / "open").chmod(0o1777)
    StateFolder(tmp_path / "open" / ".mirage" / "tasks").make()


def test_state_is_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        StateFolder(tmp_path / ".mirage" / "tasks").make()
    finally:
        os.umask(before)
    made = [tmp_path / ".mirage", *(tmp_path / ".mirage").rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o755}
