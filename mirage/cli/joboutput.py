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
    from mirage.backends.execution import Commands

    try:
        answer = Commands(os.environ).run(["scontrol", "show", "job", str(job_id)])
    except ClusterUnavailable as error:
        raise MirageError(f"the output file of job {job_id} is unknown: {error}") from None
    found = _STDOUT.search(answer.out)
    if answer.status or found is None:
        problem = answer.said or "scontrol shows no StdOut"
        raise MirageError(f"the output file of job {job_id} is unknown: {problem}")
    return found[1]
