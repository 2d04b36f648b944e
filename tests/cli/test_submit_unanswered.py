"""``mirage submit`` where no daemon answers, or one that goes away."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

from cli.submit_world import folder, submit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder"]


def test_without_a_daemon_it_says_how_to_start_one(folder: Path) -> None:
    done = submit(folder, "train.sh")
    assert done.returncode == 5
    assert "mirage daemon &" in done.stderr


def test_what_answers_is_no_daemon(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/none.sock")
        listening.listen()

        def answer() -> None:
            connected, _ = listening.accept()
            connected.recv(1 << 20)
            connected.sendall(b"220 mail.example.org ESMTP\r\n")
            connected.close()

        thread = threading.Thread(target=answer)
        thread.start()
        done = submit(folder, "train.sh")
        thread.join()
    assert done.returncode == 5


def test_a_chain_without_an_answer_may_have_been_made_and_is_named(folder: Path) -> None:
    """The daemon is killed after it has read the request: a user who submits again would have two chains."""
    asked: list[str] = []

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            while not (asked and asked[-1].endswith("}")):
                asked.append(connection.recv(1 << 16).decode())

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/dying.sock")
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        done = submit(folder, "--no-check", "train.sh", MIRAGE_SOCKET=f"{folder}/dying.sock")
        thread.join()
    made = json.loads("".join(asked).partition("\r\n\r\n")[2])["chain_id"]
    assert done.returncode == 5
    assert made in done.stderr
    assert "mirage chains" in done.stderr
