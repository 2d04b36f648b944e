"""Values of ``--signal`` and ``--mail-type``, which ``sbatch`` judges by itself, before it asks slurmctld."""

from __future__ import annotations

import re

from mirage.domain.errors import BadSpelling
from mirage.domain.job import WarnSignal

_SIGNAL = re.compile(r"(?:([RBrb]{1,2}):)?([A-Za-z]+[0-9]*|[0-9]{1,2})(?:@([0-9]{1,5}))?")
_SIGNALS = (
    *("HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "CHLD", "USR1", "USR2"),
    *("PIPE", "URG", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "XCPU"),
)
"""All that some version of Slurm knows by name; any other has to be a number."""
_LONGEST_LEAD = 65_535
_DEFAULT_LEAD = 60
_MAIL_TYPES = (
    *("BEGIN", "END", "FAIL", "REQUEUE", "ALL", "NONE", "INVALID_DEPEND", "STAGE_OUT", "ARRAY_TASKS"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50"),
)


def read_signal(text: str) -> tuple[WarnSignal, bool]:
    """The warning before the limit, and whether it is sent before a reservation begins, too (``R:``).

    Raises ``BadSpelling`` for what ``sbatch`` rejects.
    """
    match = _SIGNAL.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "expected a signal such as B:USR1@300 (seconds before the limit)")
    flags, name, lead = (
        (match[1] or "").upper(),
        match[2].upper().removeprefix("SIG"),
        int(match[3] or _DEFAULT_LEAD),
    )
    if not (int(name) if name.isdigit() else name in _SIGNALS):
        raise BadSpelling(text, f"expected a signal's number, or one of {', '.join(_SIGNALS)}")
    if lead > _LONGEST_LEAD:
        raise BadSpelling(text, f"expected a signal at most {_LONGEST_LEAD} seconds before the limit")
    return WarnSignal(name, lead, "B" in flags), "R" in flags


def check_mail_type(text: str) -> None:
    """Raise ``BadSpelling`` where Slurm knows no word of it; ``sbatch`` ignores others next to a known one."""
    if not set(text.upper().split(",")) & set(_MAIL_TYPES):
        raise BadSpelling(text, f"expected {', '.join(_MAIL_TYPES)}; comma-separated")
