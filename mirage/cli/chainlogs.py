"""``mirage chain logs``: find, print and follow the output file of a link's job."""

from __future__ import annotations

import os
import re
import sys
import time
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.shared_options import Id, Socket
from mirage.client.client import chain_path
from mirage.domain.bounds import MOST_LINKS
from mirage.domain.errors import ClusterUnavailable, MirageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.client.client import Client

_DEFAULT = "slurm-%j.out"
_PARTS = re.compile(r"([^%]*)(?:%(\d*)(.?))?", re.DOTALL)
"""Text, and the width and the letter of the field that follows it."""
_STDOUT = re.compile(r"^\s*StdOut=(.*)$", re.MULTILINE)
_LONGEST_WIDTH = 10
"""Maximum width to which sbatch pads numbers."""


def output_of(chain: Mapping[str, Any], job_id: int) -> Path:
    """Return the file of a job's standard output. Raises ``MirageError`` if it is unknown.

    Slurm is asked where only the job's node knows a field, such as ``%N``. If slurmctld has forgotten the job, or
    shows the field as it was given, the newest file that fits is returned.
    """
    request, directory = chain["request"], chain["request"]["directory"]
    known = {"j": job_id, "A": job_id, "J": job_id, "x": request["job_name"], "u": chain["owner"]}
    path, unknown = _filled(_pattern(request["options"]), known, directory or "/")
    if directory and not unknown:
        return path
    try:
        told = _by_slurm(job_id)
    except MirageError:
        if directory and path.exists():
            return path
        raise
    return _filled(told, known, "/")[0] if told.startswith("/") else Path(told)


def _pattern(options: list[str]) -> str:
    """Return the pattern of the last ``--output``."""
    given = [option.partition("=")[2] for option in options if option.startswith("--output=")]
    return given[-1] if given else _DEFAULT


def _filled(pattern: str, known: Mapping[str, Any], directory: str) -> tuple[Path, bool]:
    r"""Expand ``%`` fields by sbatch's rules; the second value says whether a field is not ``known``.

    Then the path is the newest file that fits, or as far as it is known. A backslash anywhere in the pattern
    disables expansion.
    """
    if "\\" in pattern:
        return Path(directory, pattern.replace("\\", "")), False
    text, fitting, unknown = "", "", False
    for plain, width, letter in _PARTS.findall(pattern):
        field = _field(width, letter, known)
        unknown |= field is None
        text += plain + (f"%{width}{letter}" if field is None else field)
        fitting += escape(plain) + ("*" if field is None else escape(field))
    path = Path(directory, text)
    if unknown:
        found = Path("/").glob(str(Path(escape(directory), fitting)).lstrip("/"))
        path = max(found, key=lambda file: file.stat().st_mtime, default=path)
    return path, unknown


def _field(width: str, letter: str, known: Mapping[str, Any]) -> str | None:
    """The text of one field; ``None`` if it is not known. Without a letter it is the end of the pattern."""
    if letter in ("", "%"):
        return letter
    value = known.get(letter)
    padded = isinstance(value, int) and width
    return None if value is None else str(value).zfill(min(int(width), _LONGEST_WIDTH)) if padded else str(value)


def _by_slurm(job_id: int) -> str:
    """Ask ``scontrol``, which knows the job until slurmctld purges it."""
    from mirage.backends.execution import CommandRunner

    try:
        answer = CommandRunner(os.environ).run(["scontrol", "show", "job", str(job_id)])
    except ClusterUnavailable as error:
        raise MirageError(f"the output file of job {job_id} is unknown: {error}") from None
    found = _STDOUT.search(answer.out)
    if answer.status or found is None:
        problem = answer.said or "scontrol shows no StdOut"
        raise MirageError(f"the output file of job {job_id} is unknown: {problem}")
    return found[1]


Index = Annotated[
    int | None,
    typer.Argument(
        metavar="[LINK]", min=1, max=MOST_LINKS, help="Number of a link (default: the running or the last one)."
    ),
]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Print new output, link after link, until the chain ends.")
]
_NOT_FOUND, _DENIED = 3, 4
_POLL, _ASK = 1.0, 5.0
"""Seconds between two reads of the file, and between two requests to the daemon."""
_BLOCK = 1 << 20
_ENDED = ("ended", "lost")


def logs_command(chain_id: Id, link: Index = None, *, follow: Follow = False, socket: Socket = "") -> None:
    """Print the output file of a link's job; the file's path goes to stderr.

    With -f, switch to the next link when it starts, and exit when the chain ends.
    """
    with exit_codes():
        client = connect(socket)
        chain = client.get(chain_path(chain_id))
        if follow:
            _Followed(client, chain, link or 0).run()
            return
    chosen = _chosen(chain, link)
    if chosen is None:
        raise _missing(f"link {link} of {chain['id']} has no job" if link else f"no link of {chain['id']} has run")
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
    """Return the link of that number; else the newest working, the ending, or the newest link that ran."""
    links: list[dict[str, Any]] = [link for link in chain["links"] if link["job_id"]]
    if index is not None:
        return next((link for link in links if link["index"] == index), None)
    for states in (("running",), _ENDED):
        of_state = [link for link in links if link["state"] in states]
        if states is _ENDED and (last := [link for link in of_state if link["index"] == chain["ended_by"]]):
            return last[0]
        if states is not _ENDED:  # a link that waits for its predecessor's end does not work yet
            of_state = of_state[:1] + [link for link in of_state[1:] if not link["looks"]]
        if of_state:
            return max(of_state, key=lambda link: (link["start"] is not None, int(link["index"])))
    return None


def _path(chain: dict[str, Any], link: dict[str, Any]) -> Path:

    return output_of(chain, link["job_id"])


def _head(link: dict[str, Any], path: Path) -> None:
    show(f"==> link {link['index']}, job {link['job_id']}: {path} <==", err=True)


def _copy(file: BinaryIO) -> int:
    """Copy new bytes unchanged, progress bars and colours included; return their number."""
    copied = 0
    if os.fstat(file.fileno()).st_size < file.tell():  # a requeued job starts its file again
        file.seek(0)
    while block := file.read(_BLOCK):
        sys.stdout.buffer.write(block)
        copied += len(block)
    sys.stdout.buffer.flush()
    return copied


class _Followed:
    """Follows the output of one chain, link after link."""

    def __init__(self, client: Client, chain: dict[str, Any], first: int) -> None:
        self._client, self._chain, self._first = client, chain, first
        self._asked = time.monotonic()

    def run(self) -> None:
        """Print until the chain has ended."""
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
        """Return the next link with a started job, after ``link``."""
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
        """Print until the link ends or the next one starts."""
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
        """Whether no link runs or will run."""
        running = any(link["state"] not in _ENDED for link in self._chain["links"])
        return self._chain["status"] in ("done", "stopped") and not running

    def _pause(self) -> None:
        """Wait, and update the chain. Raises ``ClientError`` if the daemon does not know it any more."""
        from mirage.client.errors import DaemonUnreachable

        time.sleep(_POLL)
        if time.monotonic() - self._asked >= _ASK:
            self._asked = time.monotonic()
            try:
                self._chain = self._client.get(chain_path(self._chain["id"]))
            except DaemonUnreachable as error:
                show(f"mirage: {error}", err=True)
