"""Where the output of a link's job is: by the options of its chain, else as Slurm tells it."""

from __future__ import annotations

import os
import re
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import ClusterUnavailable, MirageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT = "slurm-%j.out"
_FIELD = re.compile(r"%(\d*)(.)")
_STDOUT = re.compile(r"^\s*StdOut=(.*)$", re.MULTILINE)
_OF_NODE = re.compile(r"(%\d*[Nnst])")
_LONGEST_WIDTH = 10
"""What sbatch pads numbers to, at most."""


def output_of(chain: Mapping[str, Any], job_id: int) -> Path:
    """The file of a job's standard output. Raises ``MirageError`` where nothing tells it."""
    request = chain["request"]
    pattern = _pattern(request["options"])
    found = _filled(
        pattern, {"j": job_id, "A": job_id, "J": job_id, "x": request["job_name"], "u": chain["owner"]}
    )
    if found is None or not request["directory"]:
        return _by_slurm(job_id)
    return Path(request["directory"], found)


def _pattern(options: list[str]) -> str:
    """As the last ``--output`` has it."""
    given = [option.partition("=")[2] for option in options if option.startswith("--output=")]
    return given[-1] if given else _DEFAULT


def _filled(pattern: str, known: Mapping[str, Any]) -> str | None:
    r"""With what stands for ``%``, by sbatch's rules; ``None``: something is known to the job's node only.

    A backslash at any place leaves all of it as it is.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")
    unknown = False

    def fill(found: re.Match[str]) -> str:
        nonlocal unknown
        width, letter = found.groups()
        if letter == "%":
            return "%"
        unknown |= letter not in known
        value = known.get(letter, "")
        padded = isinstance(value, int) and width
        return str(value).zfill(min(int(width), _LONGEST_WIDTH)) if padded else str(value)

    text = _FIELD.sub(fill, pattern)
    return None if unknown else text


def _by_slurm(job_id: int) -> Path:
    """As ``scontrol`` has it, for as long as slurmctld remembers the job."""
    from mirage.backends.execution import Commands

    try:
        answer = Commands(os.environ).run(["scontrol", "show", "job", str(job_id)])
    except ClusterUnavailable as error:
        raise MirageError(f"the output file of job {job_id} is not known: {error}") from None
    found = _STDOUT.search(answer.out)
    if answer.status or found is None:
        raise MirageError(f"the output file of job {job_id} is not known: {answer.said or 'scontrol names none'}")
    return _found(found[1])


def _found(told: str) -> Path:
    """The newest file of that name; older releases leave ``%N`` and ``%n`` in it, which the node fills in."""
    if not _OF_NODE.search(told) or not told.startswith("/"):
        return Path(told)
    parts = ("*" if _OF_NODE.fullmatch(part) else escape(part) for part in _OF_NODE.split(told.lstrip("/")))
    return max(Path("/").glob("".join(parts)), key=lambda path: path.stat().st_mtime, default=Path(told))
