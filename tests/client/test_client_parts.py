"""Parts that need no server: addresses, documents, streams and frames."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.client import Chain, Missing, Records
from mirage.client.address import Address, default_address
from mirage.client.client import chain_path, read_events
from mirage.client.errors import Refusal
from mirage.client.records import read
from mirage.config.places import default_places

if TYPE_CHECKING:
    from pathlib import Path


def test_it_needs_the_standard_library_alone() -> None:
    code = """
import sys
before = set(sys.modules)
import mirage.client
ours = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(ours - set(sys.stdlib_module_names) - {"mirage"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("/run/x.sock", "/run/x.sock"),
        ("unix:/run/x.sock", "/run/x.sock"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80"),
        ("https://mirage.example.org", "https://mirage.example.org:443"),
        ("http://[::1]:31703", "http://[::1]:31703"),
        ("https://[2001:db8::1]", "https://[2001:db8::1]:443"),
    ],
)
def test_addresses(text: str, spelled: str) -> None:
    assert str(Address.parse(text)) == spelled
    assert Address.parse(spelled) == Address.parse(text)


def test_the_environment_names_the_daemon_else_it_is_where_the_daemon_puts_its_socket(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert str(default_address(home | {"MIRAGE_SOCKET": "/a", "MIRAGE_URL": "http://b:1"}, 12_345)) == "/a"
    assert str(default_address(home | {"MIRAGE_URL": "http://b:1"}, 12_345)) == "http://b:1"
    assert str(default_address(home, 12_345)) == str(default_places(home, 12_345).runtime / "api.sock")


def test_a_version_that_says_more_or_less_is_understood() -> None:
    chain = read(Chain, {"id": "a", "name": "n", "owner": "o", "status": "done", "links": None, "color": "blue"})
    assert chain.over
    assert chain.links == ()
    assert chain.running is None


FIELD = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"))


@given(st.lists(st.tuples(FIELD, st.text(st.characters(codec="utf-8", exclude_characters="\r\0")))))
def test_whatever_a_stream_says_is_read_back(told: list[tuple[str, str]]) -> None:
    """Written by the rules of the standard: a space after each colon, a separate line for each line of data."""
    lines: list[str] = []
    for number, (kind, data) in enumerate(told):
        lines += [": a heartbeat", "", f"id: {number}", f"event: {kind}"]
        lines += [*(f"data: {line}" for line in data.split("\n")), ""]
    read_back = [(event.id, event.kind) for event in read_events(lines)]
    assert read_back == [(str(number), kind or "message") for number, (kind, _) in enumerate(told)]


def test_an_event_that_was_cut_off_never_was() -> None:
    assert list(read_events(["id: 1", "data: whole", "", "id: 2", "data: cut"])) == [
        *read_events(["id: 1", "data: whole", ""])
    ]


def test_records_become_a_frame() -> None:
    pandas = pytest.importorskip("pandas", reason="frames need pandas")
    chain = read(Chain, {"id": "a", "name": "n", "owner": "o", "status": "done", "request": {"nodes": 4}})
    frame = Records([chain, chain]).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["request.nodes"]) == [4, 4]
    assert list(frame["id"]) == ["a", "a"]


def test_without_pandas_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Missing, match="pip install pandas"):
        Records([{"a": 1}]).to_frame()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\udcff\udcfe", "a\x1b[2J", "a\nb"])
def test_name_that_no_chain_can_have_is_refused_here(name: str) -> None:
    with pytest.raises(Refusal):
        chain_path(name)
