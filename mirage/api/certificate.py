"""Validity of the certificate of the network address."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509

from mirage.domain.errors import ConfigError
from mirage.domain.instants import spell_instant
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

_LOG = logging.getLogger(__name__)
_SOON: Seconds = 14 * 86_400


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity of a certificate with its chain, in epoch seconds."""

    start: Seconds
    end: Seconds

    def problem(self, now: Seconds) -> str:
        """Return why clients reject it, or will within 14 days; empty if neither."""
        if self.end <= now:
            return f"it expired at {spell_instant(self.end)}"
        if self.start > now:
            return f"it is not valid before {spell_instant(self.start)}"
        return f"it expires at {spell_instant(self.end)}" if self.end - now < _SOON else ""

    def covers(self, now: Seconds) -> bool:
        """Return whether it is valid at ``now``."""
        return self.start <= now < self.end


def read_validity(file: str) -> Validity:
    """Read the validity of the certificates in a PEM file. Raises ``ConfigError``."""
    try:
        found = x509.load_pem_x509_certificates(read_regular(Path(file)))
        starts = [int(each.not_valid_before_utc.timestamp()) for each in found]
        ends = [int(each.not_valid_after_utc.timestamp()) for each in found]
    except (OSError, ValueError) as error:
        raise ConfigError("api.certificate", f"{file}: {error}") from error
    return Validity(max(starts), min(ends))


def log_validity(file: str) -> None:
    """Log a warning if clients reject the certificate, or soon will. Raises nothing."""
    try:
        problem = read_validity(file).problem(int(time.time()))
    except ConfigError as error:
        problem = error.problem
    if problem:
        _LOG.warning(
            'event=certificate_invalid file=%s reason="%s; renew it and restart the daemon"', file, problem
        )
