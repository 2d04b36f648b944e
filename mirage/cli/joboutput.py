"""Path of a job's output file: from the options of its chain, else from Slurm."""

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
"""Maximum width to which sbatch pads numbers."""


def output_of(chain: Mapping[str, Any], job_id: int) -> Path:
    """Return the file of a job's standard output. Raises ``MirageError`` if it is unknown."""
    request = chain["request"]
    pattern = _pattern(request["options"])
    found = _filled(
        pattern, {"j": job_id, "A": job_id, "J": job_id, "x": request["job_name"], "u": chain["owner"]}
    )
    if found is None or not request["directory"]:
        return _by_slurm(job_id)
    return Path(request["directory"], found)


def _pattern(options: list[str]) -> str:
    """Return the pattern of the last ``--output``."""
    given = [option.partition("=")[2] for option in options if option.startswith("--output=")]
    return given[-1] if given else _DEFAULT


def _filled(pattern: str, known: Mapping[str, Any]) -> str | None:
    r"""Expand ``%`` fields by sbatch's rules; ``None``: only the job's node knows a field.

    A backslash anywhere in the pattern disables expansion.
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
    """Ask ``scontrol``, which knows the job until slurmctld purges it."""
    from mirage.backends.execution import Commands

    try:
        answer = Commands(os.environ).run(["scontrol", "show", "job", str(job_id)])
    except ClusterUnavailable as error:
        raise MirageError(f"the output file of job {job_id} is unknown: {error}") from None
    found = _STDOUT.search(answer.out)
    if answer.status or found is None:
        problem = answer.said or "scontrol shows no StdOut"
        raise MirageError(f"the output file of job {job_id} is unknown: {problem}")
    return _found(found[1])


def _found(told: str) -> Path:
    """Return the newest matching file: older Slurm leaves ``%N`` and ``%n``, which only the node expands."""
    if not _OF_NODE.search(told) or not told.startswith("/"):
        return Path(told)
    parts = ("*" if _OF_NODE.fullmatch(part) else escape(part) for part in _OF_NODE.split(told.lstrip("/")))
    return max(Path("/").glob("".join(parts)), key=lambda path: path.stat().st_mtime, default=Path(told))
