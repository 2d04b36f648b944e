"""Parse listen addresses of configuration files and options."""

from __future__ import annotations

import ipaddress
import re

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+|localhost)):([0-9]{1,5})")


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:8800``, ``[::1]:8800``; port 0 means any. Raises ``ValueError``."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65_535:
        raise ValueError(f"invalid address {text!r}; expected one such as 127.0.0.1:8800 or [::1]:8800")
    host = "127.0.0.1" if found[2] == "localhost" else found[1] or found[2]
    ipaddress.ip_address(host)
    return host, int(found[3])
