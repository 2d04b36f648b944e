"""Addresses for people's eyes: messages, logs and listings show them without what opens them."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(://[^:@/]*):.*@")
_PARAMETER = re.compile(r"([?&](?:password|sslpassword|token|key)=)[^&#]*", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """``text`` with ``***`` for a password within a URL and for parameters that are one."""
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text))
