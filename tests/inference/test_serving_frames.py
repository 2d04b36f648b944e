"""Frames between gateway and workers: whole from any fragments, and nothing else counts as one."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.worker_connections import Assembler, BadFrame, frame, receive, send

HEADERS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=100)), max_size=5), st.data())
def test_frames_come_whole_out_of_pieces_of_any_size(sent: list[tuple[dict, bytes]], data: st.DataObject) -> None:
    stream = b"".join(b"".join(frame(header, content)) for header, content in sent)
    assembler, got, at = Assembler(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, len(stream) - at))
        got += [(header, bytes(content)) for header, content in assembler.feed(stream[at : at + size])]
        at += size
    assert got == sent


def test_a_large_frame_crosses_a_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        parts = (b"a" * 300_000, memoryview(b"b" * 200_000))
        sender = threading.Thread(target=send, args=(here, {"n": 1}, *parts))
        sender.start()
        header, content = receive(there)
        sender.join()
        assert (header, bytes(content)) == ({"n": 1}, b"".join(parts))
        here.close()
        with pytest.raises(EOFError):
            receive(there)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (struct.pack("<IQ", 1 << 30, 0), "too long"),
        (struct.pack("<IQ", 2, 1 << 20), "too long"),
        (struct.pack("<IQ", 2, 0) + b"[]", "not a JSON object"),
        (struct.pack("<IQ", 1, 0) + b"{", "invalid JSON"),
        (b"GET / HTTP/1.1\r\n\r\n", "too long"),
    ],
)
def test_what_is_no_frame_is_refused(stream: bytes, why: str) -> None:
    with pytest.raises(BadFrame, match=why):
        list(Assembler(longest=1 << 16).feed(stream))


def test_a_proof_is_for_one_side_one_challenge_and_one_secret() -> None:
    challenge, secret = addressbook.fresh(), addressbook.fresh()
    right = addressbook.prove(secret, "worker", challenge)
    assert addressbook.proves(secret, "worker", challenge, right)
    assert not addressbook.proves(secret, "gateway", challenge, right)
    assert not addressbook.proves(secret, "worker", addressbook.fresh(), right)
    assert not addressbook.proves(addressbook.fresh(), "worker", challenge, right)
    assert not addressbook.proves(secret, "worker", challenge, None)
