"""Exit codes as the controller keeps them."""

from __future__ import annotations

from mirage.domain.errors import BadSpelling


def exit_code_of_status(text: str) -> int:
    """A raw wait status (768, 15), as squeue prints it, as shells say it: the code, or 128 + the signal.

    Of a job whose script could not be started it is 4021, which scontrol shows as 0:53. Raises ``BadSpelling``.
    """
    if not text.isdecimal() or len(text) > 10:
        raise BadSpelling(text, "expected a wait status such as 0, 256 or 15")
    status = int(text)
    code, signal = status >> 8 & 0xFF, status & 0x7F
    return 128 + signal if 0 < signal < 0x7F else code
