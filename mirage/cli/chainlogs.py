"""``mirage chain logs``: what the job of a link printed, and what it prints."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from mirage.cli.asking import Id, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.client.client import chain_path
from mirage.domain.bounds import MOST_LINKS
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.client.client import Client

Index = Annotated[
    int | None,
    typer.Argument(
        metavar="[LINK]", min=1, max=MOST_LINKS, help="A link, by its number (default: running or last)."
    ),
]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Print what is appended, link after link, until the chain is over.")
]
_NOT_FOUND, _DENIED = 3, 4
_POLL, _ASK = 1.0, 5.0
"""Seconds between two reads of the file, and between two requests to the daemon."""
_BLOCK = 1 << 20
_ENDED = ("ended", "lost")


def logs_command(chain_id: Id, link: Index = None, *, follow: Follow = False, socket: Socket = "") -> None:
    """Print the output file of a link's job; its path comes first, on stderr.

    With -f, go over to the next link when it starts, and end when the chain is over.
    """
    with exit_codes():
        client = connect(socket)
        chain = client.get(chain_path(chain_id))
        if follow:
            _Followed(client, chain, link or 0).run()
            return
    chosen = _chosen(chain, link)
    if chosen is None:
        raise _missing(f"{chain['id']} has no job of link {link}" if link else f"no link of {chain['id']} has run")
    path = _path(chain, chosen)
    try:
        with path.open("rb") as file:
            _head(chosen, path)
            _copy(file)
    except FileNotFoundError:
        raise _missing(f"link {chosen['index']}, job {chosen['job_id']}: {path} does not exist") from None
    except PermissionError:
        show(f"mirage: {path}: permission denied", err=True)
        raise SystemExit(_DENIED) from None


def _missing(text: str) -> SystemExit:
    show(f"mirage: {text}", err=True)
    return SystemExit(_NOT_FOUND)


def _chosen(chain: dict[str, Any], index: int | None) -> dict[str, Any] | None:
    """The link of that number; else the newest that works, the one that ended the chain, the newest that ran."""
    links: list[dict[str, Any]] = [link for link in chain["links"] if link["job_id"]]
    if index is not None:
        return next((link for link in links if link["index"] == index), None)
    for states in (("running",), _ENDED):
        of_state = [link for link in links if link["state"] in states]
        if states is _ENDED and (last := [link for link in of_state if link["index"] == chain["ended_by"]]):
            return last[0]
        if states is not _ENDED:  # what waits for the end of another does not work yet
            of_state = of_state[:1] + [link for link in of_state[1:] if not link["looks"]]
        if of_state:
            return max(of_state, key=lambda link: (link["start"] is not None, int(link["index"])))
    return None


def _path(chain: dict[str, Any], link: dict[str, Any]) -> Path:
    from mirage.cli.joboutput import output_of

    return output_of(chain, link["job_id"])


def _head(link: dict[str, Any], path: Path) -> None:
    show(f"==> link {link['index']}, job {link['job_id']}: {path} <==", err=True)


def _copy(file: BinaryIO) -> int:
    """Bytes that were there, as they are: a job's own output, progress bars and colours included."""
    copied = 0
    if os.fstat(file.fileno()).st_size < file.tell():  # a requeued job begins it again
        file.seek(0)
    while block := file.read(_BLOCK):
        sys.stdout.buffer.write(block)
        copied += len(block)
    sys.stdout.buffer.flush()
    return copied


class _Followed:
    """One chain, link after link."""

    def __init__(self, client: Client, chain: dict[str, Any], first: int) -> None:
        self._client, self._chain, self._first = client, chain, first
        self._asked = time.monotonic()

    def run(self) -> None:
        """Until the chain is over."""
        link: dict[str, Any] | None = None
        while True:
            following = self._next(link)
            if following is None:
                if self._over:
                    return
                self._pause()
                continue
            link = following
            self._print(link)

    def _next(self, link: dict[str, Any] | None) -> dict[str, Any] | None:
        """That from which to read on: with a job that has begun, after ``link``."""
        if link is None and not self._first:
            return _chosen(self._chain, None)
        begun = [
            each
            for each in self._chain["links"]
            if each["job_id"] and each["state"] in ("running", *_ENDED) and each["start"]
        ]
        least = link["index"] + 1 if link else self._first
        return min(
            (each for each in begun if each["index"] >= least), key=lambda each: each["index"], default=None
        )

    def _print(self, link: dict[str, Any]) -> None:
        """Until its end, or the start of the one after it."""
        try:
            path = _path(self._chain, link)
        except MirageError as error:
            show(f"mirage: {error}", err=True)
            self._pause()
            return
        _head(link, path)
        file: BinaryIO | None = None
        try:
            while True:
                over = self._over or self._next(link) is not None
                if file is None and os.path.lexists(path):
                    file = path.open("rb")
                copied = _copy(file) if file else 0
                if over and not copied:
                    if file is None:
                        show(f"mirage: {path} does not exist", err=True)
                    return
                if not copied:
                    self._pause()
        finally:
            if file:
                file.close()

    @property
    def _over(self) -> bool:
        """Whether no link runs or will ever run."""
        running = any(link["state"] not in _ENDED for link in self._chain["links"])
        return self._chain["status"] in ("done", "stopped") and not running

    def _pause(self) -> None:
        """Raises ``ClientError`` where the daemon does not know the chain any more; its silence is waited out."""
        from mirage.client.errors import DaemonUnreachable

        time.sleep(_POLL)
        if time.monotonic() - self._asked >= _ASK:
            self._asked = time.monotonic()
            try:
                self._chain = self._client.get(chain_path(self._chain["id"]))
            except DaemonUnreachable as error:
                show(f"mirage: {error}", err=True)
